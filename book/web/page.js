// What a page needs once it is laid out: formulas that are too wide scroll and say so, sliders of
// widgets have names, and printing unfolds what is folded.
(() => {
  const formulas = () => document.querySelectorAll(".bd-article mjx-container");

  /** Lets the formulas that do not fit scroll, and the keyboard reach exactly these. */
  function fit() {
    for (const formula of formulas()) {
      const room = formula.closest("p, li, td, th, dd, dt, div, figcaption, section").clientWidth;
      const inside = formula.firstElementChild;
      if (!inside || room === 0) continue;
      const wide = inside.getBoundingClientRect().width > room + 1
        || (formula.hasAttribute("display") && formula.scrollWidth > formula.clientWidth + 1);
      formula.classList.toggle("eh-scrolls", wide);
      if (wide) {
        formula.tabIndex = 0;
        formula.setAttribute("role", "group");
        formula.setAttribute("aria-label", "wide formula, scrolls sideways");
      } else if (formula.hasAttribute("aria-label")) {
        for (const name of ["tabindex", "role", "aria-label"]) formula.removeAttribute(name);
      }
    }
  }

  /** A slider of a widget says its label, and its value instead of its position. */
  function nameSliders() {
    for (const handle of document.querySelectorAll(".noUi-handle")) {
      const box = handle.closest(".widget-slider, .widget-inline-hbox");
      const [label, value] = [".widget-label", ".widget-readout"].map((part) => box?.querySelector(part)?.textContent.trim());
      if (label && handle.getAttribute("aria-label") !== label) handle.setAttribute("aria-label", label);
      if (value && handle.getAttribute("aria-valuetext") !== value) handle.setAttribute("aria-valuetext", value);
    }
  }

  let waiting = 0;
  const soon = () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(fit); };
  addEventListener("load", () => {
    (window.MathJax?.startup?.promise ?? Promise.resolve()).then(fit);
    nameSliders();
    new MutationObserver(nameSliders).observe(document.querySelector(".bd-article") ?? document.body, {
      subtree: true, childList: true, attributes: true, attributeFilter: ["aria-valuetext"],
    });
  });
  addEventListener("resize", soon);
  document.addEventListener("toggle", soon, true);
  document.addEventListener("click", () => setTimeout(soon, 50));

  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")].filter((fold) => !fold.matches(".hide"));
    for (const fold of folded) fold.open = true;
  });
  addEventListener("afterprint", () => { for (const fold of folded) fold.open = false; });
})();
