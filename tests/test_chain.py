"""LinearChain against truths that share nothing with it: products of perturbed layers, exact
second differences in integers, torch autograd, and numbers worked out by hand.
"""

import copy
import doctest
import pickle
import subprocess
import sys
import tracemalloc
from fractions import Fraction
from itertools import product as pairs

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from exacthessian import assembly
from exacthessian import chain as module
from exacthessian.chain import LinearChain, gauss_newton_rank
from exacthessian.spectrum import Spectrum, top_eigenvalues

CASES = {
    "one layer": (3, 4),
    "scalar": (1, 1),
    "scalars": (1, 1, 1, 1),
    "two layers": (3, 5, 2),
    "square": (4, 4, 4, 4),
    "narrowing": (6, 4, 3, 2),
    "widening": (2, 3, 4, 6),
    "bottleneck": (5, 1, 4),
    "two bottlenecks": (4, 2, 5, 1, 3),
    "scalar ends": (1, 5, 1),
    "wide middle": (2, 9, 3),
    "runs": (3, 3, 3, 5, 5, 5, 3),
}


def moments(rng, widths, rank=None):
    sample = rng.standard_normal((widths[0], widths[0] + 2 if rank is None else rank))
    return sample @ sample.T / sample.shape[1], rng.standard_normal((widths[-1], widths[0]))


def random_chain(widths, seed=0, ridge=0.0):
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal(shape) for shape in zip(widths[1:], widths, strict=False)]
    return LinearChain(weights, *moments(rng, widths), half_y2=2.0, ridge=ridge)


def integer_chain(widths, seed=0, ridge=0.0):
    """All arithmetic on such a chain is exact in float64."""
    rng = np.random.default_rng(seed)
    weights = [rng.integers(-2, 3, shape) for shape in zip(widths[1:], widths, strict=False)]
    root = rng.integers(-2, 3, (widths[0], widths[0]))
    cross = rng.integers(-3, 4, (widths[-1], widths[0]))
    return LinearChain(weights, root @ root.T, cross, half_y2=3.0, ridge=ridge)


def multiply(matrices):
    """The last matrix times … times the first."""
    result = np.eye(matrices[0].shape[1])
    for matrix in matrices:
        result = matrix @ result
    return result


def perturbations(chain):
    """(layer, matrix unit of that layer), in the order of the parameters."""
    for layer, weight in enumerate(chain.weights):
        for row in range(weight.shape[0]):
            for column in range(weight.shape[1]):
                unit = np.zeros(weight.shape)
                unit[row, column] = 1.0
                yield layer, unit


def replaced(chain, changes):
    """The end-to-end matrix with some layers replaced."""
    return multiply([changes.get(layer, weight) for layer, weight in enumerate(chain.weights)])


def parts_by_perturbation(chain):
    """Gauss–Newton and functional part by definition: ⟨∂_p W Σxx, ∂_q W⟩ and ⟨Ω, ∂_p∂_q W⟩."""
    residual = multiply(chain.weights) @ chain.sigma_xx - chain.sigma_yx
    units = list(perturbations(chain))
    first = [replaced(chain, {layer: unit}) for layer, unit in units]
    tangent = np.zeros((len(units), len(units)))
    curvature = np.zeros_like(tangent)
    for p, q in pairs(range(len(units)), repeat=2):
        (k, unit), (m, other) = units[p], units[q]
        tangent[p, q] = np.sum((first[p] @ chain.sigma_xx) * first[q])
        if k != m:
            curvature[p, q] = np.sum(residual * replaced(chain, {k: unit, m: other}))
        elif p == q:
            curvature[p, q] = chain.ridge[k]
    return tangent, curvature


def hessian_by_differences(chain):
    """Mixed second differences of the loss. The loss has degree at most 2 in each parameter and is
    quadratic in each layer, so they equal the second derivatives exactly.
    """
    theta, size = chain.parameters(), chain.size
    step = np.eye(size)

    def loss(displacement):
        return chain.with_parameters(theta + displacement).loss()

    hessian = np.zeros((size, size))
    for p, q in pairs(range(size), repeat=2):
        if p == q:
            hessian[p, p] = loss(step[p]) - 2 * loss(0 * step[p]) + loss(-step[p])
        else:
            plus, minus = step[p] + step[q], step[p] - step[q]
            hessian[p, q] = (loss(plus) - loss(minus) - loss(-minus) + loss(-plus)) / 4
    return hessian


