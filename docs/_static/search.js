// What Sphinx's search finds, and in which order.
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;
  // pages about one machine, and the changelog, come last unless their title is what is asked for
  Scorer.score = ([page, , , , score]) =>
    score <= Scorer.title && /sites\/|CHANGELOG/.test(page) ? score / 2 : score;
  // it drops numbers, but people search for "403"
  const parse = Search._parseQuery;
  Search._parseQuery = (query) => {
    const parsed = parse(query);
    for (const word of splitQuery(query)) if (/^\d+$/.test(word)) parsed[1].add(word);
    return parsed;
  };
});
