"""nbval runs the reference notebooks beside the chapters; here it learns to compare numbers."""

import os

from nbval import plugin

import reference

os.environ["EXACTHESSIAN_STRICT"] = "1"  # a claim that does not pass is an error


def pytest_collection_modifyitems(items):
    for item in items:
        if isinstance(item, plugin.IPyNbCell):
            item.output_timeout = 120  # nbval's own 5 s is too short for an emulated machine


def compare_outputs(self, computed, expected, skip_compare=None):
    tolerance = self.cell.metadata.get("nbval", {})
    limits = tolerance.get("rtol", reference.RTOL), tolerance.get("atol", reference.ATOL)
    computed, expected = (reference.compared(outputs) for outputs in (computed, expected))
    for new, old in zip(computed, expected, strict=False):
        if "text" in new and "text" in old and new["name"] == old["name"]:
            agrees = reference.disagreement(old["text"], new["text"], *limits) is None
            new["text"] = old["text"] if agrees else new["text"]
        for kind in new.get("data", {}).keys() & old.get("data", {}).keys():
            if reference.disagreement(old["data"][kind], new["data"][kind], *limits) is None:
                new["data"][kind] = old["data"][kind]
    return exact_comparison(self, computed, expected, skip_compare)


exact_comparison = plugin.IPyNbCell.compare_outputs
plugin.IPyNbCell.compare_outputs = compare_outputs