def torch_loss(chain):
    shapes = [weight.shape for weight in chain.weights]
    sigma_xx, sigma_yx = (torch.tensor(np.array(a)) for a in (chain.sigma_xx, chain.sigma_yx))

    def loss(theta):
        parts = torch.split(theta, [rows * columns for rows, columns in shapes])
        value = torch.tensor(chain.half_y2, dtype=torch.float64)
        end_to_end = torch.eye(chain.widths[0], dtype=torch.float64)
        for part, shape, ridge in zip(parts, shapes, chain.ridge, strict=True):
            end_to_end = part.reshape(shape) @ end_to_end
            value = value + ridge * (part**2).sum() / 2
        value = value + torch.trace(end_to_end @ sigma_xx @ end_to_end.T) / 2
        return value - torch.trace(end_to_end @ sigma_yx.T)

    return loss


@pytest.fixture(params=["whole layers", "a row at a time", "three rows at a time"])
def route(request, monkeypatch):
    """Every way in which the writer may group the rows."""
    entries = {"a row at a time": 1, "three rows at a time": 300}
    if request.param in entries:
        monkeypatch.setattr(assembly, "CHUNK_ENTRIES", entries[request.param])
    return request.param


def test_doctests():
    for room in (module, assembly):
        assert doctest.testmod(room).failed == 0


# --- the Hessian ------------------------------------------------------------------------------


@pytest.mark.parametrize("widths", CASES.values(), ids=CASES)
def test_dense_parts_against_perturbed_products(widths, route):
    chain = random_chain(widths, ridge=np.arange(1.0, len(widths)) / 8)
    tangent, curvature = parts_by_perturbation(chain)
    scale = np.abs(tangent).max() + np.abs(curvature).max()
    assert_allclose(chain.gauss_newton(), tangent, atol=1e-14 * scale, rtol=0)
    assert_allclose(chain.functional(), curvature, atol=1e-14 * scale, rtol=0)
    assert_allclose(chain.hessian(), tangent + curvature, atol=1e-14 * scale, rtol=0)


@pytest.mark.parametrize("widths", [(2, 3), (2, 2, 2), (3, 1, 2), (2, 3, 2, 1), (1, 2, 1, 2)])
def test_hessian_equals_exact_second_differences(widths, route):
    chain = integer_chain(widths, ridge=[2.0**-layer for layer in range(1, len(widths))])
    assert_array_equal(chain.hessian(), hessian_by_differences(chain))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("widths", CASES.values(), ids=CASES)
def test_hessian_against_autograd(widths):
    chain = random_chain(widths, seed=1, ridge=0.3)
    theta = torch.tensor(chain.parameters())
    loss = torch_loss(chain)
    truth = torch.func.hessian(loss)(theta).numpy()
    assert_allclose(chain.hessian(), truth, atol=1e-14 * np.abs(truth).max(), rtol=0)
    slope = torch.func.grad(loss)(theta).numpy()
    assert_allclose(chain.gradient(), slope, atol=1e-14 * np.abs(slope).max(), rtol=0)
    assert_allclose(chain.loss(), loss(theta).item(), rtol=1e-13)


def test_one_layer_is_identity_times_moment(route):
    rng = np.random.default_rng(0)
    sigma_xx, sigma_yx = moments(rng, (3, 4))
    chain = LinearChain([rng.standard_normal((4, 3))], sigma_xx, sigma_yx, ridge=0.5)
    truth = np.kron(np.eye(4), chain.sigma_xx)
    assert_array_equal(chain.gauss_newton(), truth)
    assert_array_equal(chain.functional(), 0.5 * np.eye(12))
    assert_array_equal(chain.hessian(), truth + 0.5 * np.eye(12))


def test_two_layers_by_kronecker_products(route):
    """With I the identity of the hidden layer and K the commutation of indices, on paper:
    H_00 = VᵀV ⊗ Σ, H_11 = I ⊗ UΣUᵀ, H_10[(a, i), (j, b)] = V[a, j] (UΣ)[i, b] + I[i, j] Ω[a, b].
    """
    rng = np.random.default_rng(3)
    u, v = rng.standard_normal((3, 2)), rng.standard_normal((4, 3))
    sigma, cross = moments(rng, (2, 3, 4))
    chain = LinearChain([u, v], sigma, cross)
    omega = v @ u @ sigma - cross
    mixed = np.kron(v, u @ sigma) + np.einsum("ij,ab->aijb", np.eye(3), omega).reshape(12, 6)
    truth = np.block(
        [[np.kron(v.T @ v, sigma), mixed.T], [mixed, np.kron(np.eye(4), u @ sigma @ u.T)]]
    )
    assert_allclose(chain.hessian(), truth, atol=1e-13)


