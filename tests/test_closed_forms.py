"""Each closed form against automatic differentiation, over its whole legal domain."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import strategies as some
from exacthessian import LinearChain, Spectrum, autograd, product
from exacthessian.attention import Head
from exacthessian.autograd.product import product_gradient
from exacthessian.papers import cracking_the_hessian as cth
from exacthessian.scalar import TwoLayer

EXACT, HALF = 1e-12, 1e-6  # all digits; half of them, near a double root
often = settings(deadline=None, max_examples=50)


def close(found, true, scale=0.0, tol=EXACT):
    """Whether two arrays agree, relative to the largest entry of the second and a scale."""
    found, true = np.asarray(found, dtype=float), np.asarray(true, dtype=float)
    largest = max(np.abs(true).max(initial=0.0), scale)
    return bool(np.all(np.abs(found - true) <= tol * largest))


def gradient_of(model):
    loss, weights = autograd.loss_of(model)
    return torch.cat([part.ravel() for part in torch.func.grad(loss)(weights)]).numpy()


# Chains


@often
@given(some.chains())
def test_any_chain(chain):
    matrix = autograd.hessian(chain)
    parts = np.abs(chain.gauss_newton()).max() + np.abs(chain.functional()).max()
    assert close(chain.hessian(), matrix, parts)
    sizes = np.abs(chain.residual).max() * np.abs(chain.parameters()).max(initial=1.0)
    assert close(chain.gradient(), gradient_of(chain), sizes)


@often
@given(some.aligned_chains())
def test_any_aligned_chain(aligned):
    assert aligned.spectrum().distance(autograd.spectrum(aligned.to_chain())) < EXACT


# A product of two matrices


def counts_at_least(spectrum, wanted):
    """Whether a spectrum has every value of another one, as often at least."""
    width = 1e-9 * max(spectrum.norm, 1.0)
    for value in np.unique(wanted.values.round(12)):
        near = np.abs(wanted.values - value) <= width
        needed = int(wanted.multiplicities[near].sum())
        assert spectrum.count(value - width, value + width) >= needed, value
    return True


@often
@given(some.chains(least=2, most=2, ridge=False))
@example(LinearChain([np.ones((1, 3)), np.ones((2, 1))], np.eye(3), [[0.0, 1, 2], [1, 2, 3]]))
def test_any_product(chain):
    exact, width = autograd.spectrum(chain), chain.widths[1]
    gradient = product_gradient(*_of_product(chain))
    assert close(gradient, chain.residual, 10.0)
    assert counts_at_least(exact, product.bulk(chain.residual, width))
    assert product.spectrum_by_reduction(chain).distance(exact) < EXACT
    law = product.sharpness_law(chain.weights, chain.sigma_xx)
    assert close(law, np.linalg.eigvalsh(chain.gauss_newton())[-1], 1e-9)
    sigma = np.linalg.svd(chain.residual, compute_uv=False)
    for index, sign in [(i, s) for i in range(len(sigma)) for s in (1, -1)]:
        vectors = product.bulk_vectors(*chain.weights, chain.residual, index, sign)
        assert vectors.shape[1] >= width - sum(chain.residual.shape) + 1
        assert close(chain.hvp(vectors), sign * sigma[index] * vectors, exact.norm, 1e-10)


def _of_product(chain):
    return autograd.loss_of(chain)


@often
@given(some.chains(least=2, most=2, outputs=1, ridge=False))
def test_any_product_with_one_output(chain):
    assert product.spectrum_one_output(chain).distance(autograd.spectrum(chain)) < EXACT


@often
@given(st.integers(1, 4), st.integers(1, 5), st.data())
def test_any_solvable_product(inputs, width, data):
    """White inputs and orthogonal columns of V, the first of them along the residual."""
    sizes, along = data.draw(some.vectors(inputs)), data.draw(some.entries)
    first, second = np.eye(width, inputs) * sizes, data.draw(some.vectors(width))
    second[1 : min(width, inputs)] = 0.0
    wanted = second @ first - along * np.eye(inputs)[0]
    chain = LinearChain([first, second[None]], np.eye(inputs), wanted[None])
    if width < inputs:
        with pytest.raises(ValueError, match="chain must have as many hidden units as inputs"):
            product.solvable_spectrum(chain)
    else:
        assert product.solvable_spectrum(chain).distance(autograd.spectrum(chain)) < EXACT


def test_the_sharpness_law_of_a_table_of_networks():
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal((2, 3, *shape)) for shape in ((4, 2), (3, 4), (2, 3))]
    for used in (layers, [layers[0], rng.standard_normal((2, 3, 3, 4))]):
        law = product.sharpness_law(used, np.diag([1.0, 2.0]))
        for place in np.ndindex(2, 3):
            one = [layer[place] for layer in used]
            chain = LinearChain(one, np.diag([1.0, 2.0]), np.zeros((len(one[-1]), 2)))
            assert law[place] == pytest.approx(np.linalg.eigvalsh(chain.gauss_newton())[-1])


# Two layers of numbers


@often
@given(some.two_layers(), st.sampled_from([1, -1]), st.data())
@example(TwoLayer([0.1, 0.2], [0.1, 0.2], 1.0, 2 * (0.1 * 0.1 + 0.2 * 0.2)), 1, None)
@example(TwoLayer([0.3], [0.3], 1.0, 2 * (0.3 * 0.3)), 1, None)
def test_any_two_layers(network, sign, data):
    matrix, exact = autograd.hessian(network), autograd.spectrum(network)
    assert network.spectrum().distance(exact) < EXACT
    assert cth.theorem_3_1(network).distance(exact) < HALF
    vectors, norm = network.outlier_vectors(), exact.norm
    assert close(vectors.T @ vectors, np.eye(2))
    assert close(matrix @ vectors, vectors * network.outliers(), norm)
    top, second = network.outliers()
    assert close(
        network.gradient(), gradient_of(network), norm * np.abs(network.parameters()).max()
    )
    assert close(cth.equation_122(network), [top, second], norm, HALF)
    assert close(cth.equation_2(network).sum(), (top - second) ** 2, norm**2)
    along = matrix @ network.gradient()
    assert close(cth.equation_12(network), along, norm**2 * np.abs(network.parameters()).max())
    assert close(cth.statement_lambda_min(network), exact.expand()[-1], norm)
    z = cth.theorem_3_2(network)
    assert close(matrix @ z, z * [top, second], norm**2 * np.abs(network.parameters()).max())
    c = data.draw(some.vectors(network.width)) if data else np.ones(network.width)
    z = cth.theorem_3_3(network, sign, c)
    assert close(matrix @ z, sign * abs(network.d) * z, 10 * norm)
    if network.s2 and abs(second) > HALF * norm:
        assert cth.statement_learning_phases(network) == np.sign(second)
    eta = 0.1 / (norm or 1.0)
    moved = network.step(eta).step(eta / 2)
    assert close(cth.corollary_3_1(network, [eta, eta / 2]), moved.parameters(), 1e-300)


@often
@given(st.lists(some.two_layers(), min_size=1, max_size=3))
def test_any_separate_heads(networks):
    width = networks[0].width
    heads = [one for one in networks if one.width == width]
    exact, matrix = autograd.spectrum(heads), autograd.hessian(heads)
    assert cth.corollary_b_2(heads).distance(exact) < HALF
    pairs = np.concatenate([head.outliers() for head in heads])
    size = max(np.abs(head.parameters()).max() for head in heads)
    z = cth.corollary_b_3(heads)
    assert close(matrix @ z, z * pairs, exact.norm**2 * size)


@often
@given(st.integers(1, 3), st.integers(1, 4), st.data())
def test_any_separate_inputs(inputs, width, data):
    w, v, root = (data.draw(some.matrices(inputs, n)) for n in (width, width, 2))
    sigma, yx = root @ root.T, root @ data.draw(some.vectors(2))
    moments, cross = autograd.tensors([sigma, yx])

    def loss(weights):
        slopes = (weights[0] * weights[1]).sum(1)
        return slopes @ moments @ slopes / 2 - slopes @ cross

    exact = Spectrum.from_matrix(autograd.dense_hessian(loss, autograd.tensors([v, w])))
    assert cth.corollary_b_1(w, v, sigma, yx).distance(exact) < EXACT


# ReLU


@often
@given(some.relu_networks())
def test_any_relu_network(network):
    matrix, exact = autograd.hessian(network), autograd.spectrum(network)
    assert network.spectrum().distance(exact) < EXACT
    assert cth.theorem_3_4(network).distance(exact) < HALF
    assert close(network.gradient(), gradient_of(network), 10.0)
    norm = max(exact.norm, 1.0)
    for name, cell in network.cells.items():
        assert close(
            cell.d, cth.statement_relu_bulk(network, name) if _met(network, name) else 0.0, norm
        )
        z = cth.equation_62(network, name)
        assert close(matrix @ z, z * cell.outliers(), 10 * norm**2)
        if _met(network, name):
            assert close(cth.equation_63(network, name), cell.outliers(), norm, HALF)
        else:  # there is no mean over no samples
            with pytest.raises(ValueError, match="equation_63 has no value at network"):
                cth.equation_63(network, name)


def _met(network, cell):
    return bool(np.any(network.x > 0 if cell == "plus" else network.x <= 0))


# Bias


@often
@given(some.bias_chains())
def test_any_network_with_bias(chain):
    exact, found = autograd.spectrum(chain), cth.theorem_b_1(chain)
    assert found.distance(exact) < HALF
    assert product.solvable_spectrum(chain).distance(exact) < EXACT
    low, high = cth.statement_bias_bounds(chain)
    triple, slack = found.select("triple").values, HALF * (exact.norm or 1.0)
    assert low - slack <= triple.min() <= triple.max() <= high + slack


# Attention


def check_numbered_forms(layer, exact):
    head, norm = layer.head(), exact.norm or 1.0
    assert cth.theorem_3_5(layer).distance(exact) < 1e-5  # a triple root leaves a third
    outliers = head.outliers()
    t, e, f = cth.statement_attention_cubic(layer)
    wanted = np.poly(outliers)[1:] / norm ** np.arange(1, 4)
    assert close(-np.array([t, e, f]) / norm ** np.arange(1, 4), wanted, 1.0)
    mu, xi = outliers - outliers.mean(), cth.theorem_3_5_xi(layer)
    p, q = cth.statement_depressed_cubic(layer)
    assert close([p / norm**2, q / norm**3], [-mu @ mu / norm**2 / 2, -mu.prod() / norm**3], 1.0)
    assert np.abs(mu).max() <= xi + HALF * norm
    low, high = cth.remark_b_4(layer)
    assert low - HALF * norm <= exact.values.max() <= high + HALF * norm
    moduli = np.abs(exact.values)
    if abs(head.gamma) > HALF * norm and moduli.min() > HALF * norm:
        assert cth.remark_3_1(layer) <= moduli.max() / moduli.min() * (1 + HALF)
    if head.gamma == 0:
        pair = cth.remark_b_3(layer)
        kept = np.delete(outliers, np.abs(outliers).argmin())
        assert close(np.sort(pair), np.sort(kept), norm, HALF)


@often
@given(some.heads())
def test_any_head(head):
    exact = autograd.spectrum(head)
    assert head.spectrum().distance(exact) < EXACT
    assert head.norm == pytest.approx(np.sum(head.query**2) + np.sum(head.key**2))
    check_numbered_forms(head, exact)


@often
@given(some.attention_layers())
@example(some.ScalarAttention(1.0, [0.0], [0.0], [[2.0, 2.0]], [[0.0, 1.0]]))
def test_any_attention_layer(layer):
    exact, matrix = autograd.spectrum(layer), autograd.hessian(layer)
    scale = max(exact.norm, 1e-3)
    assert close(layer.spectrum().expand(), exact.expand(), scale)
    assert close(layer.gradient(), gradient_of(layer), 100.0)
    block = np.linalg.eigvalsh(matrix[1:, 1:])[::-1]
    assert close(cth.remark_b_2(layer).expand(), block, scale, HALF)
    if exact.norm > 1e-3:
        check_numbered_forms(layer, exact)


def test_a_layer_checks_every_bias():
    with pytest.raises(ValueError, match="biases must be"):
        some.ScalarAttention(
            1.0, [1.0], [1.0], [[1.0], [1.0, 2.0]], [[0.0], [0.0, 0.0]], biases=[[0.0], [0.0]]
        )


def test_a_head_by_hand():
    assert Head(1, 0, 0, 0, [3.0, 0.0], [0.0, 4.0]).norm == 25
