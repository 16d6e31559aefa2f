// A box above each long table that hides the rows without the words typed into it.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table")) {
    const rows = [...table.tBodies].flatMap((body) => [...body.rows]);
    if (rows.length < 20) continue;
    const box = document.createElement("input");
    box.type = "search";
    box.placeholder = `Filter ${rows.length} rows`;
    box.setAttribute("aria-label", box.placeholder);
    box.addEventListener("input", () => {
      const words = box.value.toLowerCase().split(/\s+/);
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
    });
    const wrapper = table.closest(".table-wrapper") || table;
    wrapper.before(box);
  }
});