def test_three_scalar_layers_by_hand(route):
    """½s(uvw)² − yuvw at u, v, w = 2, 3, 5, s = 7, y = 11."""
    chain = LinearChain([[[2]], [[3]], [[5]]], [[7]], [[11]])
    u, v, w, s, y = 2, 3, 5, 7, 11
    p = u * v * w
    truth = [
        [s * (v * w) ** 2, 2 * s * p * w - y * w, 2 * s * p * v - y * v],
        [2 * s * p * w - y * w, s * (u * w) ** 2, 2 * s * p * u - y * u],
        [2 * s * p * v - y * v, 2 * s * p * u - y * u, s * (u * v) ** 2],
    ]
    assert_array_equal(chain.hessian(), truth)
    assert_array_equal(
        chain.gradient(), [(s * p - y) * v * w, (s * p - y) * u * w, (s * p - y) * u * v]
    )
    assert chain.loss() == s * p**2 / 2 - y * p


@pytest.mark.parametrize("dead", [[0], [1], [2], [0, 1], [0, 1, 2]])
def test_zero_layers(dead, route):
    chain = random_chain((3, 2, 4, 2))
    weights = [0 * w if layer in dead else w for layer, w in enumerate(chain.weights)]
    chain = LinearChain(weights, chain.sigma_xx, chain.sigma_yx)
    tangent, curvature = parts_by_perturbation(chain)
    assert_allclose(chain.gauss_newton(), tangent, atol=1e-13)
    assert_allclose(chain.functional(), curvature, atol=1e-13)
    assert_allclose(chain.hvp(np.eye(chain.size)), tangent + curvature, atol=1e-13)


widths_of = st.lists(st.integers(1, 5), min_size=2, max_size=5).map(tuple)
seeds = st.integers(0, 2**32 - 1)


@settings(deadline=None, max_examples=60)
@given(widths_of, seeds, st.sampled_from([0.0, 0.7]))
def test_the_fast_writer_is_the_readable_sum(widths, seed, ridge):
    chain = random_chain(widths, seed, ridge)
    hessian, tangent, curvature = chain.hessian(), chain.gauss_newton(), chain.functional()
    scale = np.abs(tangent).max() + np.abs(curvature).max()
    assert_allclose(hessian, tangent + curvature, atol=1e-14 * scale, rtol=0)
    for matrix in (hessian, tangent, curvature):
        assert_allclose(matrix, matrix.T, atol=1e-15 * scale, rtol=0)
    assert np.linalg.eigvalsh(tangent).min() >= -1e-12 * scale


@pytest.mark.parametrize("widths", [(24, 23, 25, 22), (33, 33, 33), (64, 1, 64), (1, 97, 1, 31)])
def test_the_fast_writer_is_the_readable_sum_for_larger_chains(widths, route):
    chain = random_chain(widths, ridge=np.arange(1.0, len(widths)))
    wanted = chain.gauss_newton() + chain.functional()
    found = chain.hessian()
    assert_allclose(found, wanted, atol=1e-13 * np.abs(wanted).max(), rtol=0)
    assert_allclose(found, found.T, atol=1e-15 * np.abs(wanted).max(), rtol=0)


def exact_rank(matrix):
    """The rank of a matrix of integers, by elimination in rational numbers."""
    rows = [[Fraction(int(entry)) for entry in row] for row in matrix]
    rank = 0
    for column in range(len(rows[0])):
        pivot = next((row for row in rows[rank:] if row[column]), None)
        if pivot is None:
            continue
        rows.remove(pivot)
        rows.insert(rank, pivot)
        for row in rows[rank + 1 :]:
            factor = row[column] / pivot[column]
            row[:] = [entry - factor * above for entry, above in zip(row, pivot, strict=True)]
        rank += 1
    return rank


@settings(deadline=None, max_examples=60)
@given(widths_of, seeds, st.integers(0, 2**5 - 1))
def test_rank_of_the_gauss_newton_part(widths, seed, weak):
    """Layers and moments of any rank, in whole numbers, so that the truth is exact."""
    rng = np.random.default_rng(seed)
    weights = [
        np.outer(rng.integers(-2, 3, rows), rng.integers(-2, 3, columns))
        if weak >> layer & 1
        else rng.integers(-2, 3, (rows, columns))
        for layer, (rows, columns) in enumerate(zip(widths[1:], widths, strict=False))
    ]
    root = rng.integers(-2, 3, (widths[0], rng.integers(1, widths[0] + 1)))
    chain = LinearChain(weights, root @ root.T, np.zeros((widths[-1], widths[0])))
    assert gauss_newton_rank(chain) == exact_rank(chain.gauss_newton())


