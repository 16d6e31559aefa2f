// The form of which-spec.md: joins the fields' pieces to a spec and shows what the recipe
// says to it. Each field's piece is in its attributes; the state is in the URL's fragment.
document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("which-spec");
  if (!form) return;
  const element = (id) => document.getElementById(`which-${id}`);
  const recipe = new hvdSpec.Recipe(JSON.parse(element("recipe").textContent));
  const fields = [...form.elements].filter((each) => each.name);
  const boxes = fields.filter((each) => each.name === "frameworks");
  const others = fields.filter((each) => each.name !== "frameworks");

  function piece(field) {
    if (field.disabled) return "";
    if (field.type === "checkbox") return field.checked ? "" : field.dataset.unchecked;
    const template = field.selectedOptions?.[0]?.dataset.spec ?? field.dataset.spec ?? "";
    const value = field.value.trim();
    return value && template.replace("{}", value);
  }

  function frameworks() {
    if (boxes.every((each) => each.checked === each.defaultChecked)) return "";
    const chosen = boxes.filter((each) => each.checked).map((each) => each.value);
    if (!chosen.length) throw new Error("choose a framework");
    return `frameworks:=${chosen.join(",")}`;
  }

  // The spec of all fields, or of those that are not about a dependency.
  function compose(all) {
    const pieces = new Map([["name", recipe.name]]);
    for (const field of others) {
      const text = piece(field);
      const { needs, after } = field.dataset;
      if (!text || (needs && !all)) continue;
      if (!after) pieces.set(field.name, text);
      else if (pieces.has(after)) pieces.set(after, pieces.get(after) + text);
    }
    pieces.set("frameworks", frameworks());
    // the package itself comes first, then its compiler, then its dependencies
    const rank = (text) => ["%", "^"].indexOf(text[0]);
    const sorted = [...pieces.values()].filter(Boolean).sort((a, b) => rank(a) - rank(b));
    return sorted.join(" ").replace(/ @/, "@");
  }

  // A dependency that the spec does not have cannot be chosen.
  function offer() {
    for (const label of form.querySelectorAll("[data-gpu]")) {
      label.hidden = label.dataset.gpu !== form.elements.gpu.value;
      for (const field of label.querySelectorAll("input")) field.disabled = label.hidden;
    }
    const asked = hvdSpec.parse(compose(false));
    const { spec } = recipe.check(asked);
    const found = recipe.dependencies(
      spec ?? recipe.complete({ ...asked, versions: asked.versions || recipe.versions[0] }),
    );
    for (const field of others) {
      const { needs } = field.dataset;
      if (needs && !field.closest("[hidden]")) field.disabled = !found.has(needs);
    }
  }

  function show(verdict, text, messages) {
    element("result").dataset.verdict = verdict;
    element("verdict").textContent = text;
    element("messages").replaceChildren(
      ...messages.map((message) => {
        const item = document.createElement("li");
        item.textContent = message;
        return item;
      }),
    );
    element("copy").hidden = verdict !== "taken";
  }

  function update() {
    const line = element("line");
    try {
      offer();
      const text = compose(true);
      const quoted = text.includes(" ") ? `'${text.replaceAll("'", "'\\''")}'` : text;
      line.textContent = `spack install ${quoted}`;
      line.dataset.spec = text;
      const { spec, messages } = recipe.check(hvdSpec.parse(text));
      if (spec) show("taken", `The recipe accepts it, as Horovod ${spec.versions}.`, []);
      else show("refused", "The recipe refuses it:", messages);
    } catch (error) {
      show("refused", "This is not a spec:", [error.message]);
    }
  }

  function save() {
    const state = new URLSearchParams();
    for (const field of others) {
      const box = field.type === "checkbox";
      const changed = box ? field.checked !== field.defaultChecked : field.value;
      if (changed) state.set(field.name, box ? Number(field.checked) : field.value);
    }
    if (boxes.some((each) => each.checked !== each.defaultChecked)) {
      const chosen = boxes.filter((each) => each.checked);
      state.set("frameworks", chosen.map((each) => each.value).join(","));
    }
    history.replaceState(null, "", `#${state}`);
  }

  function load() {
    const state = new URLSearchParams(location.hash.slice(1));
    form.reset();
    for (const [name, value] of state) {
      const field = others.find((each) => each.name === name);
      if (field?.type === "checkbox") field.checked = value === "1";
      else if (field) field.value = value;
    }
    const chosen = state.get("frameworks")?.split(",");
    for (const box of boxes) if (chosen) box.checked = chosen.includes(box.value);
    update();
  }

  form.addEventListener("input", () => (update(), save()));
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", load);
  element("reset").addEventListener("click", () => (location.hash = ""));
  element("copy").addEventListener("click", () => {
    navigator.clipboard?.writeText(element("line").textContent);
    element("copy").textContent = "Copied";
    setTimeout(() => (element("copy").textContent = "Copy"), 1500);
  });
  load();
});
