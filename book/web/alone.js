// A live figure alone on a slide: the keyboard goes back to the deck after every use of the pointer,
// and so does every key that the control in focus does not need.
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.dataset.theme = dark ? "dark" : "light";
const give = (key) => parent !== window && parent.postMessage({ deckKey: key }, "*");
const control = () => document.activeElement.closest("[role=slider], input, select, button, textarea");

addEventListener("pointerup", () => {
  setTimeout(() => {
    const focused = control();
    if (focused && focused.matches("select, input:not([type=range]), textarea")) return;
    document.activeElement.blur();
    give(null);
  });
});

addEventListener("keydown", (event) => {
  const focused = control();
  const writing = focused && focused.matches("select, input:not([type=range]), textarea");
  const keys = focused && focused.matches("button") ? /^( |Enter)$/ : /^(Arrow|Page|Home|End)/;
  if (event.key === "Tab" || (focused && keys.test(event.key))) return;
  if (writing && event.key !== "Escape") return;
  document.activeElement.blur();
  const { key, keyCode, shiftKey } = event;
  give(key === "Escape" ? null : { key, keyCode, shiftKey });
}, true);