def test_rank_of_a_product_that_almost_cancels():
    """Two layers of rank one that nearly annihilate each other: rounding must not add a rank."""
    rng = np.random.default_rng(0)
    first, last = rng.standard_normal((4, 2)), rng.standard_normal((5, 1))
    image, row = rng.standard_normal((4, 1)), rng.standard_normal((1, 4))
    almost_normal = row - (1 - 1e-6) * (row @ image) / (image.T @ image) * image.T
    weights = [first, image @ row, rng.standard_normal((4, 1)) @ almost_normal, last @ row]
    chain = LinearChain(weights, np.eye(2), np.zeros((5, 2)))
    assert gauss_newton_rank(chain) == 1 * 2 + (5 - 1) * 1


@settings(deadline=None, max_examples=60)
@given(widths_of, seeds, st.integers(0, 4))
def test_products_without_the_matrix(widths, seed, count):
    chain = random_chain(widths, seed, ridge=0.5)
    rng = np.random.default_rng(seed)
    v, several = rng.standard_normal(chain.size), rng.standard_normal((chain.size, count))
    hessian, operator = chain.hessian(), chain.operator()
    close = {"atol": 1e-13 * np.abs(hessian).max() * chain.size, "rtol": 0}
    assert_allclose(chain.hvp(v), hessian @ v, **close)
    assert_allclose(chain.hvp(several), hessian @ several, **close)
    for image in (operator @ v, operator.matvec(v), operator.rmatvec(v), operator.H @ v):
        assert_allclose(image, hessian @ v, **close)
    assert_allclose(operator @ several, hessian @ several, **close)
    assert_allclose(operator.matvec(v[:, None])[:, 0], hessian @ v, **close)
    assert chain.hvp(v).shape == v.shape
    assert chain.hvp(several).shape == several.shape


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 4), min_size=3, max_size=5).map(tuple), seeds)
def test_rescaling_symmetry(widths, seed):
    """The loss does not change under W_{k+1} G⁻¹, G W_k, so H (Xθ) = −Xᵀ∇ for its generators."""
    chain = random_chain(widths, seed)
    rng = np.random.default_rng(seed)
    slopes = np.split(chain.gradient(), np.cumsum([w.size for w in chain.weights])[:-1])
    slopes = [s.reshape(w.shape) for s, w in zip(slopes, chain.weights, strict=True)]
    for k in range(chain.depth - 1):
        generator = rng.standard_normal((widths[k + 1],) * 2)
        moved = [np.zeros_like(w) for w in chain.weights]
        pulled = [np.zeros_like(w) for w in chain.weights]
        moved[k], moved[k + 1] = generator @ chain.weights[k], -chain.weights[k + 1] @ generator
        pulled[k], pulled[k + 1] = generator.T @ slopes[k], -slopes[k + 1] @ generator.T
        direction = np.concatenate([part.ravel() for part in moved])
        answer = -np.concatenate([part.ravel() for part in pulled])
        hessian = chain.hessian()
        scale = np.abs(hessian).max() * np.abs(direction).sum()
        assert_allclose(hessian @ direction, answer, atol=1e-13 * scale, rtol=0)
        assert_allclose(chain.hvp(direction), answer, atol=1e-13 * scale, rtol=0)


@settings(deadline=None, max_examples=30)
@given(widths_of, seeds)
def test_spectrum_does_not_depend_on_hidden_bases(widths, seed):
    chain = random_chain(widths, seed, ridge=0.2)
    rng = np.random.default_rng(seed)
    bases = [np.linalg.qr(rng.standard_normal((width, width)))[0] for width in widths]
    bases[0], bases[-1] = np.eye(widths[0]), np.eye(widths[-1])
    turned = [bases[k + 1] @ w @ bases[k].T for k, w in enumerate(chain.weights)]
    other = LinearChain(turned, chain.sigma_xx, chain.sigma_yx, ridge=0.2)
    first, second = (Spectrum.from_matrix(c.hessian()) for c in (chain, other))
    assert first.distance(second) < 1e-12


