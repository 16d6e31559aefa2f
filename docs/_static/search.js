// Sphinx drops numbers from what is searched for, but people search for "403".
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;
  const parse = Search._parseQuery;
  Search._parseQuery = (query) => {
    const parsed = parse(query);
    for (const word of splitQuery(query)) if (/^\d+$/.test(word)) parsed[1].add(word);
    return parsed;
  };
});
