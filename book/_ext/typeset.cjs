// Typesets formulas with MathJax in Node: reads {mathjax, tex, formulas: [[tex, display], ...]} from
// the standard input, writes [{html} or {error}, ...]. Each formula is an SVG whose letters are paths,
// with its MathML, hidden from the eye, for screen readers.
const { readFileSync } = require("fs");
const { mathjax, tex, formulas } = JSON.parse(readFileSync(0, "utf8"));
const file = (name) => `${mathjax}/${name}.js`;

require(file("node-main")).init({
  loader: {
    load: ["input/tex-full", "output/svg", "adaptors/liteDOM", "a11y/assistive-mml"],
    source: {
      core: file("core"),
      "input/tex-full": file("tex-full"),
      "output/svg": file("svg"),
      "output/svg/fonts/tex": file("tex"),
      "adaptors/liteDOM": file("liteDOM"),
      "a11y/assistive-mml": file("assistive-mml"),
    },
  },
  options: { enableAssistiveMml: true },
  startup: { typeset: false },
  svg: { fontCache: "none" },
  tex: { ...tex, packages: { "[-]": ["noundefined", "noerrors"] } }, // what it does not know is an error
}).then((MathJax) => {
  const { adaptor } = MathJax.startup;
  const typeset = ([source, display]) => {
    const html = adaptor.outerHTML(MathJax.tex2svg(source, { display }));
    const error = /data-mjx-error="([^"]*)"/.exec(html);
    return error ? { error: error[1] } : { html };
  };
  process.stdout.write(JSON.stringify(formulas.map(typeset)));
}).catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