def test_top_eigenvalues_of_the_operator():
    chain = random_chain((6, 7, 8, 5))
    top = top_eigenvalues(chain.operator(), 4, np.random.default_rng(0))
    dense = Spectrum.from_matrix(chain.hessian()).values
    assert_allclose(top.values, dense[:4], rtol=1e-12)


# --- loss, gradient, descent ------------------------------------------------------------------


@pytest.mark.parametrize("widths", [(2, 3), (2, 2, 2), (3, 1, 2), (2, 3, 2, 1)])
def test_gradient_equals_exact_differences(widths):
    chain = integer_chain(widths, ridge=[2.0**-layer for layer in range(1, len(widths))])
    theta = chain.parameters()
    truth = [
        (chain.with_parameters(theta + e).loss() - chain.with_parameters(theta - e).loss()) / 2
        for e in np.eye(chain.size)
    ]
    assert_array_equal(chain.gradient(), truth)


@settings(deadline=None, max_examples=40)
@given(widths_of, seeds, st.integers(1, 6))
def test_moments_of_data_give_the_mean_loss(widths, seed, samples):
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal(shape) for shape in zip(widths[1:], widths, strict=False)]
    x, y = rng.standard_normal((widths[0], samples)), rng.standard_normal((widths[-1], samples))
    chain = LinearChain.from_data(x, y, weights, ridge=0.25)
    errors = multiply(weights) @ x - y
    decay = 0.25 * sum(np.sum(w**2) for w in weights) / 2
    truth = np.mean(np.sum(errors**2, axis=0)) / 2 + decay
    assert_allclose(chain.loss(), truth, rtol=1e-11)
    assert_allclose(
        chain.residual, errors @ x.T / samples, atol=1e-12 * (1 + np.abs(x).max() ** 2 * truth)
    )
    assert_array_equal(chain.sigma_xx, chain.sigma_xx.T)


def test_gradient_step_and_parameters():
    chain = random_chain((3, 2, 4), ridge=[0.1, 0.2])
    moved = chain.step(0.01)
    assert_array_equal(moved.parameters(), chain.parameters() - 0.01 * chain.gradient())
    assert moved.loss() < chain.loss()
    assert moved.sigma_xx is chain.sigma_xx
    assert (moved.half_y2, moved.ridge) == (chain.half_y2, chain.ridge)
    for weight, like in zip(moved.weights, chain.weights, strict=True):
        assert weight.shape == like.shape
    same = chain.with_parameters(chain.parameters())
    for weight, like in zip(same.weights, chain.weights, strict=True):
        assert_array_equal(weight, like)


def test_sizes():
    chain = random_chain((3, 2, 4), ridge=0.5)
    assert (chain.depth, chain.widths, chain.size) == (2, (3, 2, 4), 14)
    assert chain.ridge == (0.5, 0.5)
    assert repr(chain) == "LinearChain(widths=(3, 2, 4), size=14)"
    assert_allclose(chain.product, chain.weights[1] @ chain.weights[0])
    assert_allclose(chain.residual, chain.product @ chain.sigma_xx - chain.sigma_yx)


# --- types, freezing, memory ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint16, np.float16, np.float32])
def test_everything_is_float64(dtype):
    weights = [np.ones((2, 3), dtype), np.full((2, 2), 2, dtype)]
    chain = LinearChain(weights, np.eye(3, dtype=dtype), np.ones((2, 3), dtype), 1, 2)
    arrays = (
        *chain.weights,
        chain.sigma_xx,
        chain.sigma_yx,
        chain.product,
        chain.residual,
        chain.parameters(),
        chain.gradient(),
        chain.hessian(),
        chain.gauss_newton(),
        chain.functional(),
        chain.hvp(np.ones(10, dtype)),
        chain.hvp(np.ones((10, 2), dtype)),
        chain.operator() @ np.ones(10),
        chain.step(1).parameters(),
        chain.with_parameters(np.ones(10, dtype)).weights[0],
        LinearChain.from_data(np.ones((3, 2), dtype), np.ones((2, 2), dtype), weights).sigma_xx,
    )
    assert {array.dtype for array in arrays} == {np.dtype(np.float64)}
    assert chain.operator().dtype == np.float64
    assert type(chain.loss()) is type(chain.half_y2) is float
    assert [type(value) for value in chain.ridge] == [float, float]


def test_integers_are_converted_exactly():
    chain = LinearChain([[[2**53]]], [[1]], [[-(2**53)]])
    assert chain.weights[0].item() == 2.0**53
    with pytest.raises(ValueError, match=r"weights\[0\] holds an integer beyond ±2\*\*53"):
        LinearChain([[[2**53 + 1]]], [[1]], [[0]])


