// Filters the tables of the ledger, shows rows of a claim graph, copies challenges: no server, no kernel.
document.addEventListener("DOMContentLoaded", () => {
  for (const controls of document.querySelectorAll(".eh-filter")) filterTable(controls);
  for (const graph of document.querySelectorAll(".eh-graph")) showRows(graph);
});

// The state of a filter is in the address, so that it can be sent: #filter&paper=...&outcome=...&text=...
function filterTable(controls) {
  const table = controls.closest("p").nextElementSibling.querySelector("table");
  const rows = [...table.tBodies[0].rows];
  const fields = [...controls.querySelectorAll("[data-filter]")];
  const given = new URLSearchParams(location.hash.startsWith("#filter&") ? location.hash.slice(8) : "");
  for (const field of fields) field.value = given.get(field.dataset.filter) || "";
  const words = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const show = () => {
    let shown = 0;
    const wanted = fields.filter((field) => field.value);
    for (const row of rows) {
      const facts = row.querySelector("[data-outcome]").dataset;
      const visible = wanted.every((field) =>
        field.dataset.filter === "text"
          ? field.value.toLowerCase().split(/\s+/).every((word) => words.get(row).includes(word))
          : facts[field.dataset.filter] === field.value);
      row.hidden = !visible;
      shown += visible && !("whole" in facts);
    }
    controls.querySelector("output").textContent = `${shown} rows`;
    return wanted;
  };
  const change = () => {
    const wanted = show().map((field) => [field.dataset.filter, field.value]);
    const state = wanted.length ? `#filter&${new URLSearchParams(wanted)}` : "#";
    history.replaceState(null, "", state);
  };
  fields.forEach((field) => field.addEventListener("input", change));
  show();
}

// A claim that is pointed at or has the focus: its row appears below the graph, its arrows stand out.
function showRows(graph) {
  const panel = graph.parentElement.querySelector(".eh-graph-row");
  const nodes = [...graph.querySelectorAll(".eh-node")];
  const edges = [...graph.querySelectorAll(".eh-edges path")];
  const byId = new Map(nodes.map((node) => [node.dataset.id, node]));
  const joined = (node, end, other) =>
    edges.filter((edge) => edge.dataset[end] === node.dataset.id).map((edge) => byId.get(edge.dataset[other]));
  const show = (node) => {
    const { id } = node.dataset;
    nodes.forEach((one) => one.classList.toggle("eh-on", one === node));
    edges.forEach((edge) => edge.classList.toggle("eh-on", edge.dataset.from === id || edge.dataset.to === id));
    const row = document.getElementById(node.hash ? node.hash.slice(1) : node.getAttribute("href").split("#")[1]);
    panel.replaceChildren();
    const shown = row ? [...row.children].map((child) => child.cloneNode(true)) : [];
    if (!row) panel.textContent = node.getAttribute("aria-label");
    panel.append(...shown);
    panel.querySelectorAll("details, .eh-made, [id]").forEach((part) =>
      part.matches("details, .eh-made") ? part.remove() : part.removeAttribute("id"));
  };
  const box = (node) => node.querySelector("rect").getBBox();
  const nearest = (node, up) => {
    const here = box(node);
    const others = nodes.filter((one) => Math.abs(box(one).x - here.x) < 1 && (box(one).y - here.y) * up < 0);
    return others.sort((a, b) => up * (box(b).y - box(a).y))[0];
  };
  for (const node of nodes) {
    node.addEventListener("pointerenter", () => show(node));
    node.addEventListener("focus", () => show(node));
    node.addEventListener("keydown", (event) => {
      const next = {
        ArrowLeft: () => joined(node, "to", "from")[0],
        ArrowRight: () => joined(node, "from", "to")[0],
        ArrowUp: () => nearest(node, 1),
        ArrowDown: () => nearest(node, -1),
      }[event.key];
      if (!next) return;
      event.preventDefault();
      const to = next();
      if (to) to.focus();
    });
  }
}
