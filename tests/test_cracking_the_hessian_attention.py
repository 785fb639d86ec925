"""The attention part of "Cracking the Hessian" against dense Hessians and autograd."""

import numpy as np
import pytest
import torch

from exacthessian import autograd
from exacthessian.attention import Curvature, ScalarAttention, attention_moments, softmax_rows
from exacthessian.autograd.attention import self_attention_loss
from exacthessian.papers import cracking_the_hessian_attention as att
from exacthessian.spectrum import Spectrum

FOUR = Curvature(alpha=0.9, beta=-1.3, gamma=0.7, zeta=2.1)
W = np.array([1.0, 2.0, -0.5]), np.array([0.4, -1.0, 3.0])


def random_case(seed: int):
    rng = np.random.default_rng(seed)
    query, key = rng.standard_normal((2, int(rng.integers(1, 5))))
    if seed % 6 == 0:
        key = -query
    return Curvature(*rng.standard_normal(4)), query, key


CASES = [random_case(seed) for seed in range(40)]


@pytest.mark.parametrize("case", CASES)
def test_cubic_is_the_characteristic_polynomial_of_the_outliers(case):
    four, query, key = case
    dense = np.linalg.eigvalsh(four.hessian(query, key))
    coefficients = np.poly(dense)
    bulk = np.array([1.0])
    for _ in range(query.size - 1):
        bulk = np.polymul(bulk, [1, 0, -(four.gamma**2)])
    expected = np.polymul(att.cubic(four, query, key), bulk)
    assert np.allclose(coefficients, expected, rtol=1e-9, atol=1e-9 * np.abs(coefficients).max())


@pytest.mark.parametrize("case", CASES)
def test_depressed_cubic_radius_and_roots(case):
    four, query, key = case
    outliers = four.outliers(query, key)
    shifted = outliers - outliers.mean()
    size = np.abs(outliers).max()
    p, q = att.depressed_cubic(four, query, key)
    assert p == pytest.approx(-np.sum(shifted**2) / 2, abs=1e-11 * size**2)
    assert q == pytest.approx(-np.prod(shifted), abs=1e-11 * size**3)
    assert att.xi(four, query, key) == pytest.approx(np.sqrt(2) * outliers.std(), rel=1e-9)
    assert np.allclose(att.trigonometric_roots(p, q), shifted, atol=1e-6 * size)
    dense = Spectrum.from_matrix(four.hessian(query, key))
    assert dense.distance(att.theorem_3_5(four, query, key)) < 1e-6


@pytest.mark.parametrize("case", CASES)
def test_bounds_hold_and_are_nested(case):
    four, query, key = case
    spectrum = four.spectrum(query, key)
    tol = 1e-12 * spectrum.norm
    lower, upper = att.remark_b_4(four, query, key)
    assert lower - tol <= spectrum.values.max() <= upper + tol
    kappa = att.condition_number(spectrum)
    assert kappa >= att.remark_3_1(four, query, key) * (1 - 1e-10)
    bound = (lower * 6) / (6 * abs(four.gamma))
    assert att.remark_3_1(four, query, key) == pytest.approx(bound)


@pytest.mark.parametrize("case", CASES)
def test_query_key_block_and_vanishing_gamma(case):
    four, query, key = case
    block = Spectrum.from_matrix(four.hessian(query, key)[1:, 1:])
    assert (
        block.distance(att.remark_b_2(four, query, key)) < 1e-7
    )  # a double root when key = -query
    flat = Curvature(four.alpha, four.beta, 0.0, four.zeta)
    pair = att.remark_b_3(flat, query, key)
    predicted = Spectrum.from_values([*pair, *np.zeros(2 * query.size - 1)])
    assert Spectrum.from_matrix(flat.hessian(query, key)).distance(predicted) < 1e-10