def test_chain_is_frozen_and_owns_its_arrays():
    weights, sigma_xx, sigma_yx = [np.ones((2, 2)), np.ones((1, 2))], np.eye(2), np.ones((1, 2))
    chain = LinearChain(weights, sigma_xx, sigma_yx)
    for array in (*weights, sigma_xx, sigma_yx):
        array[...] = 7.0
    weights.append(np.ones((1, 1)))
    assert chain.hessian()[0, 0] == 1.0
    assert chain.depth == 2
    moved = chain.step(0.1)
    data = LinearChain.from_data([[1.0]], [[1.0]], [[[1.0]]])
    for own in (chain, moved, data):
        for array in (*own.weights, own.sigma_xx, own.sigma_yx):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1.0
        for field in ("weights", "sigma_xx", "sigma_yx", "half_y2", "ridge"):
            with pytest.raises(AttributeError):
                setattr(own, field, None)
    before = chain.parameters()
    for fresh in (chain.parameters(), chain.product, chain.residual, chain.gradient()):
        fresh[...] = 5.0
    assert_array_equal(chain.parameters(), before)


def test_chains_are_compared_by_identity():
    chain = random_chain((2, 2))
    assert len({chain, chain, copy.copy(chain)}) == 2


def test_single_layer_product_is_a_copy():
    chain = LinearChain([[[1.0, 2.0]]], np.eye(2), [[0.0, 0.0]])
    chain.product[0, 0] = 9.0
    assert chain.weights[0][0, 0] == 1.0


def test_copies_and_pickles():
    chain = random_chain((2, 3, 2), ridge=0.1)
    for other in (copy.deepcopy(chain), pickle.loads(pickle.dumps(chain))):
        assert_array_equal(other.hessian(), chain.hessian())


@pytest.mark.parametrize("widths", [(3, 4, 3), (2, 2, 2, 2), (1, 6, 1), (3, 2)])
def test_out_is_filled_and_returned(widths, route):
    buffer = None
    for seed in range(2):
        chain = random_chain(widths, seed, ridge=0.5)
        buffer = np.full((chain.size, chain.size), np.nan) if buffer is None else buffer
        assert chain.hessian(out=buffer) is buffer
        assert_array_equal(buffer, chain.hessian())


@pytest.mark.parametrize(
    "out",
    [
        np.empty((4, 5)),
        np.empty((4, 4), np.float32),
        np.empty((4, 4), order="F"),
        np.empty((4, 8))[:, ::2],
        np.broadcast_to(0.0, (4, 4)),
        [[0.0] * 4] * 4,
    ],
)
def test_out_is_checked(out):
    message = r"out must be a writeable C-contiguous float64 array \(4, 4\)"
    with pytest.raises(ValueError, match=message):
        random_chain((2, 1, 2)).hessian(out=out)


def peak_of(call):
    call()
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("widths", [(20,) * 4, (10, 20, 16), (8,) * 12, (150, 4, 150)], ids=str)
def test_memory_is_the_result_and_little_more(widths):
    chain = random_chain(widths)
    size = 8 * chain.size**2
    assert size <= peak_of(chain.hessian) <= 1.2 * size
    buffer = np.empty((chain.size, chain.size))
    assert peak_of(lambda: chain.hessian(out=buffer)) <= 0.2 * size


def test_products_do_not_form_the_matrix():
    chain = random_chain((30, 30, 30))
    v = np.ones(chain.size)
    matrix = 8 * chain.size**2
    assert peak_of(lambda: chain.hvp(v)) < matrix / 50
    assert peak_of(lambda: chain.operator() @ v) < matrix / 50
    assert peak_of(chain.gradient) < matrix / 50


def test_a_matrix_beyond_memory_is_refused():
    n = 1_000_000
    chain = LinearChain([np.ones((n, 1)), np.ones((1, n))], [[1.0]], [[1.0]])
    with pytest.raises(MemoryError, match=f"P = {2 * n} parameters needs {8 * (2 * n) ** 2} bytes"):
        chain.hessian()
    assert_allclose(chain.hvp(np.ones(2 * n)), 3.0 * n - 1, rtol=1e-14)


