"""Spectra as multisets, and matrix-free estimates of them, against spectra known in advance."""

import doctest
import tracemalloc
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import hilbert
from scipy.sparse.linalg import LinearOperator

from exacthessian import spectrum as module
from exacthessian.spectrum import (
    Density,
    Spectrum,
    TopEigenvalues,
    spectral_density,
    top_eigenvalues,
)

reals = st.floats(-1e3, 1e3).map(lambda x: round(x, 3) + 0.0)
entries = st.lists(st.tuples(reals, st.integers(1, 5), st.sampled_from(["", "a", "b"])), max_size=8)


def build(rows):
    values, counts, labels = zip(*rows, strict=True) if rows else ((), (), ())
    return Spectrum(np.array(values, float), np.array(counts, int), labels)


def test_a_spectrum_of_entries_drops_empty_ones_and_descends():
    found = Spectrum.of((1.0, 2, "bulk"), (3, np.int64(1), "top"), (2.0, 0, "none"), (1.0, 1, "b"))
    assert found.values.tolist() == [3, 1, 1]
    assert found.multiplicities.tolist() == [1, 2, 1]
    assert found.labels == ("top", "bulk", "b")
    assert Spectrum.of().size == Spectrum.of((1.0, 0, "")).size == 0
    with pytest.raises(ValueError, match="the count of 'bulk' must not be negative, got -1"):
        Spectrum.of((1.0, -1, "bulk"))
    with pytest.raises(TypeError, match="multiplicities must be integers"):
        Spectrum.of((1.0, 1.5, "bulk"))


def rotated(values, seed=0):
    """A dense symmetric matrix with these eigenvalues."""
    q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values),) * 2))[0]
    matrix = (q * values) @ q.T
    return (matrix + matrix.T) / 2


def test_doctests():
    assert doctest.testmod(module).failed == 0
    assert doctest.testmod(module).attempted >= 15


# --- construction -----------------------------------------------------------------------------


def test_fields_are_read_only_copies_of_fixed_dtype():
    values, counts = np.array([1, 3], dtype=np.int32), np.array([2, 1], dtype=np.uint8)
    spectrum = Spectrum(values, counts, ["x", "y"])
    values[0], counts[0] = 9, 9
    assert_array_equal(spectrum.values, [1.0, 3.0])
    assert_array_equal(spectrum.multiplicities, [2, 1])
    assert spectrum.values.dtype == np.float64
    assert spectrum.multiplicities.dtype == np.int64
    assert spectrum.labels == ("x", "y")
    for array in (spectrum.values, spectrum.multiplicities):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError):
        spectrum.values = np.zeros(2)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([1.0, np.nan], [1, 1], ["", ""]), ValueError, "values must be finite"),
        (([1.0, np.inf], [1, 1], ["", ""]), ValueError, "values must be finite"),
        (([1j], [1], [""]), TypeError, "values must hold real numbers, got dtype complex128"),
        (([True], [1], [""]), TypeError, "values must hold real numbers, got dtype bool"),
        ((["1"], [1], [""]), TypeError, "values must hold real numbers, got dtype <U1"),
        (([[1.0]], [1], [""]), ValueError, r"values must have 1 axes, got shape \(1, 1\)"),
        (([[1.0], [1, 2]], [1], [""]), ValueError, "values must be an array of real numbers"),
        (([2**53 + 1], [1], [""]), ValueError, r"values holds an integer beyond ±2\*\*53"),
        (([-(2**60)], [1], [""]), ValueError, r"values holds an integer beyond ±2\*\*53"),
        (([1.0], [1.0], [""]), TypeError, "multiplicities must be integers, got dtype float64"),
        (([1.0], [True], [""]), TypeError, "multiplicities must be integers, got dtype bool"),
        (([1.0], [0], [""]), ValueError, "multiplicities must be at least 1, got 0"),
        (([1.0], [1, 1], [""]), ValueError, "must have one length"),
        (([1.0], [1], ["", ""]), ValueError, "must have one length"),
        (([1.0], [1], "a"), TypeError, "labels must be a sequence of strings, got 'a'"),
        (([1.0], [1], [3]), TypeError, "labels must be a sequence of strings"),
    ],
)
def test_bad_fields_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        Spectrum(*arguments)


