"""The numbered forms of "Cracking the Hessian" against autograd, and the studies of the chapter."""

import ast
import sys

import numpy as np
import pytest
import torch

from conftest import ROOT
from exacthessian import LinearChain, Spectrum, autograd
from exacthessian.attention import Head, ScalarAttention
from exacthessian.papers import cracking_the_hessian as cth
from exacthessian.scalar import ReluNetwork, TwoLayer
from exacthessian.studies import cracking_the_hessian as studies

sys.path.append(str(ROOT / "benchmarks"))
import kept_studies as long


def linear(seed: int, m: int = 4) -> TwoLayer:
    rng = np.random.default_rng(seed)
    return TwoLayer.from_samples(*rng.standard_normal((2, m)), *rng.standard_normal((2, 6)))


@pytest.mark.parametrize("seed", range(8))
def test_linear_network(seed: int) -> None:
    network = linear(seed, m=1 + seed)
    matrix, spectrum = autograd.hessian(network), autograd.spectrum(network)
    assert cth.theorem_3_1(network).distance(spectrum) < 1e-10
    assert cth.equation_122(network) == pytest.approx(network.outliers(), abs=1e-10)
    top, second = network.outliers()
    assert cth.equation_2(network).sum() == pytest.approx((top - second) ** 2)
    assert cth.equation_12(network) == pytest.approx(matrix @ network.gradient())
    assert cth.statement_lambda_min(network) == pytest.approx(spectrum.expand()[-1])
    z = cth.theorem_3_2(network)
    assert matrix @ z == pytest.approx(z * network.outliers(), abs=1e-9)
    for sign in (1, -1):
        z = cth.theorem_3_3(network, sign, np.arange(1.0, network.width + 1))
        assert matrix @ z == pytest.approx(sign * abs(network.d) * z, abs=1e-10)
    assert cth.statement_learning_phases(network) == np.sign(second)
    etas = [0.01, 0.02, 0.03]
    end = network
    for eta in etas:
        end = end.step(eta)
    assert cth.corollary_3_1(network, etas) == pytest.approx(end.parameters())


@pytest.mark.parametrize("seed", range(8))
def test_relu_network(seed: int) -> None:
    rng = np.random.default_rng(seed)
    v, x = np.array([1.0, -1, 2, -2]) + rng.uniform(0, 0.5, 4), np.array([1.0, -1, 2, -0.5])
    network = ReluNetwork(rng.standard_normal(4), v, x, rng.standard_normal(4))
    matrix = autograd.hessian(network)
    assert cth.theorem_3_4(network).distance(autograd.spectrum(network)) < 1e-12
    for name, cell in network.cells.items():
        pair = cth.equation_63(network, name)
        assert pair == pytest.approx(cell.outliers())
        z = cth.equation_62(network, name)
        assert matrix @ z == pytest.approx(z * pair, abs=1e-9)
        assert cth.statement_relu_bulk(network, name) == pytest.approx(cell.d)


def test_bias() -> None:
    w = [[1.0, 1.0, 2.0, 0.5]]
    chain = LinearChain([1.3 * np.eye(4)[:, :2], w], np.eye(2), np.zeros((1, 2)))
    found = cth.theorem_b_1(chain)
    assert found.distance(autograd.spectrum(chain)) < 1e-10
    low, high = cth.statement_bias_bounds(chain)
    triple = found.select("triple").values
    assert low < triple.min() <= triple.max() < high


def test_direct_sums() -> None:
    heads = [linear(seed) for seed in range(3)]
    matrix = autograd.hessian(heads)
    assert cth.corollary_b_2(heads).distance(autograd.spectrum(heads)) < 1e-12
    z, pairs = cth.corollary_b_3(heads), np.concatenate([head.outliers() for head in heads])
    assert matrix @ z == pytest.approx(z * pairs, abs=1e-9)


@pytest.mark.parametrize("inputs", [1, 3])
def test_separate_inputs(inputs: int) -> None:
    rng = np.random.default_rng(inputs)
    (w, v), x = rng.standard_normal((2, inputs, 4)), rng.standard_normal((inputs, 5))
    sigma, yx = x @ x.T, rng.standard_normal(inputs)
    data, cross = autograd.tensors([sigma, yx])

    def loss(weights: list[torch.Tensor]) -> torch.Tensor:
        slopes = (weights[0] * weights[1]).sum(1)
        return slopes @ data @ slopes / 2 - slopes @ cross

    exact = Spectrum.from_matrix(autograd.dense_hessian(loss, autograd.tensors([v, w])))
    assert cth.corollary_b_1(w, v, sigma, yx).distance(exact) < 1e-12
    parts = [TwoLayer(*row) for row in zip(w, v, np.diag(sigma), yx, strict=True)]
    united = Spectrum.merge(part.spectrum() for part in parts)
    assert cth.corollary_b_1(w, v, np.diag(np.diag(sigma)), yx).distance(united) < 1e-12


