"""The general theorems behind "Cracking the Hessian", against torch autograd in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exacthessian import autograd
from exacthessian.autograd import product as torch_product
from exacthessian.chain import LinearChain
from exacthessian.papers import cracking_the_hessian_beyond as beyond
from exacthessian.spectrum import Spectrum

TIGHT = 1e-12


def oracle(loss, weights) -> Spectrum:
    hessian = autograd.dense_hessian(loss, autograd.tensors(weights))
    return Spectrum.from_matrix((hessian + hessian.T) / 2)


def exact(chain: LinearChain) -> Spectrum:
    return oracle(autograd.linear_chain_loss(chain.sigma_xx, chain.sigma_yx), chain.weights)


def random_chain(rng, width, inputs, outputs=1, rank=None, white=False) -> LinearChain:
    root = rng.standard_normal((inputs, rank or inputs))
    sigma = np.eye(inputs) if white else root @ root.T
    weights = [rng.standard_normal((width, inputs)), rng.standard_normal((outputs, width))]
    return LinearChain(weights, sigma, rng.standard_normal((outputs, inputs)) @ sigma)


# The bulk


@pytest.mark.parametrize(
    ("inputs", "outputs", "width"), [(1, 2, 5), (2, 2, 6), (2, 3, 8), (3, 2, 5), (3, 3, 9)]
)
def test_every_loss_of_a_product_has_the_bulk(inputs, outputs, width):
    rng = np.random.default_rng([inputs, outputs, width])
    loss = torch_product.cross_entropy_loss(
        rng.standard_normal((inputs, 12)), rng.integers(0, outputs, 12)
    )
    shapes = [(width, inputs), (outputs, width), (outputs,)]
    weights = [rng.standard_normal(shape) / 2 for shape in shapes]
    tensors = autograd.tensors(weights)
    hessian = autograd.dense_hessian(loss, tensors)
    gradient = torch_product.product_gradient(loss, tensors)
    found = Spectrum.from_matrix((hessian + hessian.T) / 2)
    bulk = beyond.bulk(gradient, width)
    slack = 1e-10 * found.norm
    for value, count in zip(bulk.values, bulk.multiplicities, strict=True):
        assert found.count(value - slack, value + slack) == count
    for index, sigma in enumerate(np.linalg.svd(gradient, compute_uv=False)):
        for sign in (1, -1):
            vectors = beyond.bulk_vectors(*weights[:2], gradient, index, sign)
            assert vectors.shape[1] == width - inputs - outputs + 1
            assert np.linalg.matrix_rank(vectors) == vectors.shape[1]
            full = np.vstack([vectors, np.zeros((outputs, vectors.shape[1]))])
            assert np.abs(hessian @ full - sign * sigma * full).max() < 1e-12


@pytest.mark.parametrize(("size", "keys", "copies"), [(1, 6, 5), (2, 7, 4), (3, 8, 3)])
def test_attention_has_the_bulk_of_its_scores(size, keys, copies):
    rng = np.random.default_rng(size)
    loss = torch_product.attention_loss(*rng.standard_normal((2, 4, size)), scale=keys**0.5)
    weights = [rng.standard_normal(s) for s in ((keys, size), (size, keys), (size, size))]
    gradient = torch_product.product_gradient(loss, autograd.tensors(weights))
    bulk, found = beyond.bulk(gradient, keys), oracle(loss, weights)
    assert set(bulk.multiplicities.tolist()) == {copies}
    slack = 1e-10 * found.norm
    assert all(found.count(v - slack, v + slack) == copies for v in bulk.values)


def test_the_bulk_of_a_gradient_without_full_rank():
    assert str(beyond.bulk([[0.0, 0.0]], width=4)) == "0 × 8"
    assert str(beyond.bulk([[3.0, 0.0], [0.0, 0.0]], width=5)) == "3 × 2, 0 × 6, -3 × 2"
    assert beyond.bulk([[3.0]], width=1).size == 0
    assert beyond.bulk([[3.0, 1.0]], width=2).size == 1


@pytest.mark.parametrize(
    ("inputs", "outputs", "width"), [(2, 3, 1), (3, 2, 4), (2, 2, 9), (1, 4, 8), (4, 1, 7)]
)
def test_the_reduced_network_has_the_spectrum_the_trace_and_the_descent(inputs, outputs, width):
    rng = np.random.default_rng([7, inputs, outputs, width])
    chain = random_chain(rng, width, inputs, outputs)
    found = exact(chain)
    assert beyond.spectrum_by_reduction(chain).distance(found) < TIGHT
    assert abs(beyond.trace(chain) - found.expand().sum()) < 1e-11 * found.norm
    small = LinearChain(beyond.reduced(*chain.weights), chain.sigma_xx, chain.sigma_yx)
    assert small.widths[1] == min(width, inputs + outputs)
    for _ in range(5):
        chain, small = chain.gradient_step(1e-3), small.gradient_step(1e-3)
    np.testing.assert_allclose(chain.product, small.product, atol=1e-12)
    for large, little in zip(chain.weights, small.weights, strict=True):
        np.testing.assert_allclose(np.linalg.norm(large), np.linalg.norm(little))


# Several inputs


@settings(deadline=None, max_examples=25)
@given(width=st.integers(1, 7), inputs=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_one_output_any_data_any_weights(width, inputs, seed):
    chain = random_chain(np.random.default_rng(seed), width, inputs)
    found, theorem = exact(chain), beyond.spectrum_one_output(chain)
    assert theorem.distance(found) < TIGHT
    s = np.linalg.norm(chain.residual)
    assert found.count(s + 1e-9 * found.norm, np.inf) <= inputs
    assert found.values[-1] >= -s - 1e-9 * found.norm


def test_one_output_in_awkward_places():
    rng = np.random.default_rng(3)
    singular = random_chain(rng, 6, 4, rank=2)
    one = random_chain(rng, 5, 3)
    dead = LinearChain([one.weights[0], 0 * one.weights[1]], one.sigma_xx, one.sigma_yx)
    empty = LinearChain([0 * one.weights[0], one.weights[1]], one.sigma_xx, one.sigma_yx)
    fitted = LinearChain(one.weights, one.sigma_xx, one.product @ one.sigma_xx)
    for chain in (singular, dead, empty, fitted):
        assert beyond.spectrum_one_output(chain).distance(exact(chain)) < TIGHT


@pytest.mark.parametrize(("width", "inputs"), [(1, 1), (4, 1), (3, 3), (6, 4)])
def test_the_secular_determinant_is_the_characteristic_polynomial(width, inputs):
    rng = np.random.default_rng([width, inputs])
    chain = random_chain(rng, width, inputs)
    outliers = np.linalg.eigvalsh(beyond.outlier_matrix(chain))
    assert len(outliers) == 3 * inputs - 1
    places = rng.uniform(-5, 5, 9)
    expected = places * np.prod(places[:, None] - outliers, axis=1)
    np.testing.assert_allclose(beyond.secular_determinant(chain, places), expected, rtol=1e-9)


@pytest.mark.parametrize("k", [1.0, 0.4, 0.0, -0.7, -1.9])
@pytest.mark.parametrize("nu2", [[1.3], [1.0, 1.0, 1.0], [2.0, 0.7, 0.0], [1.5, 2.5, 0.2, 0.9]])
def test_the_solvable_family(k, nu2):
    arguments = (6, nu2, 3.0, 0.9, k)
    chain = beyond.solvable_chain(*arguments, np.random.default_rng(5))
    theorem = beyond.solvable_spectrum(*arguments)
    assert theorem.distance(exact(chain)) < TIGHT
    np.testing.assert_allclose(theorem.select("pair").expand().sum(), nu2[0] + 3.0)


def test_the_solvable_family_at_its_edges():
    # m = D: w lies along the first column; k s = ν‖w‖ exactly; s = 0.
    V, w = np.diag([2.0, 1.0, 0.5]), np.array([[3.0, 0.0, 0.0]])
    chain = LinearChain([V, w], np.eye(3), [[6.0 - 4.0, 0.0, 0.0]])
    assert (
        beyond.solvable_spectrum(3, [4.0, 1.0, 0.25], 9.0, 4.0, 1.5).distance(exact(chain)) < TIGHT
    )
    fitted = beyond.solvable_chain(5, [1.0, 1.0], 2.0, 0.0, 1.0, np.random.default_rng(0))
    assert beyond.solvable_spectrum(5, [1.0, 1.0], 2.0, 0.0, 1.0).distance(exact(fitted)) < TIGHT
    zero = beyond.solvable_chain(4, [0.0, 1.0], 2.0, 0.5, 0.0, np.random.default_rng(0))
    assert beyond.solvable_spectrum(4, [0.0, 1.0], 2.0, 0.5, 0.0).distance(exact(zero)) < TIGHT


def test_pair_and_triples_sum_to_a_share_of_the_trace():
    rng = np.random.default_rng(8)
    V, w = beyond.orthonormal_start((4, 9, 1), rng)
    chain = LinearChain([1.7 * V, w], np.eye(4), np.zeros((1, 4)))
    s = np.linalg.norm(chain.residual)
    share = exact(chain).expand().sum() / 4
    np.testing.assert_allclose(beyond.pair(1.7**2, 1.0, s, 1.0).sum(), share)
    np.testing.assert_allclose(beyond.triple(1.7**2, 1.0, s).sum(), share)


@pytest.mark.parametrize(("width", "inputs"), [(2, 2), (3, 2), (4, 4), (8, 5)])
def test_the_quintic(width, inputs):
    rng = np.random.default_rng([width, inputs])
    V, w = beyond.orthonormal_start((inputs, width, 1), rng)
    chain = LinearChain([1.4 * V, 0.8 * w], np.eye(inputs), rng.standard_normal((1, inputs)))
    assert beyond.orthogonal_spectrum(chain).distance(exact(chain)) < TIGHT
    fitted = LinearChain(chain.weights, np.eye(inputs), chain.product)
    assert beyond.orthogonal_spectrum(fitted).distance(exact(fitted)) < TIGHT


def test_the_roots_of_the_quintic_solve_it():
    nu2, w2, s, a, c = 1.9, 2.3, 0.7, -0.6, 0.8
    lam, total = beyond.quintic(nu2, w2, s, a, c), nu2 + w2
    left = (lam**2 - total * lam - s**2 - 2 * a * s) * (
        lam**3 - total * lam**2 - s**2 * lam + s**2 * w2
    )
    np.testing.assert_allclose(left, s**2 * c**2 * lam, atol=1e-12)
    dead = [1 + np.sqrt(1.25), 2.0, 0.5, 1 - np.sqrt(1.25), -0.5]  # V = 0
    np.testing.assert_allclose(beyond.quintic(0.0, 2.0, 0.5, 0.0, 0.0), np.sort(dead)[::-1])


@pytest.mark.parametrize(("width", "size"), [(1, 1), (3, 1), (3, 3), (6, 4)])
def test_aligned_outputs(width, size):
    rng = np.random.default_rng([width, size])
    a, b, g = rng.standard_normal((3, size))
    Q, L, R = (np.linalg.qr(rng.standard_normal((rows, size)))[0] for rows in (width, size, size))
    weights = [(Q * a) @ R.T, (L * b) @ Q.T]
    chain = LinearChain(weights, np.eye(size), weights[1] @ weights[0] - (L * g) @ R.T)
    assert beyond.aligned_spectrum(width, a, b, g).distance(exact(chain)) < TIGHT


# Sharpness


@pytest.mark.parametrize(
    ("inputs", "outputs", "width"), [(2, 3, 1), (3, 2, 4), (2, 2, 9), (1, 4, 3), (4, 1, 2)]
)
def test_the_sharpness_law(inputs, outputs, width):
    rng = np.random.default_rng([9, inputs, outputs, width])
    chain = random_chain(rng, width, inputs, outputs)
    root = np.linalg.cholesky(chain.sigma_xx + 1e-15 * np.eye(inputs))
    data = torch.from_numpy(np.ascontiguousarray(root))
    matrix = autograd.dense_gauss_newton(
        lambda w: w[1] @ w[0] @ data,
        lambda z: (z**2).sum() / 2,
        autograd.tensors(chain.weights),
    )
    found = Spectrum.from_matrix((matrix + matrix.T) / 2)
    assert beyond.gauss_newton_spectrum(chain).distance(found) < TIGHT
    law = beyond.sharpness_law(*chain.weights, chain.sigma_xx)
    np.testing.assert_allclose(law, found.values[0], rtol=1e-12)
    np.testing.assert_allclose(
        beyond.deep_sharpness_law(chain.weights, chain.sigma_xx), law, rtol=1e-12
    )
    top = exact(chain).values[0]
    assert abs(top - law) <= np.linalg.norm(chain.residual, 2) * (1 + 1e-12)
    white = beyond.sharpness_law(*chain.weights, np.eye(inputs))
    norms = sum(np.linalg.norm(w, 2) ** 2 for w in chain.weights)
    np.testing.assert_allclose(white, norms, rtol=1e-12)


@pytest.mark.parametrize("widths", [(1, 3, 4, 1), (2, 3, 3, 4, 2), (3, 2), (1, 1, 1, 1, 1)])
def test_the_sharpness_law_at_any_depth(widths):
    rng = np.random.default_rng(widths)
    stacks = beyond.start("NTP", widths, 3, rng)
    root = rng.standard_normal((widths[0], widths[0]))
    sigma = root @ root.T
    target = rng.standard_normal((widths[-1], widths[0]))
    law = beyond.deep_sharpness_law(stacks, sigma)
    tops = beyond.sharpness(stacks, sigma, target, rng, krylov=80)
    for i in range(3):
        chain = LinearChain([layer[i] for layer in stacks], sigma, target)
        np.testing.assert_allclose(law[i], np.linalg.eigvalsh(chain.gauss_newton())[-1])
        np.testing.assert_allclose(tops[i], exact(chain).values[0], rtol=1e-9)


# Pairs


def test_distances_and_chance():
    rng = np.random.default_rng(0)
    values = rng.standard_normal(8)
    sums = beyond.pair_sums(values)
    slow = sorted(values[i] + values[j] for i in range(8) for j in range(i))
    np.testing.assert_allclose(sums, slow)
    targets = rng.uniform(-5, 5, 30)
    expected = np.abs(targets[:, None] - sums).min(axis=1)
    np.testing.assert_allclose(beyond.distances(sums, targets), expected)
    grid = np.arange(0.0, 100.0)
    assert beyond.chance_level(grid, 50.0, rng, 200) == 0.0
    assert beyond.chance_level(grid, 50.5, rng, 200) == 1.0
    assert abs(beyond.chance_level(grid, 50.25, rng, 4000) - 0.5) < 0.05


def test_the_data_of_the_pair_hypothesis():
    rng = np.random.default_rng(1)
    x, y = beyond.normalised_data(3, 20, False, rng)
    np.testing.assert_allclose(np.vstack([x, y]).mean(axis=1), 0, atol=1e-14)
    np.testing.assert_allclose(np.vstack([x, y]).std(axis=1), 1)
    assert abs((x @ x.T)[0, 1]) > 1e-3
    x, y = beyond.normalised_data(3, 20, True, rng)
    rows = np.vstack([x, y])
    np.testing.assert_allclose(rows @ rows.T / 20, np.eye(4), atol=1e-13)
    np.testing.assert_allclose(rows.mean(axis=1), 0, atol=1e-13)
    first, second = beyond.orthonormal_start((4, 3, 2), rng)
    np.testing.assert_allclose(first @ first.T, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(second @ second.T, np.eye(2), atol=1e-14)


# Experiments


def test_starts_have_the_variances_of_their_schemes():
    rng = np.random.default_rng(2)
    widths = (4, 100, 4)
    deviations = {
        "SP": (1 / np.sqrt(12), 1 / np.sqrt(300)),
        "muP": (1 / 2, 0.02),
        "NTP": (400**-0.25, 400**-0.25),
    }
    for scheme, expected in deviations.items():
        layers = beyond.start(scheme, widths, 40, rng)
        found = [layer.std() for layer in layers]
        np.testing.assert_allclose(found, expected, rtol=0.03)
    assert np.abs(beyond.start("SP", widths, 40, rng)[1]).max() <= 0.1
    assert beyond.rates("NTP", widths) == [1.0, 1.0]
    assert beyond.rates("muP", widths) == [25.0, 0.04]


def test_descent_is_gradient_descent_and_converges():
    rng = np.random.default_rng(4)
    widths, sigma = (2, 5, 4, 3), np.array([[1.5, 0.3], [0.3, 0.8]])
    target = rng.standard_normal((3, 2))
    layers = beyond.start("NTP", widths, 2, rng)
    rates = [1.0, 2.0, 0.5]
    moved = beyond.descend(layers, sigma, target, rates, steps=1)
    for i in range(2):
        chain = LinearChain([layer[i] for layer in layers], sigma, target)
        pieces = chain.with_parameters(chain.gradient()).weights
        steps = [
            (before[i] - after[i]) / (rate * piece)
            for before, after, rate, piece in zip(layers, moved, rates, pieces, strict=True)
        ]
        eta = steps[0][0, 0]
        after, before = beyond.knocked_out(chain.weights)
        ends = zip(rates, after, before, strict=True)
        now = sum(r * np.linalg.norm(a, 2) ** 2 * np.linalg.norm(b, 2) ** 2 for r, a, b in ends)
        learnt = np.linalg.norm(target @ np.linalg.inv(sigma), 2)
        bound = np.linalg.eigvalsh(sigma)[-1] * (now + 3 * learnt ** (4 / 3))
        np.testing.assert_allclose(eta, 0.5 / bound)
        for step in steps:
            np.testing.assert_allclose(step, eta, rtol=1e-7)
    end = beyond.descend(layers, sigma, target, rates, steps=1500)
    np.testing.assert_allclose(end[2] @ end[1] @ end[0] @ sigma, np.stack([target] * 2), atol=1e-4)
    expected = 0.5 / (3 + sum(r * x for r, x in zip(rates, [400.0, 4.0, 100.0], strict=True)))
    step = beyond.cautious_step([[[[1.0]]], [[[10.0]]], [[[2.0]]]], rates)
    np.testing.assert_allclose(step, [expected])


@pytest.mark.parametrize("widths", [(3, 4, 2), (2, 3, 4, 3, 1), (1, 1, 1), (2, 2)])
def test_relu_networks(widths):
    rng = np.random.default_rng(widths)
    x, y = rng.standard_normal((widths[0], 9)), rng.standard_normal((widths[-1], 9))
    layers = beyond.start("NTP", widths, 2, rng)
    one = [layer[1] for layer in layers]
    loss = torch_product.relu_network_loss(x, y)
    tensors = [tensor.requires_grad_() for tensor in autograd.tensors(one)]
    dense = autograd.dense_hessian(loss, autograd.tensors(one))
    np.testing.assert_allclose(beyond.relu_hessian(one, x, y), dense, atol=1e-13)
    gradients = torch.autograd.grad(loss(tensors), tensors)
    rates = list(range(1, len(widths)))
    moved = beyond.relu_descend(layers, x, y, np.full(9, 1 / 9), rates, 1, [0.1, 0.2])
    for before, after, rate, gradient in zip(one, moved, rates, gradients, strict=True):
        np.testing.assert_allclose(before - after[1], 0.2 * rate * gradient.numpy(), atol=1e-14)
    if widths[-1] == 1:
        model = autograd.dense_gauss_newton(
            lambda w: _relu_outputs(w, torch.from_numpy(x)),
            lambda z: (z**2).sum() / 18,
            autograd.tensors(one),
        )
        law = beyond.relu_sharpness_law(layers, x, np.full(9, 1 / 9))
        np.testing.assert_allclose(law[1], np.linalg.eigvalsh(model)[-1], rtol=1e-11)


def _relu_outputs(weights, hidden):
    for weight in weights[:-1]:
        hidden = torch.relu(weight @ hidden)
    return weights[-1] @ hidden


def test_two_rays_are_all_of_the_data_for_one_input():
    rng = np.random.default_rng(6)
    x = rng.standard_normal((1, 30))
    y = np.where(x > 0, 1.5 * x, -0.4 * x)
    weights = [layer[0] for layer in beyond.start("NTP", (1, 4, 3, 1), 1, rng)]
    masses = np.array([np.sum(x[x > 0] ** 2), np.sum(x[x < 0] ** 2)]) / 30
    scale = np.sqrt(2 * masses)
    rays, targets = np.array([[1.0, -1.0]]) * scale, np.array([[1.5, 0.4]]) * scale
    np.testing.assert_allclose(
        beyond.relu_hessian(weights, rays, targets), beyond.relu_hessian(weights, x, y), atol=1e-13
    )


def test_norms_alignments_and_correlation():
    rng = np.random.default_rng(7)
    first, second = rng.standard_normal((5, 4, 3)), rng.standard_normal((5, 3, 4))
    norms, aligned = beyond.norms2(first), beyond.alignments(first, second)
    for i in range(5):
        for name, order in (("spectral", 2), ("Frobenius", "fro"), ("nuclear", "nuc")):
            np.testing.assert_allclose(norms[name][i], np.linalg.norm(first[i], order) ** 2)
        product = second[i] @ first[i]
        np.testing.assert_allclose(aligned["spectral"][i], np.linalg.norm(product, 2))
        np.testing.assert_allclose(aligned["nuclear"][i], np.linalg.norm(product, "nuc"))
        np.testing.assert_allclose(aligned["Frobenius"][i], abs(np.trace(product)))
    x, y = rng.standard_normal((2, 40))
    np.testing.assert_allclose(beyond.correlation(x, y), np.corrcoef(x, y)[0, 1])


# Errors


def chain_of(*shapes, ridge=0.0):
    weights = [np.ones(shape) for shape in shapes]
    return LinearChain(
        weights, np.eye(shapes[0][1]), np.ones((shapes[-1][0], shapes[0][1])), ridge=ridge
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: beyond.bulk([[1.0]], width=0), "width must be at least 1, got 0"),
        (lambda: beyond.bulk([1.0], width=3), "gradient must have 2 axes"),
        (lambda: beyond.bulk([[np.nan]], width=3), "gradient must be finite"),
        (
            lambda: beyond.bulk_vectors(np.ones((2, 1)), np.ones((1, 3)), [[1.0]], 0, 1),
            "second must have 2 columns to match first \\(2×1\\), got 1×3",
        ),
        (
            lambda: beyond.bulk_vectors(np.ones((2, 1)), np.ones((1, 2)), [[1.0, 2.0]], 0, 1),
            "gradient must be 1×1 to match second \\(1×2\\) and first \\(2×1\\), got 1×2",
        ),
        (
            lambda: beyond.bulk_vectors(np.ones((2, 1)), np.ones((1, 2)), [[1.0]], 1, 1),
            "index must be below 1",
        ),
        (
            lambda: beyond.bulk_vectors(np.ones((2, 1)), np.ones((1, 2)), [[1.0]], 0, 2),
            "sign must be 1 or -1, got 2",
        ),
        (
            lambda: beyond.reduced(np.ones((2, 1)), np.ones((1, 3))),
            "first must have as many rows as second has columns",
        ),
        (lambda: beyond.trace(chain_of((1, 2), (1, 1), (1, 1))), "chain must have 2 layers, got 3"),
        (lambda: beyond.trace(chain_of((1, 2), (1, 1), ridge=0.1)), "chain must have no ridge"),
        (
            lambda: beyond.spectrum_one_output(chain_of((2, 2), (3, 2))),
            "chain must have 1 output, got 3",
        ),
        (lambda: beyond.pair(1.0, 1.0, 9.0, -5.0), "k must satisfy"),
        (lambda: beyond.pair(-1.0, 1.0, 9.0, 1.0), "nu2 must be finite and not negative"),
        (
            lambda: beyond.solvable_spectrum(1, [1.0, 1.0], 1.0, 1.0, 1.0),
            "width must be at least D = 2, with D ≥ 1, got 1",
        ),
        (
            lambda: beyond.solvable_spectrum(3, [1.0, -1.0], 1.0, 1.0, 1.0),
            "nu2 must not be negative, got -1.0",
        ),
        (
            lambda: beyond.solvable_spectrum(3, [1.0, 1.0], 1.0, 2.0, 1.0),
            "k must satisfy \\(k s\\)² ≤ nu2\\[0\\]·w2 = 1",
        ),
        (
            lambda: beyond.solvable_chain(2, [1.0, 1.0], 1.0, 1.0, 1.0, np.random.default_rng(0)),
            "width must exceed D = 2, got 2",
        ),
        (
            lambda: beyond.quintic(1.0, 1.0, 1.0, 1.0, 1.0),
            "along and across must satisfy along² \\+ across² ≤ nu2·w2 = 1",
        ),
        (
            lambda: beyond.orthogonal_spectrum(chain_of((3, 1), (1, 3))),
            "weights\\[0\\] must be m×D with m ≥ D ≥ 2, got 3×1",
        ),
        (
            lambda: beyond.orthogonal_spectrum(chain_of((3, 2), (1, 3))),
            "weights\\[0\\] must have orthogonal columns",
        ),
        (
            lambda: beyond.orthogonal_spectrum(
                LinearChain([np.eye(2), np.ones((1, 2))], 2 * np.eye(2), np.ones((1, 2)))
            ),
            "sigma_xx must be the identity",
        ),
        (
            lambda: beyond.aligned_spectrum(3, [1.0], [1.0, 2.0], [1.0]),
            "a, b and g must have one length, got 1, 2 and 1",
        ),
        (
            lambda: beyond.aligned_spectrum(1, [1.0, 1.0], [1.0, 2.0], [1.0, 0.0]),
            "width must be at least D = 2",
        ),
        (
            lambda: beyond.sharpness_law(np.ones((3, 2)), np.ones((1, 3)), np.eye(3)),
            "sigma_xx must be 2×2 to match first, got 3×3",
        ),
        (lambda: beyond.knocked_out([]), "weights must hold at least one layer, got none"),
        (
            lambda: beyond.knocked_out([np.ones((2, 1)), np.ones((1, 3))]),
            "weights\\[1\\] must have 2 columns to match weights\\[0\\]",
        ),
        (lambda: beyond.distances([], [1.0]), "sums must not be empty"),
        (
            lambda: beyond.normalised_data(3, 4, True, np.random.default_rng(0)),
            "samples must be at least 5 for 3 inputs, got 4",
        ),
        (
            lambda: beyond.start("LeCun", (1, 2, 1), 1, np.random.default_rng(0)),
            "scheme must be one of SP, muP, NTP, got 'LeCun'",
        ),
        (
            lambda: beyond.relu_hessian([np.ones((1, 1))], [[1.0, 2.0]], [[1.0]]),
            "inputs and targets must have the same number of samples, at least 1, got 2 and 1",
        ),
        (
            lambda: beyond.relu_descend(
                [np.ones((1, 1, 1))], [[1.0, 2.0]], [[1.0, 1.0]], [1.0], [1.0], 1, [0.1]
            ),
            "inputs, targets and masses must have the same number of samples",
        ),
        (lambda: beyond.correlation([1.0], [1.0]), "x and y must have one length, at least 2"),
        (
            lambda: torch_product.cross_entropy_loss([[1.0, 2.0]], [0]),
            "labels must have 2 entries, got shape \\(1,\\)",
        ),
        (
            lambda: torch_product.attention_loss([[1.0], [2.0]], [[1.0]], 1.0),
            "Y must have the shape of X",
        ),
        (
            lambda: torch_product.relu_network_loss([[1.0, 2.0]], [[1.0]]),
            "X and Y must have the same number of columns",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