def test_printed_forms_are_those_of_the_paper():
    a, b, g, z = FOUR.alpha, FOUR.beta, FOUR.gamma, FOUR.zeta
    norms = np.linalg.norm(W[0]), np.linalg.norm(W[1])
    big, k = norms[0] ** 2 + norms[1] ** 2, W[0] @ W[1]
    minor, trace = b**2 - a * z, a + z * big
    radicand = 3 * g**2 + 6 * z * g * k + 3 * minor * big + (z * norms[0] + z * norms[1] + a) ** 2
    assert att.xi(FOUR, *W, as_printed=True) == pytest.approx(2 / 3 * np.sqrt(radicand))
    p, q = att.depressed_cubic(FOUR, *W, as_printed=True)
    middle = 9 * trace * minor * big + 2 * g * z * k + g**2
    last = 27 * (2 * g * minor * k - a * g**2)
    assert q == pytest.approx(-(2 * trace**3 + middle + last) / 27)
    assert p == pytest.approx(att.depressed_cubic(FOUR, *W)[0])
    lower, upper = att.remark_b_4(FOUR, *W, as_printed=True)
    xi = att.xi(FOUR, *W, as_printed=True)
    assert (lower, upper) == pytest.approx((trace / 3 + xi / 2, trace / 3 + xi))
    kappa = att.remark_3_1(FOUR, *W, as_printed=True)
    assert kappa == pytest.approx((2 * trace + 3 * xi) / (6 * abs(g)))


def test_printed_radius_can_be_undefined():
    four = Curvature(1.0, 0.0, 0.1, 1.0)
    assert np.isnan(att.xi(four, [10.0, 0.0], [0.0, 10.0], as_printed=True))
    assert att.xi(four, [10.0, 0.0], [0.0, 10.0]) > 0


def test_the_bulk_can_be_sharper_than_every_outlier():
    layer = ScalarAttention(4.0, [0.5, 0], [0.5, 0], [[1, -3]], [[-9, 9]])
    four = layer.curvature()
    assert layer.sharpness() == pytest.approx(abs(four.gamma))
    trace = -att.cubic(four, layer.query, layer.key)[1]
    assert trace / 3 + att.xi(four, layer.query, layer.key) < 0.1 * layer.sharpness()
    assert att.remark_b_4(four, layer.query, layer.key)[1] == pytest.approx(abs(four.gamma))
    alone = att.remark_b_4(four, [0.5], [0.5])[1]  # width one: no bulk
    assert alone < 0.1 * abs(four.gamma)


def test_degenerate_roots():
    assert att.trigonometric_roots(0.0, 0.0).tolist() == [0.0, 0.0, 0.0]
    assert np.allclose(att.trigonometric_roots(-3.0, 2.0), [1, 1, -2], atol=1e-7)
    assert att.xi(Curvature(0, 0, 0, 0), [1.0], [1.0]) == 0.0
    assert att.condition_number(Spectrum.from_values([1.0, 0.0])) == np.inf


@pytest.mark.parametrize("seed", range(5))
def test_sink_moments_are_those_of_the_row(seed):
    rng = np.random.default_rng(seed)
    scores, x = rng.standard_normal(6), 2 * rng.standard_normal(6)
    rest = softmax_rows([scores[1:]])
    mean, variance, third = (float(m[0]) for m in attention_moments(rest, x[1:]))
    for strength in (-2.0, 0.0, 1.0, 4.0):
        row = softmax_rows([scores + strength * (np.arange(6) == 0)])
        expected = attention_moments(row, x)
        shift, second, cube = att.sink_moments(row[0, 0], x[0] - mean, variance, third)
        assert mean + shift == pytest.approx(expected[0][0])
        assert second == pytest.approx(expected[1][0])
        assert cube == pytest.approx(expected[2][0])
    shares = np.linspace(0, 1, 4001)
    peak = shares[np.argmax(att.sink_moments(shares, x[0] - mean, variance, third)[1])]
    assert att.sink_peak(x[0] - mean, variance) == pytest.approx(peak, abs=5e-4)


