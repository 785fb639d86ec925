"""Aligned chains against the dense Hessian and the matrix dynamics of the same chain."""

import time
import tracemalloc
from dataclasses import FrozenInstanceError, fields, replace
from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import block_diag, expm
from scipy.optimize import linear_sum_assignment

from exacthessian.aligned import AlignedChain, multipliers
from exacthessian.alignment import _leak, _maps, _refined
from exacthessian.chain import LinearChain
from exacthessian.spectrum import Spectrum

Array = NDArray[np.float64]


def orthogonal(rng: np.random.Generator, size: int) -> Array:
    return np.linalg.qr(rng.standard_normal((size, size)))[0]


def bases_of(rng: np.random.Generator, widths: tuple[int, ...]) -> tuple[Array, ...]:
    return tuple(orthogonal(rng, width) for width in widths)


@st.composite
def aligned_chains(draw: st.DrawFn, deepest: int = 7, widest: int = 7) -> AlignedChain:
    """Any depth, widths with bottlenecks, zeros, repeated and negative values, random bases."""
    widths = tuple(draw(st.lists(st.integers(1, widest), min_size=2, max_size=deepest + 1)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    zeros = draw(st.sampled_from([0.0, 0.2, 0.5, 0.9]))
    whole = draw(st.booleans())

    def values(size: int) -> Array:
        drawn = rng.uniform(-1.5, 1.5, size)
        return np.where(rng.random(size) < zeros, 0.0, drawn.round() if whole else drawn)

    return AlignedChain(
        widths=widths,
        singular_values=tuple(values(min(pair)) for pair in pairwise(widths)),
        data=np.abs(values(widths[0])),
        target=values(min(widths[0], widths[-1])),
        half_y2=rng.uniform(0, 3),
        ridge=rng.uniform(0, 1, len(widths) - 1) if draw(st.booleans()) else 0.0,
        bases=bases_of(rng, widths),
    )


def matrices(chain: LinearChain) -> list[Array]:
    return [*chain.weights, chain.sigma_xx, chain.sigma_yx]


def assert_same_chain(first: LinearChain, second: LinearChain, tol: float) -> None:
    for one, other in zip(matrices(first), matrices(second), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tol * max(1.0, np.abs(other).max()))
    assert first.half_y2 == second.half_y2
    assert first.ridge == second.ridge


def assert_same_spectrum(first: Spectrum, second: Spectrum) -> None:
    tol = 1e-12 * max(1.0, second.norm)
    np.testing.assert_allclose(first.expand(), second.expand(), rtol=0, atol=tol)


def index_pairs(chain: AlignedChain) -> list[tuple[int, int]]:
    return list(combinations_with_replacement(range(1, max(chain.widths) + 1), 2))


def coordinates_of(chain: AlignedChain, i: int, j: int) -> list[tuple[int, int, int]]:
    """The coordinates (l, row, column) of the block {i, j} that exist, counted from 1."""
    upper = [(layer, i, j) for layer in range(1, chain.depth + 1)]
    lower = [(layer, j, i) for layer in range(1, chain.depth + 1)]
    return [
        (layer, row, column)
        for layer, row, column in (upper if i == j else upper + lower)
        if row <= chain.widths[layer] and column <= chain.widths[layer - 1]
    ]


@given(aligned_chains())
@settings(max_examples=300, deadline=None)
def test_spectrum_is_that_of_the_dense_hessian(chain: AlignedChain) -> None:
    spectrum = chain.spectrum()
    assert spectrum.size == chain.size
    assert np.all(np.diff(spectrum.values) <= 0)
    assert_same_spectrum(spectrum, Spectrum.from_matrix(chain.to_chain().hessian()))


@given(aligned_chains(deepest=5, widest=5))
@settings(max_examples=60, deadline=None)
def test_blocks_are_the_rotated_hessian_entry_by_entry(chain: AlignedChain) -> None:
    assert chain.bases is not None
    rotation = block_diag(*(np.kron(left, right) for right, left in pairwise(chain.bases)))
    rotated = rotation.T @ chain.to_chain().hessian() @ rotation
    offsets = np.cumsum([0, *(right * left for right, left in pairwise(chain.widths))])
    assembled, met = np.zeros_like(rotated), np.zeros(chain.size, dtype=int)
    for i, j in index_pairs(chain):
        coordinates = coordinates_of(chain, i, j)
        block = chain.block(i, j)
        assert block.shape == (len(coordinates), len(coordinates))
        assert len(coordinates) <= (chain.depth if i == j else 2 * chain.depth)
        position = [
            offsets[layer - 1] + (row - 1) * chain.widths[layer - 1] + column - 1
            for layer, row, column in coordinates
        ]
        assembled[np.ix_(position, position)] = block
        met[position] += 1
    assert np.all(met == 1)
    np.testing.assert_allclose(
        assembled, rotated, rtol=0, atol=1e-12 * max(1.0, abs(rotated).max())
    )


@given(aligned_chains(deepest=4, widest=4))
@settings(max_examples=40, deadline=None)
def test_labels_name_the_block_of_each_eigenvalue(chain: AlignedChain) -> None:
    spectrum = chain.spectrum()
    census = 0
    for i, j in index_pairs(chain):
        block = chain.block(i, j)
        np.testing.assert_array_equal(chain.block(j, i), block)
        if len(block):
            own = spectrum.select(f"{{{i}}}" if i == j else f"{{{i},{j}}}")
            expected = np.linalg.eigvalsh(block)[::-1]
            np.testing.assert_allclose(own.values, expected, rtol=0, atol=1e-12 * max(1, own.norm))
        census += len(block)
    assert census == spectrum.size == chain.size


@given(aligned_chains(deepest=5, widest=5), st.data())
@settings(max_examples=60, deadline=None)
def test_eigenvectors_solve_their_equation_and_are_orthonormal(
    chain: AlignedChain, data: st.DataObject
) -> None:
    k = data.draw(st.sampled_from([1, (chain.size + 1) // 2, chain.size]))
    values, vectors = chain.eigenvectors(k)
    hessian = chain.to_chain().hessian()
    scale = max(1.0, np.abs(hessian).max())
    assert vectors.shape == (chain.size, k)
    np.testing.assert_allclose(values, chain.spectrum().values[:k], rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(hessian @ vectors, vectors * values, rtol=0, atol=1e-11 * scale)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(k), rtol=0, atol=1e-12)


def test_eigenvectors_without_bases_are_those_with_identities() -> None:
    rng = np.random.default_rng(0)
    chain = AlignedChain.balanced((3, 4, 2), lam=rng.uniform(1, 2, 2), target=[5.0])
    named = replace(chain, bases=tuple(np.eye(width) for width in chain.widths))
    np.testing.assert_array_equal(chain.eigenvectors(5)[1], named.eigenvectors(5)[1])
    assert_same_chain(chain.to_chain(), named.to_chain(), tol=0)


@given(aligned_chains())
@settings(max_examples=60, deadline=None)
def test_loss_product_and_residual_are_those_of_the_matrices(chain: AlignedChain) -> None:
    matrix = chain.to_chain()
    assert chain.bases is not None
    first, last = chain.bases[0], chain.bases[-1]
    assert chain.loss() == pytest.approx(matrix.loss(), rel=1e-12, abs=1e-12)
    for diagonal, full in ((chain.product, matrix.product), (chain.residual, matrix.residual)):
        inner = last.T @ full @ first
        np.testing.assert_allclose(diagonal, np.diagonal(inner), rtol=0, atol=1e-12)
        assert np.abs(inner).sum() == pytest.approx(np.abs(diagonal).sum(), abs=1e-11)


@pytest.mark.parametrize("widths", [(3, 4), (4, 3, 5), (6, 9, 2, 8, 7), (2, 3, 3, 3, 3, 2)])
def test_step_is_gradient_descent_on_the_matrices(widths: tuple[int, ...]) -> None:
    # Away from saddles, where the matrices would leave the aligned form by rounding errors alone.
    rng = np.random.default_rng(len(widths))
    reachable = np.arange(min(widths[0], widths[-1])) < min(widths)
    chain = AlignedChain(
        widths,
        tuple(rng.uniform(0.3, 1, min(pair)) for pair in pairwise(widths)),
        data=rng.uniform(0.5, 1, widths[0]),
        target=reachable * rng.uniform(0.5, 1, len(reachable)),
        ridge=rng.uniform(0, 0.01, len(widths) - 1),
        bases=bases_of(rng, widths),
    )
    reduced, matrix = chain, chain.to_chain()
    for _ in range(1000):
        reduced, matrix = reduced.step(0.05), matrix.step(0.05)
    assert reduced.loss() < chain.loss()
    assert_same_chain(reduced.to_chain(), matrix, tol=1e-12)


def two_cycle(widths: tuple[int, ...], eta: float, target: list[float]) -> list[AlignedChain]:
    """The 2-cycle that balanced gradient descent beyond the edge of stability settles on."""
    state = AlignedChain.balanced(
        widths,
        lam=np.array(target) ** (1 / (len(widths) - 1)) * 1.01,
        target=target,
        data=np.linspace(1, 0, widths[0]) if len(target) == 1 else None,
        bases=bases_of(np.random.default_rng(3), widths),
    )
    for _ in range(3000):
        state = state.step(eta)
    orbit = [state, state.step(eta)]
    assert np.abs(orbit[0].product - orbit[1].product).max() > 0.1
    return orbit


@pytest.mark.parametrize(
    ("widths", "eta", "target"),
    [((2, 3, 2), 0.11, [10.0, 3.0]), ((3, 2, 2, 1), 0.16, [3.0]), ((1, 1, 1), 0.11, [10.0])],
)
def test_multipliers_are_those_of_the_dense_monodromy(
    widths: tuple[int, ...], eta: float, target: list[float]
) -> None:
    orbit = two_cycle(widths, eta, target)
    identity = np.eye(orbit[0].size)
    first, second = (identity - eta * state.to_chain().hessian() for state in orbit)
    dense = np.linalg.eigvals(second @ first)
    blocks = multipliers(orbit, eta)
    for (i, j), own in blocks.items():
        assert own.dtype == np.complex128
        assert own.shape == (len(orbit[0].block(i, j)),)
    reduced = np.concatenate(list(blocks.values()))
    distances = np.abs(reduced[:, None] - dense)
    assert distances.shape == (orbit[0].size, orbit[0].size)
    assert distances[linear_sum_assignment(distances)].max() < 1e-7


def test_multiplier_of_a_balanced_two_cycle_is_the_derivative_of_its_scalar_map() -> None:
    """Along the balanced direction the twice applied map s ← s − η(s^2 − y)s has the slope
    Π(1 − η(3s² − y)), and the unbalanced direction has Π(1 + η(s² − y))."""
    eta, target = 0.11, 10.0
    orbit = two_cycle((1, 1, 1), eta, [target])
    s = np.array([state.singular_values[0][0] for state in orbit])
    expected = [np.prod(1 - eta * (3 * s**2 - target)), np.prod(1 + eta * (s**2 - target))]
    found = np.sort(multipliers(orbit, eta)[1, 1].real)
    np.testing.assert_allclose(found, np.sort(expected), rtol=1e-10)


def test_multipliers_refuse_what_is_no_orbit() -> None:
    chain = AlignedChain((1, 1, 1), ([1.0], [2.0]), [1.0], [2.0])
    with pytest.raises(ValueError, match="orbit must have at least one state"):
        multipliers([], 0.1)
    with pytest.raises(ValueError, match=r"the step of state 0 is 0\.\d+ away"):
        multipliers([replace(chain, target=[3.0])], 0.1)
    with pytest.raises(ValueError, match=r"the step of state 0 is .* away"):
        multipliers([chain, replace(chain, singular_values=([1.0], [2.1]))], 0.1)
    with pytest.raises(ValueError, match=r"the step of state 1 is .* away"):
        multipliers([chain, replace(chain, target=[3.0])], 0.1)


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 7])
def test_uniform_start_has_the_closed_form_spectrum(depth: int) -> None:
    """r active modes at μ, a unit target and Σxx of rank ρ: with g = μ^(2L−2) and
    τ = (μ^L − 1)μ^(L−2) the eigenvalues are Lg ± (L−1)τ, g, ±τ and 0, with known multiplicities."""
    r, rank, mu = 2, 4, 0.9
    hidden = [5, 6, 4, 7, 3, 5][: depth - 1]
    widths = (5, *hidden, 6)
    data = (np.arange(5) < rank).astype(float)
    chain = AlignedChain.balanced(widths, [mu] * r, data, [1.0] * r)
    g, tau = mu ** (2 * depth - 2), (mu**depth - 1) * mu ** (depth - 2)
    spare = sum(hidden) - r * len(hidden)
    multiplicities = {
        depth * g + (depth - 1) * tau: r * (r + 1) // 2,
        depth * g - (depth - 1) * tau: r * (r - 1) // 2,
        g: r * (rank + widths[-1] - 2 * r),
        -tau: (depth - 1) * r * (r + 1) // 2 + r * spare,
        tau: (depth - 1) * r * (r - 1) // 2 + r * spare,
    }
    if depth == 1:
        multiplicities = {1.0: rank * widths[-1]}
    known = np.repeat(list(multiplicities), list(multiplicities.values()))
    expected = np.concatenate([known, np.zeros(chain.size - len(known))])
    assert chain.spectrum().distance(Spectrum.from_values(expected)) < 1e-14


def test_ridge_reaches_padding_coordinates() -> None:
    chain = AlignedChain.balanced((2, 3, 2), [0.0], target=[0.0], ridge=[1.0, 10.0])
    assert str(chain.spectrum()) == "10 × 6, 1 × 6"


def test_pair_without_coordinates_has_an_empty_block() -> None:
    chain = AlignedChain.balanced((3, 1, 2), [1.0])
    assert chain.block(2, 3).shape == (0, 0)
    assert chain.spectrum().size == chain.size == 5


# --- from_chain ------------------------------------------------------------------------------


@given(aligned_chains())
@settings(max_examples=200, deadline=None)
def test_from_chain_finds_the_bases_again(chain: AlignedChain) -> None:
    matrix = chain.to_chain()
    found = AlignedChain.from_chain(matrix)
    assert found.widths == chain.widths
    assert_same_chain(found.to_chain(), matrix, tol=1e-12)
    assert_same_spectrum(found.spectrum(), chain.spectrum())


NASTY = {
    "repeated values": ((4, 5, 4), [[1] * 4, [2] * 4], [1] * 4, [1, 1, 0, 0]),
    "one layer, negative and zero": ((3, 3), [[-1, 0, 2]], [0, 1, 1], [1, 2, 0]),
    "opposite signs around the loop": ((2, 2, 2), [[1, 1], [1, 1]], [1, 1], [1, -1]),
    "zero layer": ((3, 4, 4, 3), [[1, 2, 3], [0] * 4, [1, 1, 2]], [1, 1, 0], [3, 2, 1]),
    "all layers zero": ((3, 4, 2), [[0] * 3, [0] * 2], [1, 2, 2], [1, 1]),
    "everything zero": ((2, 3, 2), [[0, 0], [0, 0]], [0, 0], [0, 0]),
    "no data": ((2, 2, 2), [[1, 2], [3, 3]], [0, 0], [1, 1]),
    "linked by the target only": ((3, 1, 3), [[1], [0]], [1, 1, 1], [0, 2, 2]),
    "strings end between layers": (
        (3, 3, 3, 3, 3),
        [[1, 0, 1], [0, 1, 1], [1, 0, 0], [1, 1, 1]],
        [1, 1, 1],
        [1, 1, 1],
    ),
    "bottleneck of strings": ((2, 4, 1, 3), [[0, 1], [1], [0]], [1, 1], [0, 1]),
    "width one": ((1, 1, 1, 1), [[2], [-1], [0]], [1], [1]),
    "scales": ((3, 3, 3), [[1, 1e-5, 1e-9], [1, 1e-7, 2e-7]], [1, 1e-6, 1], [1, 0, 1e-3]),
    "tiny layer": ((3, 3, 3), [[1, 2, 3], [1e-9, 2e-9, 2e-9]], [1, 1, 1], [1, 1, 2]),
    "nearly equal": ((2, 2, 2), [[1, 1 + 1e-9], [1, 1]], [1, 1], [1, 1 - 1e-9]),
}


@pytest.mark.parametrize("name", NASTY)
def test_from_chain_on_nasty_cases(name: str) -> None:
    widths, layers, data, target = NASTY[name]
    for seed in range(20):
        chain = AlignedChain(
            widths,
            tuple(np.array(layer) for layer in layers),
            np.array(data),
            np.array(target),
            ridge=0.5,
            bases=bases_of(np.random.default_rng(seed), widths),
        )
        matrix = chain.to_chain()
        found = AlignedChain.from_chain(matrix)
        assert_same_chain(found.to_chain(), matrix, tol=1e-12)
        assert_same_spectrum(found.spectrum(), chain.spectrum())


def test_from_chain_on_a_wide_chain_with_many_kinds_of_strings() -> None:
    rng = np.random.default_rng(0)
    widths = (30, 40, 25, 35, 30)
    chain = AlignedChain(
        widths,
        tuple(rng.integers(-1, 2, min(pair)) for pair in pairwise(widths)),
        data=rng.integers(0, 2, 30),
        target=rng.integers(-1, 2, 30),
        bases=bases_of(rng, widths),
    )
    found = AlignedChain.from_chain(chain.to_chain())
    assert_same_chain(found.to_chain(), chain.to_chain(), tol=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_from_chain_sorts_the_modes(seed: int) -> None:
    widths = (5, 4, 6)
    chain = AlignedChain(
        widths,
        ([1.0, 3.0, 2.0, 2.0], [1.0, 1.0, 4.0, 5.0]),
        data=[1.0, 2.0, 3.0, 3.0, 4.0],
        target=[1.0, 0.0, -7.0, 7.0, 3.0],
        bases=bases_of(np.random.default_rng(seed), widths),
    )
    found = AlignedChain.from_chain(chain.to_chain())
    np.testing.assert_allclose(np.abs(found.target), [7, 7, 1, 0, 3], atol=1e-12)
    np.testing.assert_allclose(found.singular_values[0], [2, 2, 1, 3], atol=1e-12)
    np.testing.assert_allclose(found.singular_values[1], [5, 4, 1, 1], atol=1e-12)
    np.testing.assert_allclose(found.data, [3, 3, 1, 2, 4], atol=1e-12)


def test_from_chain_resolves_a_layer_far_below_the_others() -> None:
    values, tiny = [3.0, 2.0, 1.0], np.array([2.0, 1.0, 3.0])
    bases = bases_of(np.random.default_rng(7), (3, 3, 3))
    chain = AlignedChain((3, 3, 3), (values, 1e-14 * tiny), values, np.zeros(3), bases=bases)
    found = AlignedChain.from_chain(chain.to_chain())
    np.testing.assert_allclose(np.abs(found.singular_values[1]) * 1e14, tiny, rtol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_from_chain_overlooks_rounding_errors_where_zeros_are_meant(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bases = bases_of(rng, (3, 4, 4, 3))
    chain = AlignedChain.balanced((3, 4, 4, 3), [3.0, 2.0, 1.0], bases=bases).to_chain()
    noisy = LinearChain(chain.weights, chain.sigma_xx, 1e-15 * rng.standard_normal((3, 3)))
    np.testing.assert_allclose(AlignedChain.from_chain(noisy).product, [27, 8, 1], rtol=1e-12)
    first, _, last = chain.weights
    weights = (first, 1e-15 * rng.standard_normal((4, 4)), last)
    found = AlignedChain.from_chain(LinearChain(weights, chain.sigma_xx, chain.product))
    np.testing.assert_allclose(found.target, [27, 8, 1], rtol=1e-12)
    np.testing.assert_allclose(found.product, [0, 0, 0], atol=1e-13)
    weights = (1e-15 * rng.standard_normal((4, 3)), *chain.weights[1:])
    found = AlignedChain.from_chain(LinearChain(weights, chain.sigma_xx, np.zeros((3, 3))))
    np.testing.assert_allclose(np.abs(found.singular_values[1]), [3, 2, 1, 0], atol=1e-12)


def test_chain_aligns_itself_after_gradient_descent() -> None:
    rng = np.random.default_rng(2)
    widths = (4, 5, 6, 3)
    chain = AlignedChain.balanced(
        widths, [0.5, 0.3, 0.1], [1.0, 2.0, 0.5, 0.0], [1.0, 1.0], bases=bases_of(rng, widths)
    )
    matrix = chain.to_chain()
    for _ in range(200):
        matrix = matrix.step(0.1)
    aligned = AlignedChain.from_chain(matrix)
    assert isinstance(aligned, AlignedChain)
    assert aligned.spectrum().distance(Spectrum.from_matrix(matrix.hessian())) < 1e-12


def perturbed(size: float) -> LinearChain:
    rng = np.random.default_rng(4)
    widths = (4, 5, 3, 4)
    chain = AlignedChain(
        widths,
        ([1.0, 1.0, 0.0, 2.0], [1.0, 0.0, 2.0], [0.0, 0.0, 0.0]),
        data=[1.0, 1.0, 2.0, 0.0],
        target=[1.0, 0.0, 2.0, 2.0],
        bases=bases_of(rng, widths),
    ).to_chain()
    weights = tuple(w + size * rng.standard_normal(w.shape) for w in chain.weights)
    return LinearChain(weights, chain.sigma_xx, chain.sigma_yx)


@pytest.mark.parametrize("size", [1e-7, 1e-5, 1e-3])
def test_refusal_says_how_far_from_aligned_the_chain_is(size: float) -> None:
    with pytest.raises(ValueError, match=r"relative norm .*, more than tol = 1e-08") as refusal:
        AlignedChain.from_chain(perturbed(size))
    measured = float(str(refusal.value).split("relative norm ")[1].split(",")[0])
    assert size / 10 < measured < 10 * size
    assert "weights[" in str(refusal.value)


def test_reported_distance_is_a_relative_norm() -> None:
    rng = np.random.default_rng(5)
    for widths in ((2, 5, 3), (4, 4, 4, 4), (3, 6, 2, 6), (5, 2)):
        chain = LinearChain(
            tuple(rng.standard_normal((left, right)) for right, left in pairwise(widths)),
            np.diag(rng.uniform(0, 1, widths[0])),
            rng.standard_normal((widths[-1], widths[0])),
        )
        with pytest.raises(ValueError, match="relative norm") as refusal:
            AlignedChain.from_chain(chain)
        measured = float(str(refusal.value).split("relative norm ")[1].split(",")[0])
        assert 0.01 < measured <= 1


def test_refinement_squares_the_error_of_the_bases() -> None:
    rng = np.random.default_rng(6)
    widths = (4, 5, 3, 4)
    chain = AlignedChain(
        widths,
        tuple(rng.uniform(0.5, 2, min(pair)) for pair in pairwise(widths)),
        data=rng.uniform(0, 2, 4),
        target=rng.uniform(-2, 2, 4),
        bases=bases_of(rng, widths),
    )
    maps, owners = _maps(chain.to_chain()), [range(width) for width in widths]
    assert chain.bases is not None
    for error in (1e-3, 1e-5):
        turned = []
        for basis in chain.bases:
            turn = error * rng.standard_normal(basis.shape)
            turned.append(basis @ expm(turn - turn.T))
        assert _leak(maps, turned, owners)[0] > error / 10
        assert _leak(maps, _refined(maps, turned), owners)[0] < 100 * error**2


def test_tolerance_admits_what_it_says() -> None:
    chain = perturbed(1e-10)
    assert_same_chain(AlignedChain.from_chain(chain).to_chain(), chain, tol=1e-8)
    chain = perturbed(1e-4)
    assert_same_chain(AlignedChain.from_chain(chain, tol=1e-3).to_chain(), chain, tol=1e-3)
    for tol in (0.0, -1.0, 0.5, np.nan):
        with pytest.raises(ValueError, match="tol must lie between 0 and"):
            AlignedChain.from_chain(chain, tol=tol)


def test_misaligned_moments_are_named() -> None:
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    identity = np.eye(2)
    with pytest.raises(ValueError, match="off-diagonal part of sigma_yx has relative norm 0"):
        AlignedChain.from_chain(LinearChain((identity, identity), identity, turn))
    stretch = np.diag([1.0, 2.0])
    misaligned = LinearChain((stretch,), turn @ stretch @ turn.T, 0 * identity)
    with pytest.raises(ValueError, match="not aligned: in the best common bases"):
        AlignedChain.from_chain(misaligned)


def test_strings_that_no_numbering_fits_are_refused() -> None:
    up, down = np.array([[1.0], [0.0]]), np.array([[0.0, 1.0]])
    shift = np.array([[0.0, 1.0], [0.0, 0.0]])
    chain = LinearChain((up, shift, shift, down), np.eye(1), np.zeros((1, 1)))
    with pytest.raises(ValueError, match=r"no numbering was found .* widths \(1, 2, 2, 2, 1\)"):
        AlignedChain.from_chain(chain)


# --- construction ----------------------------------------------------------------------------


def test_everything_is_frozen_and_copied() -> None:
    lam, data, basis = np.ones(2), np.ones(2), np.eye(2)
    chain = AlignedChain((2, 2), (lam,), data, np.zeros(2), bases=(basis, basis))
    before = chain.spectrum().values
    for given_array in (lam, data, basis):
        given_array[0] = 9.0
    np.testing.assert_array_equal(chain.spectrum().values, before)
    np.testing.assert_array_equal(chain.to_chain().weights[0], np.eye(2))
    for field in fields(chain):
        with pytest.raises(FrozenInstanceError):
            setattr(chain, field.name, None)
    assert chain.bases is not None
    for array in (*chain.singular_values, chain.data, chain.target, *chain.bases):
        assert array.dtype == np.float64
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


def test_ridge_is_one_number_per_layer() -> None:
    assert AlignedChain.balanced((1, 1, 1), [1.0], ridge=2).ridge == (2.0, 2.0)
    assert AlignedChain.balanced((1, 1, 1), [1.0], ridge=[1, 2]).ridge == (1.0, 2.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"widths": (2,)}, "widths must hold d_0..d_L with L ≥ 1"),
        ({"widths": (2, 0, 2)}, "widths must be at least 1, got 0"),
        ({"singular_values": ([1.0, 1.0],)}, r"must have 2 layers to match widths \(2, 3, 2\)"),
        ({"singular_values": ([1.0], [1.0, 1.0])}, r"singular_values\[0\] must have 2 values"),
        ({"data": [1.0]}, "data must have 2 values to match the widths, got 1"),
        ({"data": [1.0, -1e-3]}, "data must not be negative, got -0.001"),
        ({"target": [1.0, np.nan]}, "target must be finite"),
        ({"target": [1.0]}, "target must have 2 values"),
        ({"ridge": [1.0]}, r"ridge must be one number or 2, .*got"),
        ({"bases": (np.eye(2),)}, r"square matrices of widths \(2, 3, 2\), got 2×2$"),
        ({"bases": (np.eye(2),) * 3}, r"widths \(2, 3, 2\), got 2×2, 2×2, 2×2"),
        (
            {"bases": (np.eye(2), 2 * np.eye(3), np.eye(2))},
            r"bases\[1\] must be orthogonal, got max\|QᵀQ − I\| = 3",
        ),
    ],
)
def test_bad_input_is_named(change: dict[str, object], message: str) -> None:
    good = AlignedChain.balanced((2, 3, 2), [1.0, 1.0])
    with pytest.raises(ValueError, match=message):
        replace(good, **change)


def test_bad_arguments_are_named() -> None:
    chain = AlignedChain.balanced((2, 3, 2), [1.0, 1.0])
    with pytest.raises(TypeError, match=r"widths must be an integer, got 2\.5"):
        AlignedChain.balanced((2, 2.5), [1.0])
    with pytest.raises(ValueError, match="lam must have at most 2 values to fit"):
        AlignedChain.balanced((2, 3, 2), np.ones(3))
    with pytest.raises(ValueError, match="target must have at most 2 values to fit"):
        AlignedChain.balanced((2, 3, 2), [1.0], target=np.ones(3))
    with pytest.raises(ValueError, match="i and j must lie between 1 and 3, got 4"):
        chain.block(1, 4)
    with pytest.raises(ValueError, match="i and j must lie between 1 and 3, got 0"):
        chain.block(0, 1)
    with pytest.raises(ValueError, match="k must be at most the number of parameters 12, got 13"):
        chain.eigenvectors(13)
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        chain.eigenvectors(0)
    with pytest.raises(ValueError, match="eta must be finite"):
        chain.step(np.inf)
    with pytest.raises(ValueError, match="eta must be positive, got 0"):
        chain.step(0.0)
    with pytest.raises(ValueError, match=r"eta = 0\.1 makes the parameters overflow"):
        AlignedChain.balanced((1, 1, 1), [1e150]).step(0.1)


# --- cost ------------------------------------------------------------------------------------


def test_quarter_million_eigenvalues_cost_less_than_three_dense_1500() -> None:
    rng = np.random.default_rng(0)
    chain = AlignedChain(
        (256,) * 5,
        tuple(rng.uniform(-1, 1, (4, 256))),
        data=rng.uniform(0, 1, 256),
        target=rng.uniform(-1, 1, 256),
    )
    dense = rng.standard_normal((1500, 1500))
    own, reference = [], []
    for _ in range(3):
        start = time.perf_counter()
        np.linalg.eigvalsh(dense + dense.T)
        middle = time.perf_counter()
        assert replace(chain).spectrum().size == 262_144
        own.append(time.perf_counter() - middle)
        reference.append(middle - start)
    assert min(own) < 3 * min(reference)
    tracemalloc.start()
    chain.spectrum()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1e9
