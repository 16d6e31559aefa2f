// Shows the recipe's answer to what is chosen; the page has one for every combination.
document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("selector");
  if (!form) return;
  const { kinds, table } = JSON.parse(document.getElementById("selector-answers").textContent);
  const line = form.querySelector("pre");
  const reason = document.getElementById("selector-reason");
  const show = () => {
    const chosen = [...form.querySelectorAll(":checked")];
    const place = chosen.reduce((sum, { value, dataset }) => sum * dataset.of + Number(value), 0);
    const [accepted, why] = kinds[table[place]];
    const own = chosen.map((each) => each.dataset.own);
    const dependencies = chosen.map((each) => each.dataset.dependency);
    line.textContent = [`spack install py-horovod${own.shift()}`, ...own, ...dependencies]
      .filter(Boolean)
      .join(" ");
    line.parentElement.hidden = !accepted;
    reason.textContent = why || "The recipe accepts it.";
    form.classList.toggle("refused", !accepted);
  };
  form.addEventListener("change", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  show();
});
