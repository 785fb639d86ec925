"""Agreement with another library, where it is installed.

curvlinops computes Hessian products of torch modules from samples. It shares automatic
differentiation with the oracle but none of its code, nor its parameter and data conventions.
"""

import re
import subprocess
import sys
import warnings
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import nn

from conftest import ROOT
from exacthessian.autograd import (
    dense_hessian,
    gauss_newton_operator,
    linear_chain_loss,
    linear_chain_sample_loss,
    tensors,
)

# curvlinops and its dependencies still meet torch's deprecated script compiler.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is:DeprecationWarning")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    curvlinops = pytest.importorskip("curvlinops")

OUTPUTS, SAMPLES = 2, 7


@pytest.fixture(name="problem")
def a_small_linear_chain():
    """(module, data, weights, X, Y) of a 3-4-3-2 chain with seven samples."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=shape) for shape in [(4, 3), (3, 4), (OUTPUTS, 3)]]
    layers = []
    for weight in weights:
        layer = torch.nn.utils.skip_init(
            nn.Linear, *weight.shape[::-1], bias=False, dtype=torch.float64
        )
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weight))
        layers.append(layer)
    x, y = rng.normal(size=(3, SAMPLES)), rng.normal(size=(OUTPUTS, SAMPLES))
    data = [(torch.from_numpy(x.T), torch.from_numpy(y.T))]
    return nn.Sequential(*layers), data, weights, x, y


def dense(operator_class, module, loss, data):
    # The check for determinism draws from torch's global generator.
    operator = operator_class(
        module, loss, list(module.parameters()), data, check_deterministic=False
    )
    return (operator @ torch.eye(operator.shape[1], dtype=torch.float64)).numpy(force=True)


# The house loss is 1/(2N) Σ‖·‖²: the mean over N·d_L numbers times d_L/2, or the sum over 2N.
CONVENTIONS = [("mean", OUTPUTS / 2), ("sum", 1 / (2 * SAMPLES))]


@pytest.mark.parametrize(("reduction", "factor"), CONVENTIONS)
def test_hessian_of_a_linear_chain(problem, reduction, factor):
    module, data, weights, x, y = problem
    loss = nn.MSELoss(reduction=reduction)
    wanted = factor * dense(curvlinops.HessianLinearOperator, module, loss, data)
    moments = linear_chain_loss(x @ x.T / SAMPLES, y @ x.T / SAMPLES)
    for ours in (moments, linear_chain_sample_loss(x, y)):
        found = dense_hessian(ours, tensors(weights))
        assert np.abs(found - wanted).max() <= 1e-12 * np.abs(wanted).max()


@pytest.mark.parametrize(("reduction", "factor"), CONVENTIONS)
def test_gauss_newton_of_a_linear_chain(problem, reduction, factor):
    module, data, weights, x, y = problem
    loss = nn.MSELoss(reduction=reduction)
    wanted = factor * dense(curvlinops.GGNLinearOperator, module, loss, data)
    moments = linear_chain_loss(x @ x.T / SAMPLES, y @ x.T / SAMPLES)
    operator = gauss_newton_operator(
        lambda w: w[2] @ w[1] @ w[0], lambda z: moments([z]), tensors(weights)
    )
    found = operator @ np.eye(operator.shape[0])
    assert np.abs(found - wanted).max() <= 1e-12 * np.abs(wanted).max()


REPORTS = re.findall(
    r"^## (\w[\w-]*).*?```python\n(.*?)```",
    (ROOT / "benchmarks/reports.md").read_text(),
    re.S | re.M,
)
MODULES = {
    "hessian-eigenthings": "hessian_eigenthings",
    "asdfghjkl": "asdl",
    "PyHessian": "pyhessian",
    "BackPACK": "backpack",
    "traceax": "traceax",
    "curvlinops": "curvlinops",
}


@pytest.mark.parametrize(("tool", "snippet"), REPORTS)
def test_a_report_still_shows_what_it_says(tool, snippet):
    if find_spec(MODULES[tool]) is None:
        pytest.skip(f"{tool} is not installed")
    command = [sys.executable, "-W", "ignore", "-c", snippet]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = snippet.strip().splitlines()[-1].removeprefix("# ")
    assert done.stdout.strip().splitlines()[-1].split() == said.split()
