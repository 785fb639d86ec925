// Searches the index of headings, theorems, terms, claims and exercises on the search page, offline.
const WEIGHTS = { term: 5, theorem: 4, proposition: 4, lemma: 4, corollary: 4, definition: 4, page: 4, section: 3, claim: 2, exercise: 1.5, function: 1 };
const SHOWN = 25;
const STOP = new Set("a an and are as at be by can do does for from has have how i if in is it its of on or that the there this to was what when where which who why with".split(" "));
const plain = (text) => text.normalize("NFKD").replace(/[\u0300-\u036f]/g, "").toLowerCase();
const wordsOf = (text) => plain(text).match(/[\p{L}\p{N}]+(?:\.\p{N}+)*/gu) || [];
// "eigenvalues" finds "eigenvalue": a crude stem is enough for one book.
const stem = (word) => (word.length > 4 ? word.replace(/(ies|es|s|ing|ed|ly)$/, "") : word);

function rank(entries, query) {
  const all = [...new Set(wordsOf(query).map(stem))];
  const asked = all.filter((word) => !STOP.has(word));
  const words = asked.length ? asked : all;
  const fits = (list, word) => list.some((one) => one.startsWith(word));
  const found = entries.map((entry) => {
    const [kind, title, , context, page] = entry;
    return { entry, kind, phrase: wordsOf(title).join(" "), title: wordsOf(title).map(stem), context: wordsOf(`${context} ${page}`).map(stem) };
  });
  const rarity = new Map(words.map((word) => {
    const n = found.filter((one) => fits(one.title, word) || fits(one.context, word)).length;
    return [word, n ? Math.log(1 + found.length / n) : 0];
  }));
  const whole = wordsOf(query).join(" ");
  for (const one of found) {
    let score = 0, hits = 0;
    for (const word of words) {
      const inTitle = fits(one.title, word), inContext = fits(one.context, word);
      hits += inTitle || inContext;
      score += rarity.get(word) * (inTitle ? 3 : inContext ? 1 : 0);
    }
    if (one.phrase === whole) score *= 3;
    else if (one.phrase.startsWith(whole)) score *= 2.2;
    else if (one.phrase.includes(whole)) score *= 1.6;
    const length = 1 + one.title.length / 12;
    one.score = (score * (hits / words.length) ** 2 * (2 + WEIGHTS[one.kind])) / length;
    one.all = hits === words.length;
  }
  const best = found.filter((one) => one.score > 0).sort((a, b) => b.score - a.score);
  return { words, best: best.slice(0, SHOWN).map((one) => one.entry) };
}

function marked(text, words) {
  const line = document.createElement("p");
  for (const piece of text.split(/([\p{L}\p{N}.]+)/u)) {
    const hit = piece && words.some((word) => word.length > 1 && plain(piece).startsWith(word));
    line.append(hit ? Object.assign(document.createElement("mark"), { textContent: piece }) : piece);
  }
  return line;
}

document.addEventListener("DOMContentLoaded", () => {
  const results = document.getElementById("search-results");
  const query = new URLSearchParams(location.search).get("q");
  if (!results || !query || !window.answersIndex) return;
  const { words, best } = rank(window.answersIndex, query);
  const list = document.createElement("ol");
  list.className = "eh-answers";
  for (const [kind, title, address, context, page] of best) {
    const item = document.createElement("li");
    const link = Object.assign(document.createElement("a"), { href: address, textContent: title });
    const about = Object.assign(document.createElement("span"), { className: "eh-kind", textContent: ` ${kind}, ${page}` });
    item.append(link, about, marked(context, words));
    list.append(item);
  }
  const heading = Object.assign(document.createElement("h2"), { textContent: best.length ? "Answers" : "No answer found" });
  const pages = document.createElement("details");
  pages.className = "eh-pages";
  pages.append(Object.assign(document.createElement("summary"), { textContent: "Whole pages that contain these words" }));
  results.before(heading, list, pages);
  pages.append(results);
});