def test_memory_limit_is_that_of_the_machine(monkeypatch):
    chain = random_chain((2, 2))
    monkeypatch.setattr(assembly, "_memory", lambda: 8 * 16 - 1)
    with pytest.raises(MemoryError, match="P = 4 parameters needs 128 bytes"):
        chain.hessian()
    assert chain.hessian(out=np.empty((4, 4))).shape == (4, 4)
    monkeypatch.undo()
    monkeypatch.delattr(assembly.os, "sysconf")
    assert assembly._memory() == np.inf


# --- errors -----------------------------------------------------------------------------------

W = np.ones((2, 3))
V = np.ones((4, 2))
S = np.eye(3)
Y = np.ones((4, 3))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            ([W, V.T], S, Y),
            ValueError,
            r"weights\[1\] must have 2 columns to match weights\[0\] \(2×3\), got 2×4",
        ),
        (([], S, Y), ValueError, "weights must hold at least one array, got none"),
        ((3.0, S, Y), TypeError, "weights must be a sequence of arrays, got 3.0"),
        (("ab", S, Y), TypeError, "weights must be a sequence of arrays, got 'ab'"),
        ((True, S, Y), TypeError, "weights must be a sequence of arrays, got True"),
        ((W, S, Y), ValueError, r"weights\[0\] must have 2 axes, got shape \(3,\)"),
        (([W, np.ones((0, 2))], S, Y), ValueError, r"weights\[1\] must not be empty, got 0×2"),
        (([np.ones((2, 0))], S, Y), ValueError, r"weights\[0\] must not be empty, got 2×0"),
        (([W, V * np.nan], S, Y), ValueError, r"weights\[1\] must be finite, got NaN or infinity"),
        (([W * np.inf, V], S, Y), ValueError, r"weights\[0\] must be finite"),
        (
            ([W * 1j, V], S, Y),
            TypeError,
            r"weights\[0\] must hold real numbers, got dtype complex128",
        ),
        (([W > 0, V], S, Y), TypeError, r"weights\[0\] must hold real numbers, got dtype bool"),
        (([[["a"]]], S, Y), TypeError, r"weights\[0\] must hold real numbers, got dtype <U1"),
        (([[[1, 2], [3]]], S, Y), ValueError, r"weights\[0\] must be an array of real numbers"),
        (
            ([W, V], np.eye(4), Y),
            ValueError,
            r"sigma_xx must be 3×3 to match weights\[0\] \(2×3\), got 4×4",
        ),
        (([W, V], np.ones((3, 2)), Y), ValueError, "sigma_xx must be 3×3 .* got 3×2"),
        (([W, V], np.ones(3), Y), ValueError, r"sigma_xx must have 2 axes, got shape \(3,\)"),
        (
            ([W, V], S + np.eye(3, k=1), Y),
            ValueError,
            r"sigma_xx must be symmetric, but max\|A − Aᵀ\| = 1",
        ),
        (
            ([W, V], S + 1e-9 * np.eye(3, k=1), Y),
            ValueError,
            "sigma_xx must be symmetric.* = 1e-09",
        ),
        (
            ([W, V], np.diag([1, 1, -0.5]), Y),
            ValueError,
            "sigma_xx must be positive semidefinite, but has eigenvalue -0.5",
        ),
        (
            ([W, V], np.diag([1, 1, -1e-9]), Y),
            ValueError,
            "sigma_xx must be positive semidefinite.* -1e-09",
        ),
        (([W, V], S * np.nan, Y), ValueError, "sigma_xx must be finite"),
        (([W, V], S * 1j, Y), TypeError, "sigma_xx must hold real numbers"),
        (
            ([W, V], S, Y.T),
            ValueError,
            r"sigma_yx must be 4×3 to match weights\[1\] \(4×2\) and weights\[0\] \(2×3\), got 3×4",
        ),
        (([W, V], S, np.ones(3)), ValueError, r"sigma_yx must have 2 axes, got shape \(3,\)"),
        (([W, V], S, Y * np.inf), ValueError, "sigma_yx must be finite"),
        (([W, V], S, "y"), TypeError, "sigma_yx must hold real numbers, got dtype <U1"),
        (([W, V], S, Y, -1.0), ValueError, "half_y2 must be finite and not negative, got -1.0"),
        (([W, V], S, Y, np.nan), ValueError, "half_y2 must be finite and not negative, got nan"),
        (([W, V], S, Y, "1"), TypeError, "half_y2 must be a number, got '1'"),
        (([W, V], S, Y, True), TypeError, "half_y2 must be a number, got True"),
        (
            ([W, V], S, Y, 0, [1, 2, 3]),
            ValueError,
            r"ridge must be one number or 2, one for each layer, got shape \(3,\)",
        ),
        (
            ([W, V], S, Y, 0, [[1, 2]]),
            ValueError,
            r"ridge must be one number or 2, .* got shape \(1, 2\)",
        ),
        (([W, V], S, Y, 0, -0.5), ValueError, "ridge must not be negative, got -0.5"),
        (([W, V], S, Y, 0, [1.0, -2.0]), ValueError, "ridge must not be negative, got -2.0"),
        (([W, V], S, Y, 0, np.inf), ValueError, "ridge must be finite"),
        (([W, V], S, Y, 0, "1"), TypeError, "ridge must hold real numbers, got dtype <U1"),
        (([W, V], S, Y, 0, False), TypeError, "ridge must hold real numbers, got dtype bool"),
    ],
)
def test_bad_fields_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        LinearChain(*arguments)


