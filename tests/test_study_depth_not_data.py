"""Data and depth: our formulas against autograd, and bounds that are met with equality."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from exacthessian import autograd
from exacthessian.aligned import AlignedChain
from exacthessian.studies.depth_not_data import (
    arrival,
    balanced_minimum,
    clusters,
    gram_eigenvalues,
    imbalance,
    membership,
    random_start,
    scaled_minimum,
    scaled_spectrum,
)

Array = NDArray[np.float64]
COLOURS = ("dominant", "bulk", "zero")


def orthogonal(rng: np.random.Generator, size: int) -> Array:
    return np.linalg.qr(rng.standard_normal((size, size)))[0]


def moment(rng: np.random.Generator, size: int, spread: float) -> Array:
    """A covariance with condition number `spread`, in a random basis."""
    basis = orthogonal(rng, size)
    values = np.concatenate([[1.0, spread], rng.uniform(1, spread, size - 2)])
    matrix: Array = (basis * values) @ basis.T
    return (matrix + matrix.T) / 2


def target(rng: np.random.Generator, shape: tuple[int, int], sigma: Array) -> Array:
    rank = len(sigma)
    left, right = orthogonal(rng, shape[0])[:, :rank], orthogonal(rng, shape[1])[:, :rank]
    matrix: Array = (left * sigma) @ right.T
    return matrix


@settings(deadline=None, max_examples=30)
@given(
    depth=st.integers(2, 5),
    inputs=st.integers(3, 5),
    outputs=st.integers(3, 5),
    rank=st.integers(1, 3),
    seed=st.integers(0, 10**6),
)
def test_the_gram_matrix_has_the_hessians_nonzero_eigenvalues(depth, inputs, outputs, rank, seed):
    rng = np.random.default_rng(seed)
    phi = target(rng, (outputs, inputs), rng.uniform(0.5, 2.0, rank))
    covariance = moment(rng, inputs, 3.0)
    hidden = rng.integers(rank, 6, depth - 1).tolist()
    chain = balanced_minimum((inputs, *hidden, outputs), phi, covariance)
    np.testing.assert_allclose(chain.product, phi, atol=1e-12)
    assert np.abs(chain.gradient()).max() < 1e-11
    assert abs(chain.loss()) < 1e-11
    for before, after in zip(chain.weights, chain.weights[1:], strict=False):
        np.testing.assert_allclose(after.T @ after, before @ before.T, atol=1e-12)
    dense = np.linalg.eigvalsh(autograd.hessian(chain))[::-1]
    gram = gram_eigenvalues(depth, phi, covariance)
    count = min(len(dense), len(gram))
    np.testing.assert_allclose(gram[:count], dense[:count], atol=1e-10 * dense[0])
    nonzero = rank * (inputs + outputs - rank)
    assert np.sum(dense > 1e-8 * dense[0]) == np.sum(gram > 1e-8 * gram[0]) == nonzero


@settings(deadline=None, max_examples=60)
@given(
    depth=st.integers(2, 9),
    spread=st.floats(1.0, 2.0),
    condition=st.floats(1.0, 4.0),
    rank=st.integers(1, 3),
    seed=st.integers(0, 10**6),
)
def test_every_ratio_lies_within_the_bounds(depth, spread, condition, rank, seed):
    rng = np.random.default_rng(seed)
    sigma = np.concatenate([[1.0], rng.uniform(1 / spread, 1.0, rank - 1)])
    phi, covariance = target(rng, (5, 4), sigma), moment(rng, 4, condition)
    k = imbalance(depth, sigma, covariance)
    if k >= depth:
        return
    low, high = depth / k, depth * k
    found = clusters(gram_eigenvalues(depth, phi, covariance), rank**2, rank * (9 - 2 * rank))
    slack = 1e-9 * high
    assert low - slack <= found.least <= found.mean + slack
    assert found.mean - slack <= found.most <= high + slack


@pytest.mark.parametrize("depth", [2, 3, 5, 8])
@pytest.mark.parametrize(("spread", "condition"), [(1.0, 1.7), (1.3, 1.0), (1.2, 1.3)])
def test_both_bounds_are_attained(depth, spread, condition):
    """Aligned data with the extremes in the places that hurt most, and most helpfully."""
    sigma = np.array([spread, 1.0])
    phi = np.zeros((4, 4))
    phi[[0, 1], [0, 1]] = sigma
    weak_signal = np.diag([1.0, 1.0, condition, condition])
    strong_signal = np.diag([condition, 1.0, 1.0, 1.0])
    k = imbalance(depth, sigma, weak_signal)
    least = clusters(gram_eigenvalues(depth, phi, weak_signal), dominant=4, bulk=8).least
    most = clusters(gram_eigenvalues(depth, phi, strong_signal), dominant=4, bulk=8).most
    assert (least, most) == pytest.approx((depth / k, depth * k))


def test_clusters_that_do_not_exist_have_no_ratio():
    found = clusters([3.0, 1.0, -1.0], dominant=1, bulk=2)
    assert np.isnan([found.least, found.mean, found.most]).all()
    times = [1, 2, 3]
    history = [found, clusters([2.9, 1.0, 1.0], 1, 2), clusters([3.0, 1.0, 1.0], 1, 2)]
    assert arrival(history, times, depth=3) == 2
    assert arrival([found], [1], depth=3) == np.inf
    assert random_start(3, 0.1, seed=0).widths == (5, 8, 8, 6)


def test_the_imbalance_in_numbers():
    assert imbalance(2, [4.0, 1.0], np.eye(3)) == pytest.approx(4.0)
    assert imbalance(4, [1.0, 16.0], np.eye(3)) == pytest.approx(64.0)
    assert imbalance(3, [2.0, 2.0], np.diag([0.5, 1.0, 2.0])) == pytest.approx(4.0)


@settings(deadline=None, max_examples=30)
@given(
    widths=st.lists(st.integers(2, 5), min_size=3, max_size=6),
    rank=st.integers(1, 2),
    seed=st.integers(0, 10**6),
)
def test_the_spectrum_of_stretched_layers_is_the_dense_one(widths, rank, seed):
    rng = np.random.default_rng(seed)
    logs = rng.uniform(-1, 1, len(widths) - 1)
    scales = np.exp(logs - logs.mean())
    predicted = scaled_spectrum(widths, rank, scales)
    dense = autograd.spectrum(scaled_minimum(widths, rank, scales))
    assert predicted.distance(dense) < 1e-12
    assert predicted.norm >= len(scales) - 1e-12
    assert predicted.select("dominant").size == rank**2
    bulk = rank * (widths[0] + widths[-1] - 2 * rank)
    assert bulk == (predicted.select("bulk").size if bulk else 0)


def test_balanced_layers_are_the_flattest():
    assert str(scaled_spectrum((10, 20, 20, 16), 4, [1, 1, 1])) == "3 × 16, 1 × 72, 0 × 832"
    stretched = scaled_spectrum((10, 20, 20, 16), 4, [0.5, 1.0, 2.0])
    assert str(stretched) == "5.25 × 16, 4 × 24, 0.25 × 48, 0 × 832"


@settings(deadline=None, max_examples=30)
@given(depth=st.integers(2, 5), rank=st.integers(1, 3), full=st.booleans(), late=st.booleans())
def test_membership_counts_do_not_depend_on_time(depth, rank, full, late):
    widths = (4, *[6] * (depth - 1), 5)
    lam = np.linspace(0.7, 0.95, rank)
    lam = np.concatenate([lam, np.full(4 - rank, 0.3)]) if full else lam
    chain = AlignedChain.balanced(widths, lam, target=np.ones(rank))
    for _ in range(200 if late else 0):
        chain = chain.step(0.05)
    named = membership(chain, rank)
    assert named.distance(chain.spectrum()) < 1e-13
    assert set(named.labels) == set(COLOURS)
    assert named.select("dominant").size == rank**2
    assert named.select("bulk").size == rank * (4 + 5 - 2 * rank)
    if late and not full:
        np.testing.assert_allclose(named.select("dominant").values, depth, atol=1e-2)
        np.testing.assert_allclose(named.select("bulk").values, 1, atol=1e-2)
        assert named.select("zero").norm < 1e-2


@pytest.mark.parametrize("mu", [0.2, 0.5, 0.75, 0.9, 1.1])
def test_membership_of_a_uniform_start_in_closed_form(mu):
    """Lg ± (L−1)τ, g, and ±τ, with g = μ^{2L−2} and τ = (μ^L − 1)μ^{L−2}, whatever their order."""
    depth, rank = 3, 2
    chain = AlignedChain.balanced((4, 6, 6, 5), np.full(rank, mu), target=np.ones(rank))
    g, tau = mu ** (2 * depth - 2), (mu**depth - 1) * mu ** (depth - 2)
    named = membership(chain, rank)
    dominant = [depth * g + (depth - 1) * tau] * 3 + [depth * g - (depth - 1) * tau]
    np.testing.assert_allclose(
        named.select("dominant").expand(), np.sort(dominant)[::-1], atol=1e-12
    )
    np.testing.assert_allclose(named.select("bulk").expand(), g, atol=1e-12)
    zeros = np.abs(named.select("zero").values)
    assert np.all((zeros < 1e-12) | (np.abs(zeros - abs(tau)) < 1e-12))