@pytest.mark.parametrize("seed", range(12))
def test_attention(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = 2 * rng.standard_normal((2, 1, 4))
    layer = ScalarAttention(1.5, *rng.standard_normal((2, 1 + seed % 4)), list(x), list(y))
    exact, outliers = autograd.spectrum(layer), layer.head().outliers()
    assert cth.theorem_3_5(layer).distance(exact) < 1e-6
    t, e, f = cth.statement_attention_cubic(layer)
    assert np.poly(outliers) == pytest.approx([1, -t, -e, -f], rel=1e-8, abs=1e-8)
    mu, xi = outliers - outliers.mean(), cth.theorem_3_5_xi(layer)
    assert cth.statement_depressed_cubic(layer) == pytest.approx((-mu @ mu / 2, -mu.prod()))
    assert np.abs(mu).max() <= xi * (1 + 1e-9)
    low, high = cth.remark_b_4(layer)
    assert low * (1 - 1e-9) <= exact.values.max() <= high * (1 + 1e-9)
    moduli = np.abs(exact.values)
    assert cth.remark_3_1(layer) <= moduli.max() / moduli.min() * (1 + 1e-7)
    block = np.linalg.eigvalsh(autograd.hessian(layer)[1:, 1:])[::-1]
    assert cth.remark_b_2(layer).expand() == pytest.approx(block, abs=1e-8)


def test_attention_without_slope() -> None:
    head = Head(1.0, 0.5, 0.0, 2.0, np.array([1.0, 2.0]), np.array([0.0, 1.0]))
    assert sorted(cth.remark_b_3(head)) == pytest.approx(sorted(head.outliers()[[0, 1]]), abs=1e-9)


@pytest.mark.parametrize("name", long.STUDIES)
def test_kept_numbers_are_those_of_the_present_code(name: str) -> None:
    """If this fails: python benchmarks/kept_studies.py NAME."""
    study, settings = long.STUDIES[name]
    assert studies.kept(name, "settings") == settings
    assert studies.kept(name, "key") == long.key(study, settings)


def test_a_study_with_other_settings_runs() -> None:
    found = long.pairs(inputs=[2], seeds=[0], models=1, draws=5)
    assert all(len(rows) == 1 for rows in found.values())
    study, settings = long.STUDIES["white_norms"]
    change = {"schemes": ["SP"], "sizes": [2], "seeds": [0], "networks": 4, "steps": 60}
    small = study(**settings | change)
    assert small["SP 2"][0]["residual"] < 1e-6


def test_a_change_of_code_makes_a_new_key_and_a_comment_does_not() -> None:
    one, other, same = (
        ast.dump(long._tree(source))
        for source in (
            "def f(x):\n    return x",
            "def f(x):\n    return 2 * x",
            'def f(x):\n    """Doc."""\n    return x  # x',
        )
    )
    assert one == same != other


def test_a_key_knows_what_a_study_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: long.key(*study) for name, study in long.STUDIES.items()}
    monkeypatch.setattr(studies, "REFRESH", 21)
    after = {name: long.key(*study) for name, study in long.STUDIES.items()}
    changed = {name for name in before if before[name] != after[name]}
    assert {"norms", "wide_norms", "widest_norms", "white_norms", "products"} <= changed
    assert not {"pairs", "relu_norms"} & changed


def test_descents_of_stacks_reach_their_minima() -> None:
    rng = np.random.default_rng(0)
    layers = studies.start("muP", (2, 9, 2), 3, rng)
    target = np.array([[1.0, 0.2], [0.0, 0.5]])
    first, second = studies.descend(layers, np.eye(2), target, studies.rates("muP", (2, 9, 2)), 600)
    assert second @ first == pytest.approx(np.broadcast_to(target, (3, 2, 2)), abs=1e-6)
    x, y = np.array([[1.0, -1.0]]), np.array([[1.0, 0.5]])
    layers = long.relu_descend(studies.start("NTP", (1, 30, 1), 3, rng), x, y, [1, 1], 2000)
    law = long.relu_sharpness_law(layers, x)
    for i in range(3):
        values = long.relu_eigenvalues(x, y, [layer[i] for layer in layers])
        assert law[i] == pytest.approx(values[-1], rel=1e-3)


def test_three_numbers_are_the_five_weights() -> None:
    value, query, key = np.array([0.3]), np.array([[0.1, 0.4]]), np.array([[0.2, -0.1]])
    run = studies.reverse_two_tokens(np.array([[0.9, -0.7]]), value, query, key, 0.5, 20)
    layer = ScalarAttention(0.3, query[0], key[0], [[0.9, -0.7]], [[-0.7, 0.9]])
    for t in range(21):
        assert run.loss[t, 0] == pytest.approx(layer.loss())
        assert run.sharpness[t, 0] == pytest.approx(layer.sharpness())
        layer = layer.step(0.5)