def test_largest_exact_integers_are_kept():
    assert Spectrum.from_values([2**53, -(2**53)]).values.tolist() == [2.0**53, -(2.0**53)]
    assert Spectrum.from_values(np.array([5], np.uint64)).values.tolist() == [5.0]


def test_from_values_sorts_and_labels():
    spectrum = Spectrum.from_values([1, 3, 2], label="a")
    assert_array_equal(spectrum.values, [3, 2, 1])
    assert_array_equal(spectrum.multiplicities, [1, 1, 1])
    assert spectrum.labels == ("a", "a", "a")


def test_from_matrix_has_the_spectrum_it_was_built_from():
    values = np.array([5.0, 5.0, 2.0, 0.0, -1.0])
    spectrum = Spectrum.from_matrix(rotated(values), label="h")
    assert_allclose(spectrum.values, values, atol=1e-14)
    assert spectrum.labels == ("h",) * 5
    # The second difference matrix: 2 − 2cos(kπ/(n+1)).
    n = 7
    laplace = 2 * np.eye(n, dtype=int) - np.eye(n, k=1, dtype=int) - np.eye(n, k=-1, dtype=int)
    truth = 2 - 2 * np.cos(np.arange(n, 0, -1) * np.pi / (n + 1))
    assert_allclose(Spectrum.from_matrix(laplace).values, truth, atol=1e-14)


@pytest.mark.parametrize(
    ("matrix", "error", "message"),
    [
        (np.ones((2, 3)), ValueError, "matrix must be square, got 2×3"),
        (np.ones(3), ValueError, r"matrix must have 2 axes, got shape \(3,\)"),
        ([[1.0, 2.0], [2.0 + 1e-9, 1.0]], ValueError, r"matrix must be symmetric.*= 1e-09"),
        ([[1.0, np.nan], [np.nan, 1.0]], ValueError, "matrix must be finite"),
        ([[1.0, 1j], [1j, 1.0]], TypeError, "matrix must hold real numbers"),
    ],
)
def test_from_matrix_refuses(matrix, error, message):
    with pytest.raises(error, match=message):
        Spectrum.from_matrix(matrix)


def test_from_matrix_accepts_rounding_of_symmetry():
    assert Spectrum.from_matrix([[1.0, 2.0], [2.0 + 4e-16, 1.0]]).size == 2


# --- multisets --------------------------------------------------------------------------------


@settings(deadline=None)
@given(entries, entries)
def test_merge_is_the_union_of_multisets(first, second):
    merged = Spectrum.merge(build(part) for part in (first, second))
    expected = Counter()
    for value, count, label in first + second:
        expected[value, label] += count
    found = Counter()
    for value, count, label in zip(
        merged.values, merged.multiplicities, merged.labels, strict=True
    ):
        found[value, label] += count
    assert found == expected
    assert list(merged.values) == sorted(merged.values, reverse=True)
    assert merged.size == sum(count for _, count, _ in first + second)


@settings(deadline=None)
@given(entries)
def test_expand_lists_every_value(rows):
    spectrum = build(rows)
    listed = sorted((v for v, count, _ in rows for _ in range(count)), reverse=True)
    assert spectrum.expand().tolist() == listed
    assert spectrum.expand().dtype == np.float64
    assert spectrum.size == len(listed)
    assert len(spectrum) == len(rows)
    assert spectrum.norm == max(map(abs, listed), default=0.0)


@settings(deadline=None)
@given(entries, reals, reals)
def test_count_is_inclusive(rows, a, b):
    low, high = min(a, b), max(a, b)
    spectrum = build(rows)
    assert spectrum.count(low, high) == sum(low <= v <= high for v in spectrum.expand())
    assert spectrum.count(-np.inf, np.inf) == spectrum.size
    if rows:
        value = rows[0][0]
        assert spectrum.count(value, value) >= rows[0][1]


@pytest.mark.parametrize(("low", "high"), [(1.0, 0.0), (np.nan, 1.0), (0.0, np.nan)])
def test_count_refuses(low, high):
    with pytest.raises(ValueError, match="low must not exceed high"):
        Spectrum.from_values([1.0]).count(low, high)


