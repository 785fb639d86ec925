"""Descent on torch losses, adapters, and the entry points for models that are not shipped."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from conftest import ROOT
from exacthessian.autograd import dense_hessian
from exacthessian.studies.beyond_edge_of_stability import descent, edge_ratio

SCRIPT = ROOT / "benchmarks" / "edge_of_stability.py"

MODELS = """
import torch

def image():
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.ConvTranspose2d(2, 2, 2), torch.nn.Tanh(), torch.nn.Conv2d(2, 1, 1)
    ).double()
    return network, torch.ones(1, 2, 3, 3, dtype=torch.float64)

def pairs():
    torch.manual_seed(0)

    def encode(first, second):
        return torch.tensor([[len(a), len(b), a == b] for a, b in zip(first, second)]).double()

    network = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.Linear(4, 1), torch.nn.Flatten(0)
    )
    return network.double(), encode
"""


def bowl(theta):
    return (theta[0] ** 2 * torch.tensor([1.0, 3.0], dtype=torch.float64)).sum() / 2


def test_descent_follows_the_hand_computed_path():
    start = [torch.tensor([1.0, 1.0], dtype=torch.float64)]
    path = [(now[0].numpy(), value) for now, value in descent(bowl, start, eta=0.1, steps=2)]
    assert len(path) == 3
    np.testing.assert_allclose(path[2][0], [0.9**2, 0.7**2])
    np.testing.assert_allclose(path[2][1], (0.9**4 + 3 * 0.7**4) / 2)


def test_runs_with_their_own_steps_do_not_mix():
    start = torch.ones(3, 1, dtype=torch.float64)
    etas = torch.tensor([0.1, 0.5, 1.0], dtype=torch.float64)[:, None]
    *_, (end, _) = descent(lambda theta: (theta[0] ** 2).sum(-1) / 2, [start], etas, 2)
    np.testing.assert_allclose(end[0][:, 0], [0.81, 0.25, 0.0])


def test_the_edge_ratio_is_half_eta_times_the_top_eigenvalue():
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.standard_normal((5, 4)))

    def loss(weights):
        return (torch.tanh(x @ weights[0].mT) @ weights[1]).square().sum()

    weights = [torch.tensor(rng.standard_normal(shape)) for shape in ((3, 4), (3,))]
    top = np.linalg.eigvalsh(dense_hessian(loss, weights))[-1]
    assert edge_ratio(loss, weights, eta=0.3) == pytest.approx(0.3 * top / 2, rel=1e-2)


def run(*arguments):
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def table(done):
    assert done.returncode == 0, done.stderr
    return [[float(x) for x in line.split()] for line in done.stdout.splitlines()[1:]]


def test_the_image_entry_point_fits_an_image(tmp_path):
    (tmp_path / "models.py").write_text(MODELS)
    np.save(tmp_path / "image.npy", np.random.default_rng(0).uniform(size=(4, 4)))
    options = ("--eta", 0.01, "--steps", 200, "--every", 100)
    rows = table(run("image", f"{tmp_path}/models.py:image", tmp_path / "image.npy", *options))
    assert [row[0] for row in rows] == [0, 100, 200]
    assert rows[-1][1] < 0.7 * rows[0][1]
    assert 0 < rows[-1][2] < 1


def test_the_pairs_entry_point_learns_scores(tmp_path):
    (tmp_path / "models.py").write_text(MODELS)
    lines = ["5.0\tab\tab", "1.0\tab\tabcdef", "4.5\ta\ta", "0.5\tabc\td", "2.0\tabcd\te"] * 30
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    options = ("--eta", 0.02, "--rank", 2, "--epochs", 60)
    rows = table(run("pairs", f"{tmp_path}/models.py:pairs", tmp_path / "pairs.tsv", *options))
    assert len(rows) == 61
    assert rows[-1][1] < rows[0][1]


def test_a_missing_model_is_named(tmp_path):
    done = run("image", f"{tmp_path}/none.py:f", tmp_path / "x.npy", "--eta", 1)
    assert done.returncode != 0
    assert "MODEL must be file.py:function" in done.stderr
