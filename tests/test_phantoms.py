"""Spectral phantoms: their spectra against automatic differentiation, and the faults they catch."""

import doctest
import json
import re
import subprocess
import sys
from copy import deepcopy
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from conftest import ROOT
from exacthessian import AlignedChain, Spectrum, phantoms
from exacthessian.autograd import dense_hessian, gauss_newton_operator, tensors
from exacthessian.phantoms import KINDS, phantom

MINIMA = ("degenerate", "gap", "sparse", "orders", "two-valued")  # where H = G


def outputs(weights, x):
    for weight in weights:
        x = x @ weight.T
    return x


def weights_of(p):
    return tensors([weight.detach().numpy() for weight in p.model.parameters()])


def test_doctests():
    assert doctest.testmod(phantoms).failed == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 5])
def test_everything_known_is_what_autograd_finds(kind, seed):
    p = phantom(kind, 1000, seed)
    x, y = p.data
    hessian = dense_hessian(lambda w: p.loss(outputs(w, x), y), weights_of(p))
    hessian = (hessian + hessian.T) / 2
    operator = gauss_newton_operator(lambda w: outputs(w, x), lambda z: p.loss(z, y), weights_of(p))
    gauss_newton = operator @ np.eye(p.size)
    norm = p.spectrum.norm
    assert (350 if kind == "exact32" else 900) < p.size <= 1000
    assert p.size == p.spectrum.size == p.gauss_newton_spectrum.size
    assert Spectrum.from_matrix(hessian).distance(p.spectrum) < 2e-14
    assert (
        Spectrum.from_matrix((gauss_newton + gauss_newton.T) / 2).distance(p.gauss_newton_spectrum)
        < 2e-14
    )
    assert_allclose(p.trace, np.trace(hessian), atol=1e-12 * norm)
    assert_allclose(p.trace, p.spectrum.values @ p.spectrum.multiplicities, atol=1e-12 * norm)
    assert_allclose(p.diagonal, np.diag(hessian), atol=1e-14 * norm)
    values, vectors = p.eigenpairs(120)
    assert_allclose(values, p.spectrum.expand()[:120], atol=1e-14 * norm)
    assert_allclose(vectors.T @ vectors, np.eye(120), atol=1e-13)
    assert_allclose(hessian @ vectors, values * vectors, atol=1e-14 * norm)
    assert p.residual(lambda v: hessian @ v) < 1e-14


@pytest.mark.parametrize("kind", KINDS)
def test_moments_are_exactly_prescribed_and_the_factors_are_those_of_torch(kind):
    p = phantom(kind, 2000, seed=1)
    x, y = (part.numpy() for part in p.data)
    left, right = p.bases[-1], p.bases[0]
    modes, r = p.modes, len(p.modes.target)
    scale = np.sqrt(modes.data.max())
    assert_allclose(x.T @ x / len(x), (right * modes.data) @ right.T, atol=1e-14 * scale**2)
    assert_allclose(
        y.T @ x / len(x), (left[:, :r] * modes.target) @ right[:, :r].T, atol=1e-13 * scale
    )
    z = p.model(p.data[0])
    for reduction, factor in p.factors.items():
        other = torch.nn.functional.mse_loss(z, p.data[1], reduction=reduction)
        assert other.item() == pytest.approx(factor * p.loss(z, p.data[1]).item(), rel=1e-12)


def test_the_kinds_are_what_they_are_called():
    values = {kind: phantom(kind, 3000, seed=2).spectrum.expand() for kind in KINDS}
    assert all(len(values[kind]) > 2700 for kind in KINDS if kind != "exact32")
    top = values["outliers"]
    assert top[9] > 10 * top[10] > 0 > top[-1]
    assert str(phantom("degenerate", 3000, 2).spectrum).startswith("3 × 100, 1.3125 × 100, 0 ×")
    assert_allclose(values["gap"][:3], [1, 1 - 1e-6, 0.5], atol=1e-14)
    assert_allclose(values["indefinite"][:10], -values["indefinite"][::-1][:10], atol=1e-14)
    assert values["indefinite"][0] - values["indefinite"][1] > 1e-3
    assert -values["negative"][-1] > 1.1 * values["negative"][0] > 0
    assert np.mean(np.abs(values["sparse"]) > 1e-9 * 1e-6) <= 1e-3 * (1 + 1e-9)
    assert_allclose(values["orders"][:24], np.repeat(10.0 ** -np.arange(12), 2), atol=1e-15)
    assert np.diff(np.sort(values["distinct"])).min() > 1e-12
    assert np.abs(values["distinct"]).min() > 1e-9
    assert str(phantom("two-valued", 3000, 2).spectrum).startswith("3 × 64, 0 ×")