def test_select():
    spectrum = Spectrum([1.0, 3.0, 2.0], [4, 5, 6], ["a", "b", "a"])
    chosen = spectrum.select("a")
    assert_array_equal(chosen.values, [2.0, 1.0])
    assert_array_equal(chosen.multiplicities, [6, 4])
    assert chosen.labels == ("a", "a")
    with pytest.raises(ValueError, match="label must be one of 'a', 'b', got 'c'"):
        spectrum.select("c")
    with pytest.raises(ValueError, match=r"label must be one of \(no entries\), got 'c'"):
        Spectrum.merge([]).select("c")


def test_empty_spectrum():
    empty = Spectrum.merge([])
    assert (len(empty), empty.size, empty.norm, str(empty)) == (0, 0, 0.0, "empty")
    assert empty.clusters().size == 0
    assert empty.distance(Spectrum.from_values([])) == 0.0


# --- clusters ---------------------------------------------------------------------------------


def test_clusters_link_neighbours():
    spectrum = Spectrum([10.0, 9.5, 9.0, 5.0, 0.0], [1, 2, 3, 4, 5], ["b", "a+c", "", "x", ""])
    joined = spectrum.clusters(tol=0.05)
    assert_allclose(joined.values, [(10 + 2 * 9.5 + 3 * 9) / 6, 5.0, 0.0])
    assert_array_equal(joined.multiplicities, [6, 4, 5])
    assert joined.labels == ("a+b+c", "x", "")
    assert len(spectrum.clusters(tol=0.0499)) == 5


def test_clusters_measure_against_the_norm_not_the_largest():
    assert len(Spectrum.from_values([1.0, 0.9, -10.0]).clusters(tol=0.011)) == 2


@settings(deadline=None)
@given(entries, st.sampled_from([0.0, 1e-6, 0.01, 0.3, 3.0]))
def test_clusters_keep_size_trace_and_separation(rows, tol):
    spectrum = build(rows)
    joined = spectrum.clusters(tol)
    assert joined.size == spectrum.size
    trace = float(spectrum.values @ spectrum.multiplicities)
    assert_allclose(joined.values @ joined.multiplicities, trace, atol=1e-9)
    assert np.all(np.diff(joined.values) < 0)
    if tol == 0:
        assert set(joined.values) == set(spectrum.values)
    if tol == 3.0:
        assert len(joined) <= 1


@pytest.mark.parametrize(
    ("tol", "error", "message"),
    [
        (-1.0, ValueError, "tol must be finite and not negative, got -1.0"),
        (np.nan, ValueError, "tol must be finite and not negative, got nan"),
        (np.inf, ValueError, "tol must be finite and not negative, got inf"),
        ("1", TypeError, "tol must be a number, got '1'"),
        (True, TypeError, "tol must be a number, got True"),
    ],
)
def test_clusters_refuse(tol, error, message):
    with pytest.raises(error, match=message):
        Spectrum.from_values([1.0]).clusters(tol)


# --- text -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "counts", "text"),
    [
        ([1.0, 3.0, 0.0], [72, 16, 832], "3 × 16, 1 × 72, 0 × 832"),
        ([3 - 4e-16, 3 + 4e-16, -1e-17], [1, 1, 1], "3 × 2, 0 × 1"),
        ([-0.0, 0.0], [1, 1], "0 × 2"),
        ([1.0, -1e-12, -2.0], [1, 1, 3], "1 × 1, 0 × 1, -2 × 3"),
        # Small but real values stay apart from the zeros, on both sides.
        ([1.0, 1e-7, 0.0, -1e-7], [1, 1, 1, 1], "1 × 1, 1e-07 × 1, 0 × 1, -1e-07 × 1"),
        # Values that print alike are one entry.
        ([1.5, 1.200001, 1.200004], [1, 1, 1], "1.5 × 1, 1.2 × 2"),
        ([1.5, 1.2000001, 1.1999999], [1, 2, 3], "1.5 × 1, 1.2 × 5"),
        ([1 / 3], [2], "0.333333 × 2"),
        ([1234567.0], [1], "1.23457e+06 × 1"),
    ],
)
def test_text(values, counts, text):
    spectrum = Spectrum(values, counts, [""] * len(values))
    assert str(spectrum) == text
    assert repr(spectrum) == f"Spectrum({text})"


@settings(deadline=None)
@given(arrays(np.float64, 6, elements=st.sampled_from([0.0, 0.5, 1.0, 3.0, -2.0])), st.integers())
def test_text_survives_rounding(values, seed):
    noise = np.random.default_rng(abs(seed)).uniform(-1e-13, 1e-13, 6)
    assert str(Spectrum.from_values(values)) == str(
        Spectrum.from_values(values + noise * np.abs(values).max())
    )


