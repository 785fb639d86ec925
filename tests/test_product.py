"""Any loss of a product of two matrices: bulk, reduction, sharpness; against autograd."""

import numpy as np
import pytest
import torch

from exacthessian import LinearChain, Spectrum, autograd, product
from exacthessian.autograd.product import product_gradient


def chain_of(m: int, inputs: int, outputs: int, seed: int, samples: int = 40) -> LinearChain:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((inputs, inputs)) @ rng.standard_normal((inputs, samples))
    weights = [rng.standard_normal((m, inputs)), rng.standard_normal((outputs, m))]
    return LinearChain.from_data(x, rng.standard_normal((outputs, samples)), weights)


@pytest.mark.parametrize(("inputs", "outputs", "m"), [(1, 2, 5), (2, 2, 6), (3, 1, 7), (3, 3, 9)])
def test_the_bulk_of_a_loss_that_is_not_quadratic(inputs: int, outputs: int, m: int) -> None:
    rng = np.random.default_rng(m)
    x = torch.from_numpy(rng.standard_normal((inputs, 20)))

    def loss(weights: list[torch.Tensor]) -> torch.Tensor:
        logits = weights[1] @ weights[0] @ x + weights[2][:, None]
        return torch.logsumexp(logits, 0).mean() + torch.sin(logits).sum() / 20

    weights = [rng.standard_normal(s) / 2 for s in ((m, inputs), (outputs, m), (outputs,))]
    tensors = autograd.tensors(weights)
    matrix = autograd.dense_hessian(loss, tensors)
    gradient = product_gradient(loss, tensors)
    found = Spectrum.from_matrix((matrix + matrix.T) / 2)
    for value, count, label in zip(*vars(product.bulk(gradient, m)).values(), strict=True):
        exact = found.count(value - 1e-10, value + 1e-10)
        assert exact == count if label == "bulk" else exact >= count
    for i, s in enumerate(np.linalg.svd(gradient, compute_uv=False)):
        for sign in (1, -1):
            z = product.bulk_vectors(*weights[:2], gradient, i, sign)
            z = np.vstack([z, np.zeros((outputs, z.shape[1]))])
            assert z.shape[1] >= m - inputs - outputs + 1
            assert matrix @ z == pytest.approx(sign * s * z, abs=1e-11)


@pytest.mark.parametrize("m", [1, 2, 5, 8])
@pytest.mark.parametrize("inputs", [1, 3, 4])
def test_one_output_for_any_data_and_weights(m: int, inputs: int) -> None:
    chain = chain_of(m, inputs, 1, seed=m)
    flat = LinearChain(chain.weights, chain.sigma_xx, chain.product @ chain.sigma_xx)
    dead = LinearChain([chain.weights[0], 0 * chain.weights[1]], chain.sigma_xx, chain.sigma_yx)
    for one in (chain, flat, dead, chain_of(m, inputs, 1, seed=m, samples=1)):
        assert product.spectrum_one_output(one).distance(autograd.spectrum(one)) < 1e-12


@pytest.mark.parametrize("k", [1.0, 0.4, -0.7])
@pytest.mark.parametrize("nu2", [[1.3], [1.0] * 4, [2.0, 0.7, 1.1, 0.0]])
def test_the_solvable_family(k: float, nu2: list[float]) -> None:
    hidden = np.linalg.qr(np.random.default_rng(0).standard_normal((7, 7)))[0]
    along = 0.9 * k / np.sqrt(nu2[0])
    first = hidden[:, : len(nu2)] * np.sqrt(nu2)
    second = along * hidden[:, 0] + np.sqrt(3.0 - along**2) * hidden[:, -1]
    target = second @ first - 0.9 * np.eye(len(nu2))[0]
    chain = LinearChain([first, second[None]], np.eye(len(nu2)), target[None])
    assert product.solvable_spectrum(chain).distance(autograd.spectrum(chain)) < 1e-12
    solved = LinearChain(chain.weights, chain.sigma_xx, chain.product)
    assert product.solvable_spectrum(solved).distance(autograd.spectrum(solved)) < 1e-12
    coloured = LinearChain(chain.weights, 2 * chain.sigma_xx, chain.sigma_yx)
    with pytest.raises(ValueError, match=r"^chain must have white inputs"):
        product.solvable_spectrum(coloured)


@pytest.mark.parametrize(("inputs", "outputs", "m"), [(2, 3, 1), (3, 2, 4), (2, 2, 9), (1, 4, 8)])
def test_reduction_and_law(inputs: int, outputs: int, m: int) -> None:
    chain = chain_of(m, inputs, outputs, seed=1)
    exact, parts = autograd.spectrum(chain), Spectrum.from_matrix(chain.gauss_newton())
    assert product.spectrum_by_reduction(chain).distance(exact) < 1e-12
    law = product.sharpness_law(chain.weights, chain.sigma_xx)
    assert law == pytest.approx(parts.values[0])
    assert abs(law - exact.values[0]) <= np.linalg.norm(chain.residual, 2) * (1 + 1e-12)


def test_the_law_of_deep_networks_and_of_stacks() -> None:
    rng = np.random.default_rng(2)
    layers = [rng.standard_normal((5, *shape)) for shape in ((4, 2), (3, 4), (2, 3))]
    sigma = np.diag([1.0, 2.0])
    law = product.sharpness_law(layers, sigma)
    for i in range(5):
        chain = LinearChain([layer[i] for layer in layers], sigma, np.zeros((2, 2)))
        assert law[i] == pytest.approx(np.linalg.eigvalsh(chain.gauss_newton())[-1])


def test_what_is_no_two_layer_network_is_refused() -> None:
    deep = LinearChain([np.eye(2)] * 3, np.eye(2), np.eye(2))
    with pytest.raises(ValueError, match=r"^chain must have 2 layers and no ridge"):
        product.spectrum_by_reduction(deep)
    with pytest.raises(ValueError, match=r"^chain must have 1 output, got 2$"):
        product.spectrum_one_output(chain_of(3, 2, 2, seed=0))
