const UNITS = { µs: 1e-6, ms: 1e-3, s: 1, min: 60, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, "MB/s": 1, "GB/s": 1e3 };
// The number in a cell, such as 3 min 20 s; 3.10 is one only where numbers stand, on the right.
const amount = (text, right) => {
  const plain = text.replaceAll(",", "");
  const parts = [...plain.matchAll(/([\d.]+) (\S+)/g)];
  if (!parts.length) return right && plain ? Number(plain) : NaN;
  return parts.reduce((sum, [, number, unit]) => sum + number * UNITS[unit], 0);
};
// A click on the head of a column sorts the rows by it, and the next one the other way.
const sortable = (head, rows) => {
  const text = (row) => row.cells[head.cellIndex].textContent.trim();
  const compare = (a, b) => {
    const [x, y] = [a, b].map((each) => amount(each, head.classList.contains("text-right")));
    const apart = isNaN(x) || isNaN(y) ? isNaN(x) - isNaN(y) : x - y;
    return apart || a.localeCompare(b, "en", { numeric: true });
  };
  const sort = () => {
    const sign = head.ariaSort === "ascending" ? -1 : 1;
    for (const each of head.parentElement.cells) each.ariaSort = null;
    head.ariaSort = sign > 0 ? "ascending" : "descending";
    rows[0].parentElement.append(...rows.sort((a, b) => sign * compare(text(a), text(b))));
  };
  head.tabIndex = 0;
  head.addEventListener("click", sort);
  head.addEventListener("keydown", ({ key }) => key === "Enter" && sort());
};
// A box above each long table that hides the rows without the words typed into it.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table")) {
    const rows = [...table.tBodies].flatMap((body) => [...body.rows]);
    // a row that goes on the one above it has to stay there
    if (rows.length > 4 && rows.every((row) => row.cells[0].textContent))
      for (const head of table.tHead.rows[0].cells) sortable(head, [...rows]);
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