# --- distance ---------------------------------------------------------------------------------


def test_distance_by_hand():
    a = Spectrum([4.0, 1.0], [1, 2], ["", ""])
    assert a.distance(Spectrum.from_values([1.5, -8.0, 4.0])) == 9.0 / 8.0
    assert a.distance(Spectrum.from_values([1, 4, 1])) == 0.0
    assert Spectrum.from_values([0.0]).distance(Spectrum.from_values([0.0])) == 0.0
    with pytest.raises(ValueError, match="other must have 3 eigenvalues to be compared, got 1"):
        a.distance(Spectrum.from_values([1.0]))


@settings(deadline=None)
@given(st.lists(reals, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_distance_is_the_best_matching(values, random):
    others = [value + random.uniform(-5, 5) for value in values]
    best = min(
        max(abs(a - b) for a, b in zip(values, order, strict=True))
        for order in permutations(others)
    )
    first, second = Spectrum.from_values(values), Spectrum.from_values(others)
    assert_allclose(first.distance(second) * max(first.norm, second.norm), best, atol=1e-9)
    assert first.distance(second) == second.distance(first)


# --- matrix-free ------------------------------------------------------------------------------

spread_with_multiple_top = np.concatenate([np.full(16, 3.0), np.linspace(2.9, -1, 384)])
spectra = {
    "one and rounding errors": np.r_[1e-6, np.zeros(299)],
    "simple": np.linspace(5.0, -20.0, 200),
    "few distinct": np.repeat([3.0, 1.0, 0.0, -1.0], [16, 72, 200, 44]),
    "multiple top above a continuum": spread_with_multiple_top,
    "kernel on top": np.concatenate([np.zeros(150), -np.arange(1.0, 151.0)]),
    "zero": np.zeros(150),
    "identity": np.ones(150),
    "small": np.array([2.0, 2.0, -5.0]),
}


@pytest.mark.parametrize("name", spectra)
def test_top_eigenvalues_with_multiplicities(name):
    values = np.sort(spectra[name])[::-1]
    matrix = rotated(values)
    for seed in range(3):
        for k in {1, 3, min(20, len(values))}:
            top = top_eigenvalues(matrix, min(k, len(values)), np.random.default_rng(seed))
            scale = max(np.abs(values).max(), 1e-300)
            assert_allclose(top.values, values[: len(top.values)], atol=1e-13 * scale)
            assert len(top.values) == len(top.residuals) == min(k, len(values))
            assert np.all(top.residuals <= 1e-7 * scale)
            assert np.all(np.diff(top.values) <= 0)
            assert top.values.dtype == top.residuals.dtype == np.float64


def counted(values, counts):
    """A diagonal operator that is never stored, and the list of its products."""
    diagonal, products = np.repeat(values, counts), []

    def product(x):
        products.append(x.shape)
        return diagonal * np.ravel(x)

    size = len(diagonal)
    return LinearOperator((size, size), matvec=product, dtype=np.float64), products


@pytest.mark.parametrize(
    ("values", "counts", "most"),
    [
        # 10 outliers: restarted Lanczos without any check needs 33, an earlier version took 224.
        (np.r_[np.linspace(60, 30, 10), np.linspace(1, -1, 4990)], 1, 50),
        ([3.0, 1.0, 0.0], [100, 100, 4800], 50),
        ([1.0, 1 - 1e-6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0], [1, 1, 2, 2, 2, 1, 1, 4990], 50),
        ([0.0, -1.0], [100, 4900], 50),
        ([1e-6, 0.0], [1, 4999], 50),
    ],
)
def test_top_eigenvalues_spend_few_products(values, counts, most):
    exact = np.sort(np.repeat(values, counts))[::-1][:10]
    for seed in range(5):
        operator, products = counted(values, counts)
        top = top_eigenvalues(operator, 10, np.random.default_rng(seed))
        assert_allclose(top.values, exact, atol=1e-13 * 60)
        assert len(products) <= most
        assert {shape[0] for shape in products} == {5000}


def test_top_eigenvalues_find_every_copy_across_a_multiplet():
    operator, _ = counted([3.0, 1.3125, 0.0], [100, 100, 2800])
    top = top_eigenvalues(operator, 110, np.random.default_rng(0))
    assert_allclose(top.values, np.repeat([3.0, 1.3125], [100, 10]), atol=1e-12)


def test_a_krylov_space_or_density_beyond_memory_is_refused_with_its_bytes():
    huge = LinearOperator((10**6, 10**6), matvec=lambda x: x, dtype=np.float64)
    rng = np.random.default_rng(0)
    with pytest.raises(MemoryError, match="10000 steps at P = 1000000 needs 80008000000 bytes"):
        spectral_density(huge, rng, steps=10_000, probes=1)
    with pytest.raises(MemoryError, match="Krylov space of 30000 vectors needs 400000000000 bytes"):
        top_eigenvalues(huge, 10_000, rng)


def test_a_density_takes_the_memory_of_one_probe():
    operator, products = counted(np.linspace(0, 1, 20_000), 1)
    tracemalloc.start()
    spectral_density(operator, np.random.default_rng(0), steps=20, probes=10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * 8 * 20_000 * 21
    assert len(products) == 2 + 10 * 20


def test_top_eigenvalues_never_forms_a_large_matrix():
    values = np.linspace(1.0, 0.0, 2000) ** 4
    widest = 0

    def product(x):
        nonlocal widest
        widest = max(widest, x.shape[-1] if x.ndim > 1 else 1)
        return (values * x.T).T

    operator = LinearOperator((2000, 2000), matvec=product, matmat=product, dtype=np.float64)
    top = top_eigenvalues(operator, 4, np.random.default_rng(1))
    assert_allclose(top.values, values[:4], atol=1e-12)
    assert widest <= 10


def test_top_eigenvalues_follow_the_generator():
    matrix = rotated(np.linspace(1, 0, 150))
    one, two = (top_eigenvalues(matrix, 3, np.random.default_rng(7)) for _ in range(2))
    assert_array_equal(one.values, two.values)


def test_residuals_report_a_wrong_vector():
    """Residuals are ‖Hv − λv‖: a Hilbert matrix has them at rounding level, never exactly zero."""
    top = top_eigenvalues(hilbert(12), 2, np.random.default_rng(0))
    assert 0 < top.residuals.max() < 1e-14
    assert_allclose(top.values, Spectrum.from_matrix(hilbert(12)).values[:2], rtol=1e-14)


@pytest.mark.parametrize(
    ("operator", "k", "rng", "error", "message"),
    [
        (np.ones((2, 3)), 1, None, ValueError, "operator must be square, got 2×3"),
        (np.eye(3, dtype=np.float32), 1, None, TypeError, "operator must have dtype float64, got"),
        (np.triu(np.ones((3, 3))), 1, None, ValueError, "operator must be symmetric"),
        (np.full((3, 3), np.nan), 1, None, ValueError, "operator must have finite products"),
        (np.eye(3), 4, None, ValueError, "k must be at most the operator's size 3, got 4"),
        (np.eye(3), 0, None, ValueError, "k must be at least 1, got 0"),
        (np.eye(3), 1.0, None, TypeError, "k must be an integer, got 1.0"),
        (np.eye(3), True, None, TypeError, "k must be an integer, got True"),
    ],
)
def test_top_eigenvalues_refuse(operator, k, rng, error, message):
    generator = np.random.default_rng(0) if rng is None else rng
    with pytest.raises(error, match=message):
        top_eigenvalues(operator, k, generator)


def test_density_with_all_steps_has_the_exact_spectrum():
    """With steps = P every Ritz value is an eigenvalue; one probe then has P simple nodes."""
    values = np.linspace(-1.0, 3.0, 12)
    density = spectral_density(rotated(values), np.random.default_rng(0), steps=12, probes=1)
    assert_allclose(np.sort(density.nodes), values, atol=1e-12)
    assert density.nodes.dtype == density.weights.dtype == np.float64


def test_density_has_exact_moments():
    """`steps` Lanczos steps integrate polynomials of degree below 2·steps exactly per probe."""
    matrix, steps, size = rotated(np.linspace(-1, 2, 60)), 4, 60
    density = spectral_density(matrix, np.random.default_rng(5), steps=steps, probes=3)
    rng = np.random.default_rng(5)
    rng.standard_normal((2, size))  # The symmetry probe comes first.
    probes = rng.standard_normal((3, size))
    probes /= np.linalg.norm(probes, axis=1, keepdims=True)
    for power in range(2 * steps):
        moments = [q @ np.linalg.matrix_power(matrix, power) @ q for q in probes]
        assert_allclose(density.weights @ density.nodes**power, np.mean(moments), rtol=1e-12)
    moments = [q @ np.linalg.matrix_power(matrix, 2 * steps) @ q for q in probes]
    assert abs(density.weights @ density.nodes ** (2 * steps) - np.mean(moments)) > 1e-6


@pytest.mark.parametrize("steps", [3, 4, 30, 500])
def test_density_stops_when_the_krylov_space_is_invariant(steps):
    values = np.repeat([3.0, 1.0, 0.0], [16, 72, 112])
    density = spectral_density(rotated(values), np.random.default_rng(0), steps=steps, probes=40)
    assert len(density.nodes) == 3 * 40
    nearest = np.array([3.0, 1.0, 0.0])[:, None]
    belongs = np.abs(density.nodes - nearest) < 1e-10
    assert_array_equal(belongs.sum(axis=0), 1)
    assert_allclose(belongs @ density.weights, [16 / 200, 72 / 200, 112 / 200], atol=0.03)
    assert_allclose(density.weights.sum(), 1, atol=1e-14)


def test_density_probes_may_stop_at_different_steps():
    """A start inside an eigenspace stops at once while the others go on."""

    class Fixed(np.random.Generator):
        def standard_normal(self, size):
            if size == (2, 5):
                return super().standard_normal(size)
            self.drawn = getattr(self, "drawn", 0) + 1
            return np.array([[1.0, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1]])[self.drawn - 1]

    density = spectral_density(
        np.diag([5.0, 4.0, 3.0, 2.0, 1.0]), Fixed(np.random.PCG64(0)), steps=5, probes=3
    )
    assert_allclose(density.nodes, [5, 4, 5, 1, 2, 3, 4, 5], atol=1e-12)
    assert_allclose(density.weights * 3, [1, 0.5, 0.5] + [0.2] * 5, atol=1e-12)


def test_density_has_no_ghost_copies():
    """One outlier far from a bulk: without reorthogonalisation it would be found repeatedly."""
    values = np.concatenate([[1e4], np.linspace(0, 1, 299)])
    density = spectral_density(rotated(values), np.random.default_rng(0), steps=80, probes=2)
    assert np.sum(density.nodes > 2) == 2
    assert_allclose(density.nodes[density.nodes > 2], 1e4, rtol=1e-12)


def test_density_does_not_write_into_what_the_operator_returns():
    answers = []

    def product(x):
        answers.append((np.ones((4, 4)) @ x, np.ones((4, 4)) @ x))
        return answers[-1][0]

    operator = LinearOperator((4, 4), matvec=product, matmat=product, dtype=np.float64)
    spectral_density(operator, np.random.default_rng(0), steps=2, probes=1)
    for returned, kept in answers:
        assert_array_equal(returned, kept)


@pytest.mark.parametrize(
    ("steps", "probes", "error", "message"),
    [
        (0, 1, ValueError, "steps must be at least 1, got 0"),
        (1, 0, ValueError, "probes must be at least 1, got 0"),
        (1.5, 1, TypeError, "steps must be an integer, got 1.5"),
        (1, "2", TypeError, "probes must be an integer, got '2'"),
    ],
)
def test_density_refuses(steps, probes, error, message):
    with pytest.raises(error, match=message):
        spectral_density(np.eye(3), np.random.default_rng(0), steps, probes)


def test_objects_are_compared_by_identity():
    for kind in (
        lambda: Spectrum.from_values([1.0]),
        lambda: Density([1.0], [1.0]),
        lambda: TopEigenvalues([1.0], [0.0]),
    ):
        first, second = kind(), kind()
        assert len({first, first, second}) == 2


def test_results_are_frozen():
    top = top_eigenvalues(np.eye(3), 2, np.random.default_rng(0))
    density = spectral_density(np.eye(3), np.random.default_rng(0), steps=2, probes=2)
    assert isinstance(top, TopEigenvalues)
    for result, name in ((top, "values"), (top, "residuals"), (density, "nodes")):
        with pytest.raises(AttributeError):
            setattr(result, name, np.zeros(1))
