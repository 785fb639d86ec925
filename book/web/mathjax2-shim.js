// The widget manager still speaks MathJax 2's queue; hand its requests to MathJax 3.
window.MathJax = window.MathJax || {};
window.MathJax.Hub = {
  Queue: function (request) {
    const element = Array.isArray(request) ? request[2] : undefined;
    const ready = window.MathJax.startup ? window.MathJax.startup.promise : Promise.resolve();
    ready.then(() => window.MathJax.typesetPromise(element ? [element] : undefined));
  },
  Config: function () {},
  Configured: function () {},
};