@pytest.mark.parametrize("seed", range(4))
def test_product_gradient_and_the_bulk_of_vectors(seed):
    rng = np.random.default_rng(seed)
    d, width, n, batch = 2, 6, 3, 2
    x, y = rng.standard_normal((2, batch, n, d))
    value, (query, key) = rng.standard_normal((d, d)), rng.standard_normal((2, d, width))
    biases = None if seed % 2 else [rng.standard_normal((n, n)) for _ in range(batch)]
    found = att.product_gradient(x, y, value, query, key, biases)
    # the gradient in the product, by machine: queries P and keys I have the product P
    loss = self_attention_loss(x, y, biases=biases, key_width=width)
    product = torch.tensor(query @ key.T, requires_grad=True)
    loss([torch.tensor(value), product, torch.eye(d).double()]).backward()
    assert np.abs(found - product.grad.numpy()).max() < 1e-13
    dense = autograd.dense_hessian(
        self_attention_loss(x, y, biases=biases), autograd.tensors([value, query, key])
    )
    spectrum = Spectrum.from_matrix((dense + dense.T) / 2)
    for sigma in np.linalg.svd(found, compute_uv=False):
        for sign in (1, -1):
            close = spectrum.count(sign * sigma - 1e-10, sign * sigma + 1e-10)
            assert close == width - 2 * d + 1


def test_reversal_is_gradient_descent_on_the_layer():
    rng = np.random.default_rng(0)
    x = np.array([[0.98, -0.98], [0.7, -1.1], [1.2, 0.4]])
    value, (query, key) = rng.standard_normal(3), 0.5 * rng.standard_normal((2, 3, 3))
    run = att.reverse_two_tokens(x, value, query, key, 0.4, 12)
    assert run.loss.shape == (13, 3)
    for b in range(3):
        layer = ScalarAttention(value[b], query[b], key[b], [x[b]], [x[b][::-1]])
        for t in range(13):
            found = [layer.value, layer.product, layer.norm, layer.loss(), layer.sharpness()]
            found.append(np.trace(layer.hessian()))
            ours = run.value, run.product, run.norm, run.loss, run.sharpness, run.trace
            assert np.allclose(found, [part[t, b] for part in ours], rtol=1e-10, atol=1e-12)
            layer = layer.step(0.4)


def test_reversal_reports_divergence_without_noise():
    run = att.reverse_two_tokens([[9.0, -9.0]], [5.0], [[1.0, 0.0]], [[1.0, 1.0]], 50.0, 60)
    assert not np.isfinite(run.loss[-1, 0])
    assert np.isfinite(run.sharpness[0, 0])


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="p must be negative for three real roots"):
        att.trigonometric_roots(1.0, 0.0)
    with pytest.raises(ValueError, match="curvature must have gamma = 0 in Remark"):
        att.remark_b_3(FOUR, *W)
    with pytest.raises(ValueError, match="curvature must have gamma ≠ 0"):
        att.remark_3_1(Curvature(1, 1, 0, 1), *W)
    with pytest.raises(ValueError, match="key must have length 3 to match query"):
        att.cubic(FOUR, W[0], [1.0])
    with pytest.raises(ValueError, match=r"share must lie in \[0, 1\]"):
        att.sink_moments(1.5, 1.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="variance must be finite and not negative"):
        att.sink_peak(1.0, -1.0)
    with pytest.raises(
        ValueError, match=r"sequences must have two tokens each, got shape \(1, 3\)"
    ):
        att.reverse_two_tokens([[1, 2, 3]], [1], [[1, 1]], [[1, 1]], 0.1, 1)
    with pytest.raises(ValueError, match=r"value, query and key must have shapes \(1,\)"):
        att.reverse_two_tokens([[1, 2]], [1], [[1]], [[1]], 0.1, 1)
    with pytest.raises(ValueError, match="steps must be at least 0"):
        att.reverse_two_tokens([[1, 2]], [1], [[1, 1]], [[1, 1]], 0.1, -1)
