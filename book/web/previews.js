// What a reference leads to, shown beside it: for a mouse that rests on it and for a keyboard's focus.
// It stays while the pointer is on it, goes with Escape, and never stands in the way of a finger.
(() => {
  const root = document.documentElement.dataset.content_root ?? "./";
  const [WAIT, LINGER] = [250, 250]; // milliseconds before it comes and before it goes
  let box = null, link = null, wanted = null, timer = 0;

  /** The page and the id that a link leads to; the page is "" for this one. */
  function target(anchor) {
    const [here, there] = [location.href, anchor.href].map((address) => address.split(/[?#]/)[0]);
    const top = new URL(root, here).href;
    const page = here === there ? "" : decodeURIComponent(there.slice(top.length)).replace(/\.html$/, "");
    return { page, id: decodeURIComponent(anchor.hash.slice(1)) };
  }

  /** Loads the previews of another page, once. */
  function load(page) {
    if (window.previews?.[page]) return Promise.resolve();
    return new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = `${root}_static/previews/${page}.js`;
      script.onload = done;
      script.onerror = failed;
      document.head.append(script);
    });
  }

  /** What stands at an id of this page, without ids, links and buttons of its own. */
  function copy(id) {
    const place = document.getElementById(id);
    const inside = document.createElement("div");
    inside.append(place.cloneNode(true));
    if (place.matches("dt") && place.nextElementSibling) inside.append(place.nextElementSibling.cloneNode(true));
    for (const part of inside.querySelectorAll(".headerlink, button")) part.remove();
    for (const part of inside.querySelectorAll("a")) part.replaceWith(...part.childNodes);
    for (const part of inside.querySelectorAll("[id]")) part.removeAttribute("id");
    return inside.innerHTML;
  }

  function hide() {
    clearTimeout(timer);
    wanted = null;
    if (!box) return;
    link.removeAttribute("aria-describedby");
    if (link.dataset.title) link.title = link.dataset.title;
    box.remove();
    box = link = null;
  }

  /** Puts the box below its link, or above where there is no room below. */
  function place() {
    const at = [...link.getClientRects()].at(-1), size = box.getBoundingClientRect();
    const above = at.bottom + size.height > innerHeight && at.top > size.height;
    box.style.top = `${scrollY + (above ? at.top - size.height : at.bottom)}px`;
    box.style.left = `${scrollX + Math.max(8, Math.min(at.left, document.documentElement.clientWidth - size.width - 8))}px`;
  }

  async function show(anchor) {
    const { page, id } = target(anchor);
    if (page) await load(page);
    if (wanted !== anchor) return; // meanwhile the reader has gone on
    hide();
    wanted = link = anchor;
    box = document.createElement("div");
    box.id = "eh-preview";
    box.className = "eh-preview bd-article";
    box.setAttribute("role", "tooltip");
    box.innerHTML = page ? window.previews[page][id].replaceAll('src="_images/', `src="${root}_images/`) : copy(id);
    document.body.append(box);
    place();
    link.setAttribute("aria-describedby", box.id);
    if (link.title) [link.dataset.title, link.title] = [link.title, ""];
  }

  function after(wait, action) {
    clearTimeout(timer);
    timer = setTimeout(action, wait);
  }
  function want(anchor) {
    wanted = anchor;
    after(WAIT, () => show(anchor));
  }
  function leave() {
    wanted = null;
    after(LINGER, hide);
  }

  const marked = (event) => event.target.closest?.("a[data-preview]");
  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    const anchor = marked(event);
    if (anchor && anchor !== link) want(anchor);
    else if (anchor || event.target.closest?.(".eh-preview")) after(0, () => { wanted = link; });
    else if (wanted && !wanted.matches(":focus-visible")) leave();
  });
  document.addEventListener("focusin", (event) => {
    const anchor = marked(event);
    if (anchor?.matches(":focus-visible")) want(anchor);
  });
  document.addEventListener("focusout", (event) => { if (marked(event)) leave(); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  document.addEventListener("click", hide);
})();