def test_distinct_values_stay_distinct_at_a_larger_size():
    values = np.sort(phantom("distinct", 100_000, seed=0).spectrum.values)
    assert np.diff(values).min() > 0
    assert len(values) == 99_372


def test_seeds_differ_and_repeat():
    one, two, three = (phantom("outliers", 1000, seed) for seed in (0, 0, 1))
    assert torch.equal(one.model[0].weight, two.model[0].weight)
    assert not torch.equal(one.model[0].weight, three.model[0].weight)
    assert one.spectrum.distance(three.spectrum) > 1e-3


def test_the_loader_keeps_every_sample_and_the_last_batch_is_smaller():
    p = phantom("gap", 1000, seed=0, samples=50)
    batches = list(p.loader(32))
    assert [len(x) for x, _ in batches] == [32, 18]
    assert torch.equal(torch.cat([y for _, y in batches]), p.data[1])
    assert p.data[0][-1].norm() > 1.5 * p.data[0][:-1].norm(dim=1).median()


def test_the_cost_of_a_spectrum_does_not_grow_with_the_parameters():
    small, large = (phantom("outliers", size, seed=0) for size in (10_000, 300_000))
    assert len(small.spectrum) == len(large.spectrum) < 3000
    assert large.spectrum.size == large.size
    assert_allclose(large.eigenpairs(3)[0], small.spectrum.values[:3], atol=1e-12)
    assert large.residual(lambda v: product(large, v)) < 1e-14


@pytest.mark.parametrize("kind", ["indefinite", "distinct"])
def test_what_a_phantom_costs(kind):
    """The limits are those of ten million parameters, which `make bench` measures."""
    script = [sys.executable, str(ROOT / "benchmarks" / "phantom_cost.py"), kind, "200000"]
    done = subprocess.run(script, capture_output=True, text=True, check=True, timeout=240)
    cost = json.loads(done.stdout)
    assert 190_000 < cost["P"] <= 200_000
    assert cost["seconds"] < 20
    assert cost["gigabytes"] < 1
    assert cost["spectrum"] < 1
    assert cost["residual"] < 1e-14


# --- planted faults ---------------------------------------------------------------------------


