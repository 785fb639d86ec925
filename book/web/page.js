// What a page needs once it is laid out: formulas that are too wide scroll and say so, the contents
// follow the reader, and printing unfolds what is folded.
(() => {
  const formulas = () => document.querySelectorAll(".bd-article mjx-container");

  /** Whether a formula is wider than its line. */
  function isWide(formula) {
    const room = formula.closest("p, li, td, th, dd, dt, div, figcaption, section").clientWidth;
    const inside = formula.firstElementChild;
    if (!inside || room === 0) return formula.classList.contains("eh-scrolls");
    const { width } = inside.getBoundingClientRect();
    return width > room + 1 || (formula.hasAttribute("display") && width > formula.getBoundingClientRect().width + 0.5);
  }

  /** Lets the formulas that do not fit scroll, and the keyboard reach exactly these. */
  function fit() {
    const found = [...formulas()].map((formula) => [formula, isWide(formula)]); // all are measured first
    for (const [formula, wide] of found) {
      if (wide === formula.classList.contains("eh-scrolls")) continue;
      formula.classList.toggle("eh-scrolls", wide);
      const names = { tabindex: "0", role: "group", "aria-label": "wide formula, scrolls sideways" };
      for (const [name, value] of Object.entries(names)) {
        if (wide) formula.setAttribute(name, value);
        else formula.removeAttribute(name);
      }
    }
  }

  /** Marks the section that is being read in the contents, and keeps its entry in sight. */
  function follow() {
    const entries = [...document.querySelectorAll("#pst-page-toc-nav a[href^='#']")];
    const read = entries.filter((entry) => {
      const section = document.getElementById(decodeURIComponent(entry.hash.slice(1)));
      return section && section.getBoundingClientRect().top < innerHeight / 3;
    }).at(-1);
    for (const entry of entries) {
      entry.classList.toggle("active", entry === read);
      if (entry === read) entry.setAttribute("aria-current", "true");
      else entry.removeAttribute("aria-current");
    }
    const list = read?.closest(".bd-sidebar-secondary");
    if (!list) return;
    const [box, at] = [list, read].map((part) => part.getBoundingClientRect());
    if (at.top < box.top || at.bottom > box.bottom) list.scrollTop += at.top - box.top - box.height / 3;
  }

  let waiting = 0, moved = 0;
  const soon = () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(fit); };
  const scrolled = () => { cancelAnimationFrame(moved); moved = requestAnimationFrame(follow); };
  addEventListener("load", () => {
    fit();
    follow();
  });
  addEventListener("resize", soon);
  const article = document.querySelector(".bd-article"); // sidebars that slide in change its width later
  if (article) new ResizeObserver(soon).observe(article);
  addEventListener("scroll", scrolled, { passive: true });
  document.addEventListener("toggle", soon, true);
  document.addEventListener("click", () => setTimeout(soon, 50));

  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")].filter((fold) => !fold.matches(".hide"));
    for (const fold of folded) fold.open = true;
  });
  addEventListener("afterprint", () => { for (const fold of folded) fold.open = false; });
})();
