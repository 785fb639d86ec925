// The decks: every formula in place, every slide fitted to its page, the keyboard always the deck's.

Reveal.initialize({
  width: 1280, height: 760, margin: 0.02, center: false, hash: true, slideNumber: "c/t",
  transition: "none", pdfMaxPagesPerSlide: 1, plugins: [RevealNotes],
});

// Make the letters of a slide smaller until everything is on it.
function fit(slide) {
  const box = slide && slide.querySelector(".fit");
  if (!box) return;
  const over = () => box.scrollHeight > box.clientHeight || box.scrollWidth > box.clientWidth;
  box.style.fontSize = "";
  for (let size = 0.95; over() && size > 0.5; size -= 0.05) box.style.fontSize = `${size}em`;
}

addEventListener("load", () => {
  for (const copy of document.querySelectorAll("aside.notes mjx-assistive-mml")) copy.remove();
  fit(Reveal.getCurrentSlide());
  Reveal.on("slidechanged", (event) => fit(event.currentSlide));
  if (/print-pdf/.test(location.search)) Reveal.getSlides().forEach(fit);
  document.documentElement.dataset.typeset = "yes";
});

// A live figure hands back the keyboard, and the keys that are not its own.
addEventListener("message", ({ data }) => {
  if (typeof data !== "object" || !("deckKey" in data)) return;
  if (document.activeElement instanceof HTMLIFrameElement) document.activeElement.blur();
  window.focus();
  if (data.deckKey) {
    document.dispatchEvent(new KeyboardEvent("keydown", { ...data.deckKey, bubbles: true }));
  }
});