def product(p, v, batch=None, weight=None, drop=lambda n: False, module=None, dtype=None):
    """H v from batches, in the order of the parameters; the options plant faults. There are four
    batches unless told otherwise: 32, 32, 32 and 7, or 5, 5, 5 and 1.
    """
    batch = -(-len(p.inputs) * 32 // 103) if batch is None else batch
    module = p.model if module is None else module
    dtype = torch.float64 if dtype is None else dtype
    parameters = [w.detach().to(dtype).requires_grad_() for w in module.parameters()]
    parts = torch.from_numpy(v).to(dtype).split([w.numel() for w in parameters])
    direction = [part.reshape(w.shape) for part, w in zip(parts, parameters, strict=True)]
    batches = [pair for n, pair in enumerate(p.loader(batch)) if not drop(n)]
    total = torch.zeros(len(v), dtype=dtype)
    for x, y in batches:
        share = len(x) / sum(len(b) for b, _ in batches) if weight is None else weight(batches)
        loss = share * p.loss(outputs(parameters, x.to(dtype)), y.to(dtype))
        gradient = torch.autograd.grad(loss, parameters, create_graph=True)
        image = torch.autograd.grad(gradient, parameters, direction)
        total += torch.cat([part.reshape(-1) for part in image])
    return total.double().numpy()


def gauss_newton_product(p, v):
    x, y = p.data
    operator = gauss_newton_operator(lambda w: outputs(w, x), lambda z: p.loss(z, y), weights_of(p))
    return operator @ v


def gradient(p, theta):
    flat = torch.from_numpy(theta).requires_grad_()
    parts = flat.split([w.numel() for w in p.model.parameters()])
    weights = [part.reshape(w.shape) for part, w in zip(parts, p.model.parameters(), strict=True)]
    loss = p.loss(outputs(weights, p.data[0]), p.data[1])
    return torch.autograd.grad(loss, flat)[0].numpy()


def differences(p, v, eps):
    theta = np.concatenate([w.detach().numpy().ravel() for w in p.model.parameters()])
    return (gradient(p, theta + eps * v) - gradient(p, theta - eps * v)) / (2 * eps)


def block_diagonal(p, v):
    edges = np.cumsum([0, *(w.numel() for w in p.model.parameters())])
    image = np.zeros_like(v)
    for low, high in pairwise(edges):
        only = np.zeros_like(v)
        only[low:high] = v[low:high]
        image[low:high] = product(p, only)[low:high]
    return image


def in_transposed_order(p, v):
    """The weights of the last layer are read column by column."""
    shape, size = p.model[-1].weight.shape, p.model[-1].weight.numel()
    turned = np.concatenate([v[:-size], v[-size:].reshape(shape[::-1]).T.ravel()])
    return product(p, turned)


def nudged(p, v):
    other = deepcopy(p.model)
    with torch.no_grad():
        other[1].weight.mul_(1 + 1e-6)
    return product(p, v, module=other)


FAULTS = {
    "batches weighted equally": lambda p, v: product(p, v, weight=lambda b: 1 / len(b)),
    "last batch dropped": lambda p, v: product(p, v, drop=lambda n: n == 3),
    "first batch only": lambda p, v: product(p, v, drop=lambda n: n > 0),
    "first batch twice": lambda p, v: (product(p, v) + product(p, v, drop=lambda n: n > 0)) / 2,
    "batches added, not averaged": lambda p, v: product(p, v, weight=lambda b: 1.0),
    "twice the Hessian": lambda p, v: 2 * product(p, v),
    "mean over outputs": lambda p, v: p.factors["mean"] * product(p, v),
    "the other sign": lambda p, v: -product(p, v),
    "Gauss–Newton for Hessian": gauss_newton_product,
    "block diagonal for full": block_diagonal,
    "central differences": lambda p, v: differences(p, v, 1e-5),
    "coarse differences": lambda p, v: differences(p, v, 1e-3),
    "float32 inside": lambda p, v: product(p, v, dtype=torch.float32),
    "answer rounded to float32": lambda p, v: product(p, v).astype(np.float32),
    "last layer transposed": in_transposed_order,
    "damping left in": lambda p, v: product(p, v) + 1e-9 * v,
    "weights off by a millionth": nudged,
    "not a number": lambda p, v: np.nan * v,
}
# What a kind cannot show: at a minimum H = G; with two outputs the mean is half of the sum, as in
# the loss; a row is its transpose.
BLIND = {
    *(("Gauss–Newton for Hessian", kind) for kind in MINIMA),
    *(("mean over outputs", kind) for kind in ("outliers", "orders")),
    *(("last layer transposed", kind) for kind in ("gap", "sparse")),
}


@pytest.fixture(scope="module", name="family")
def one_phantom_of_every_kind():
    return [phantom(kind, 3000, seed=0) for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("parameters", "seed"), [(1100, 11), (4321, 12), (20_000, 13)])
def test_a_right_operator_passes_for_every_seed_size_and_split(kind, parameters, seed):
    p = phantom(kind, parameters, seed, samples=97)
    n = len(p.inputs)
    for batch in (n, n // 2, n - 1, -(-n // 3), 7):
        assert p.residual(lambda v, b=batch: product(p, v, batch=b)) < 1e-14


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_caught_by_every_kind_that_can_show_it(family, fault):
    for p in family:
        found = p.residual(lambda v, p=p: FAULTS[fault](p, v))
        assert found < 1e-13 if (fault, p.kind) in BLIND else found > 1e-12, p.kind


# --- short formats ----------------------------------------------------------------------------


@pytest.mark.parametrize("parameters", [48, 1344, 67_584, 1_056_768])
def test_exact32_is_bit_for_bit_the_same_in_both_formats(parameters):
    double, single = (phantom("exact32", parameters, 3, dtype) for dtype in ("float64", "float32"))
    assert double.size == parameters
    assert single.model[0].weight.dtype == single.data[0].dtype == torch.float32
    for one, other in zip(double.model.parameters(), single.model.parameters(), strict=True):
        assert torch.equal(one, other.double())
        assert torch.equal(one, one.bfloat16().double())
    for one, other in zip(double.data, single.data, strict=True):
        assert torch.equal(one, other.double())
    v = np.random.default_rng(0).integers(-1, 2, parameters).astype(float)
    exact = product(double, v, batch=16)
    for batch in (16, 8, 4):
        assert_array_equal(product(single, v, batch=batch, dtype=torch.float32), exact)


def test_a_rounded_phantom_moves_by_a_rounding():
    p = phantom("outliers", 3000, 0, dtype="float32")
    error = p.residual(lambda v: product(p, v))  # exact arithmetic on rounded weights
    assert 1e-9 < error < 1e-6


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("wobbly", 1000, 0), ValueError, "kind must be one of outliers, degenerate, .*'wobbly'"),
        (("outliers", 1000.0, 0), TypeError, "parameters must be an integer, got 1000.0"),
        (("outliers", 0, 0), ValueError, "parameters must be at least 1, got 0"),
        (("degenerate", 999, 0), ValueError, "parameters must be at least 1000 for .*got 999"),
        (("distinct", 11, 0), ValueError, "parameters must be at least 12 for .*got 11"),
        (("exact32", 47, 0), ValueError, "parameters must be at least 48 for .*got 47"),
        (("outliers", 10**13, 0), MemoryError, "P = 10000000000000 .* 480000000000000 bytes"),
        (("outliers", 1000, -1), ValueError, "seed must be at least 0, got -1"),
        (("outliers", 1000, 0, "float16"), ValueError, "dtype must be .*got 'float16'"),
        (("outliers", 1000, 0, "float64", 2), ValueError, "samples must be at least 3, got 2"),
    ],
)
def test_impossible_phantoms_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        phantom(*arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_the_smallest_phantom_of_a_kind_exists(kind):
    with pytest.raises(ValueError, match="parameters must be at least") as refusal:
        phantom(kind, 1, 0)
    least = int(str(refusal.value).split("at least ")[1].split()[0])
    smallest = phantom(kind, least, 0)
    assert smallest.size == smallest.spectrum.size <= least
    with pytest.raises(ValueError, match="parameters must be at least"):
        phantom(kind, least - 1, 0)


def test_a_product_of_the_wrong_shape_and_too_many_pairs_are_refused():
    p = phantom("gap", 1000, 0)
    with pytest.raises(ValueError, match=r"matvec must return shape \(962,\), got \(1,\)"):
        p.residual(lambda v: v[:1])
    with pytest.raises(ValueError, match="k must be at most the number of parameters 962, got 963"):
        p.eigenpairs(963)


# --- the file that other libraries copy -------------------------------------------------------


def load(path):
    spec = spec_from_file_location(path.stem, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


vendored = load(ROOT / "book" / "tools" / "spectral_phantom.py")


def test_the_vendored_file_is_as_generated_short_and_independent():
    text = (ROOT / "book" / "tools" / "spectral_phantom.py").read_text()
    assert text == load(ROOT / "benchmarks" / "vendor_phantom.py").text()
    assert len(text.splitlines()) <= 120
    imported = re.findall(r"^(?:import|from) (\w+)", text, re.M)
    assert imported == ["itertools", "numpy", "torch"]


@pytest.mark.parametrize("kind", vendored.KINDS)
def test_the_vendored_phantom_has_our_spectrum(kind):
    p = vendored.Phantom(kind, hidden=40, seed=3)
    x, hidden = p.x[: p.widths[0]], p.widths[1]
    learned = min(p.widths[0], p.widths[3])
    s = tuple(p.s[l, : min(p.widths[l], p.widths[l + 1])] for l in range(3))
    target = (p.x * p.s.prod(axis=0) - p.omega)[:learned]
    inside = phantoms._solved(AlignedChain(p.widths, s, x, target)).spectrum
    entries = p.spectrum()
    theirs = Spectrum([e[0] for e in entries], [e[1] for e in entries], [""] * len(entries))
    assert theirs.size == hidden * (hidden + p.widths[0] + p.widths[3])
    assert inside.distance(theirs) < 1e-14
    loss, parameters = p.loss(p.model(p.inputs), p.targets), list(p.model.parameters())
    gradient = torch.autograd.grad(loss, parameters, create_graph=True)

    def matvec(v):
        parts = torch.from_numpy(v).split([w.numel() for w in parameters])
        direction = [part.reshape(w.shape) for part, w in zip(parts, parameters, strict=True)]
        image = torch.autograd.grad(gradient, parameters, direction, retain_graph=True)
        return torch.cat([part.reshape(-1) for part in image]).numpy()

    assert p.residual(matvec) < 1e-14
    assert p.residual(lambda v: 2 * matvec(v)) > 0.5