def test_rounding_of_the_moment_is_accepted():
    skew = np.array([[1.0, 1.0 + 4e-16], [1.0, 1.0]])
    chain = LinearChain([np.ones((1, 2))], skew, np.ones((1, 2)))
    assert_array_equal(chain.sigma_xx, chain.sigma_xx.T)
    rank_one = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) / 7
    assert LinearChain([W], rank_one, np.ones((2, 3))).size == 6
    assert LinearChain([W], np.zeros((3, 3)), np.ones((2, 3))).gauss_newton().max() == 0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            (np.ones((3, 5)), np.ones((4, 6))),
            ValueError,
            "X and Y must have the same number of columns, at least 1, got 3×5 and 4×6",
        ),
        (
            (np.ones((3, 0)), np.ones((4, 0))),
            ValueError,
            "X and Y must have the same number of columns, at least 1, got 3×0 and 4×0",
        ),
        ((np.ones((2, 5)), np.ones((4, 5))), ValueError, r"sigma_yx must be 4×3 .* got 4×2"),
        ((np.ones((3, 5)), np.ones((2, 5))), ValueError, r"sigma_yx must be 4×3 .* got 2×3"),
        ((np.ones(3), np.ones((4, 5))), ValueError, r"X must have 2 axes, got shape \(3,\)"),
        ((np.ones((3, 5)), np.full((4, 5), np.nan)), ValueError, "Y must be finite"),
        (
            (np.ones((3, 5), bool), np.ones((4, 5))),
            TypeError,
            "X must hold real numbers, got dtype bool",
        ),
    ],
)
def test_bad_data_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        LinearChain.from_data(*arguments, weights=[W, V])


CHAIN = LinearChain([W, V], S, Y)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: CHAIN.with_parameters(np.ones(13)),
            ValueError,
            "theta must have length 14, got 13",
        ),
        (
            lambda: CHAIN.with_parameters(np.ones((14, 1))),
            ValueError,
            r"theta must have 1 axes, got shape \(14, 1\)",
        ),
        (lambda: CHAIN.with_parameters(np.full(14, np.nan)), ValueError, "theta must be finite"),
        (
            lambda: CHAIN.with_parameters(np.ones(14) * 1j),
            TypeError,
            "theta must hold real numbers",
        ),
        (
            lambda: CHAIN.hvp(np.ones(13)),
            ValueError,
            r"v must have shape \(14,\) or \(14, m\), got \(13,\)",
        ),
        (lambda: CHAIN.hvp(np.ones((2, 14))), ValueError, r"v must have shape .* got \(2, 14\)"),
        (
            lambda: CHAIN.hvp(np.ones((14, 1, 1))),
            ValueError,
            r"v must have shape .* got \(14, 1, 1\)",
        ),
        (lambda: CHAIN.hvp(1.0), ValueError, r"v must have shape .* got \(\)"),
        (lambda: CHAIN.step(0.0), ValueError, "eta must be positive, got 0"),
        (
            lambda: CHAIN.step(-0.1),
            ValueError,
            "eta must be finite and not negative, got -0.1",
        ),
        (
            lambda: CHAIN.step(np.nan),
            ValueError,
            "eta must be finite and not negative, got nan",
        ),
        (lambda: CHAIN.step("0.1"), TypeError, "eta must be a number, got '0.1'"),
        (lambda: CHAIN.step(True), TypeError, "eta must be a number, got True"),
        (
            lambda: CHAIN.step(1e308),
            ValueError,
            r"eta = 1e\+308 makes the parameters overflow",
        ),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_closed_forms_do_not_import_torch():
    code = "import sys, exacthessian.chain; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
