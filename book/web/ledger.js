// Filters the tables of the ledger in the browser: no server, no kernel.
document.addEventListener("DOMContentLoaded", () => {
  for (const controls of document.querySelectorAll(".eh-filter")) {
    const table = controls.closest("p").nextElementSibling.querySelector("table");
    const rows = [...table.tBodies[0].rows];
    const menus = [...controls.querySelectorAll("select")];
    const show = () => {
      let shown = 0;
      for (const row of rows) {
        const facts = row.querySelector("[data-outcome]").dataset;
        const visible = menus.every((m) => !m.value || facts[m.dataset.filter] === m.value);
        row.hidden = !visible;
        shown += visible && !("whole" in facts);
      }
      controls.querySelector("output").textContent = `${shown} rows`;
    };
    menus.forEach((menu) => menu.addEventListener("change", show));
    show();
  }
});
