"""What the page on tools quotes is what the tools say, where they are installed."""

import tomllib

import pytest
import scipy.sparse.linalg
import torch

from conftest import ROOT
from exacthessian import spectrum
from exacthessian.autograd import distributed, hessian_operator

PROMISES = tomllib.loads((ROOT / "book/tools/promises.toml").read_text())["promise"]
SPEAKERS = {
    "ours/product": hessian_operator,
    "ours/sharded": distributed.run_sharded,
    "ours/top": spectrum.top_eigenvalues,
    "ours/copies": spectrum.top_eigenvalues,
    "ours/density": spectrum.spectral_density,
    "torch/hessian": torch.func.hessian,
    "torch/lobpcg": torch.lobpcg,
    "scipy/eigsh": scipy.sparse.linalg.eigsh,
    "scipy/eigsh-copies": scipy.sparse.linalg.eigsh,
    "scipy/lobpcg-scale": scipy.sparse.linalg.lobpcg,
}


def plain(text):
    return " ".join(text.replace("`", "").split())


@pytest.mark.parametrize("name", SPEAKERS)
def test_a_quotation_is_one(name):
    words = next(row["words"] for row in PROMISES if row["id"] == name)
    said = plain(SPEAKERS[name].__doc__)
    for part in words.split("…"):
        assert plain(part).strip(" .,") in said
