"""The oracle against truths that automatic differentiation does not touch.

Hessians on paper (quadratic forms, Kronecker products, logistic and softmax regression, scalar
networks), finite differences, and torch's other route to a Hessian.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from exacthessian.autograd.oracle import (
    CHUNK,
    dense_hessian,
    gauss_newton_operator,
    hessian_operator,
    linear_chain_loss,
    linear_chain_sample_loss,
    tensors,
)

SEEDS = st.integers(0, 2**32 - 1)


def dense_gauss_newton(model, loss, parameters, inputs=None, targets=None):
    """The dense matrix of a model and a loss, with their data bound if there are any."""
    outputs = model if inputs is None else lambda w: model(w, inputs)
    risk = loss if targets is None else lambda z: loss(z, targets)
    operator = gauss_newton_operator(outputs, risk, parameters)
    return operator @ np.eye(operator.shape[0])


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260117)


def assert_close(found, wanted, tolerance=1e-12):
    """Equal up to `tolerance` times the largest wanted entry, and float64."""
    assert found.dtype == np.float64
    assert found.shape == np.shape(wanted)
    assert np.abs(found - wanted).max() <= tolerance * max(np.abs(wanted).max(), 1e-300)


def second_differences(value: Callable[[np.ndarray], float], at: np.ndarray, step=1e-3):
    """Fourth-order second differences of the values of a function alone."""

    def central(h):
        size = len(at)
        result = np.empty((size, size))
        for p in range(size):
            for q in range(size):
                e, f = np.zeros(size), np.zeros(size)
                e[p] = f[q] = h
                result[p, q] = (
                    value(at + e + f) - value(at + e - f) - value(at - e + f) + value(at - e - f)
                ) / (4 * h**2)
        return result

    return (4 * central(step / 2) - central(step)) / 3


def tanh_network(rng):
    """A 3-4-2 network with tanh: (model, parameters, inputs, labels)."""
    parameters = tensors(
        [rng.normal(size=(4, 3)), rng.normal(size=4), rng.normal(size=(2, 4)), rng.normal(size=2)]
    )
    inputs = torch.from_numpy(rng.normal(size=(7, 3)))

    def model(w, x):
        return torch.tanh(x @ w[0].T + w[1]) @ w[2].T + w[3]

    return model, parameters, inputs, torch.tensor([0, 1, 1, 0, 1, 0, 0])


def numpy_network(theta, x):
    """The same network in NumPy, from the flat row-major vector of its parameters."""
    first, bias, last, shift = np.split(theta, [12, 16, 24])
    hidden = np.tanh(x @ first.reshape(4, 3).T + bias)
    return hidden @ last.reshape(2, 4).T + shift


def flat(parameters):
    return np.concatenate([w.numpy().ravel() for w in parameters])


# --- Hessians on paper -------------------------------------------------------------------------


def test_quadratic_form_gives_its_matrix(rng):
    form = rng.normal(size=(11, 11))
    slope = rng.normal(size=11)
    matrix, vector = torch.from_numpy(form), torch.from_numpy(slope)

    def function(w):
        numbers = [w[0][i, j] for i in range(2) for j in range(3)] + [w[1]] + list(w[2])
        theta = torch.stack(numbers)
        return theta @ matrix @ theta / 2 + vector @ theta

    parameters = tensors([rng.normal(size=(2, 3)), rng.normal(), rng.normal(size=4)])
    assert_close(dense_hessian(function, parameters), (form + form.T) / 2)


def test_vectorisation_is_row_major(rng):
    a, b = rng.normal(size=(5, 3)), rng.normal(size=(4, 6))
    left, right = torch.from_numpy(a), torch.from_numpy(b)
    hessian = dense_hessian(
        lambda w: ((left @ w[0] @ right) ** 2).sum() / 2, tensors([rng.normal(size=(3, 4))])
    )
    assert_close(hessian, np.kron(a.T @ a, b @ b.T))


def test_logistic_regression(rng):
    x, w = rng.normal(size=(20, 4)), rng.normal(size=4)
    sign = rng.choice([-1.0, 1.0], size=20)
    features, signs = torch.from_numpy(x), torch.from_numpy(sign)
    p = 1 / (1 + np.exp(-x @ w))
    wanted = (x.T * (p * (1 - p))) @ x / 20
    found = dense_hessian(
        lambda w: functional.softplus(-signs * (features @ w[0])).mean(), tensors([w])
    )
    assert_close(found, wanted)
    gauss_newton = dense_gauss_newton(
        lambda w, x: x @ w[0],
        lambda z, s: functional.softplus(-s * z).mean(),
        tensors([w]),
        features,
        signs,
    )
    assert_close(gauss_newton, wanted)


def softmax_hessian(x, w):
    """1/N Σ_n (diag p_n − p_n p_nᵀ) ⊗ x_n x_nᵀ."""
    total = 0
    for sample in x:
        p = np.exp(w @ sample)
        p /= p.sum()
        total = total + np.kron(np.diag(p) - np.outer(p, p), np.outer(sample, sample))
    return total / len(x)


@pytest.mark.parametrize("labels", ["classes", "probabilities"])
def test_softmax_cross_entropy(rng, labels):
    x, w = rng.normal(size=(9, 4)), rng.normal(size=(3, 4))
    features = torch.from_numpy(x)
    classes = torch.from_numpy(rng.integers(3, size=9))
    targets = classes if labels == "classes" else functional.one_hot(classes, 3).double()
    model, loss = (lambda w, x: x @ w[0].T), nn.CrossEntropyLoss()
    hessian = dense_hessian(lambda w: loss(model(w, features), targets), tensors([w]))
    assert_close(hessian, softmax_hessian(x, w))
    gauss_newton = dense_gauss_newton(model, loss, tensors([w]), features, targets)
    assert_close(gauss_newton, softmax_hessian(x, w))


def test_two_layer_scalar_network_by_hand():
    a, b, x, y = 0.7, -1.3, 2.0, 0.4
    wanted = [
        [b**2 * x**2, 2 * a * b * x**2 - x * y],
        [2 * a * b * x**2 - x * y, a**2 * x**2],
    ]
    assert_close(
        dense_hessian(lambda w: (w[1] * w[0] * x - y) ** 2 / 2, tensors([a, b])), np.array(wanted)
    )


def test_three_layer_scalar_network_by_hand():
    a, b, c, y = 0.7, -1.3, 1.9, 0.4
    r = a * b * c - y
    wanted = [
        [(b * c) ** 2, b * c * a * c + r * c, b * c * a * b + r * b],
        [b * c * a * c + r * c, (a * c) ** 2, a * c * a * b + r * a],
        [b * c * a * b + r * b, a * c * a * b + r * a, (a * b) ** 2],
    ]
    found = dense_hessian(lambda w: (w[2] * w[1] * w[0] - y) ** 2 / 2, tensors([a, b, c]))
    assert_close(found, np.array(wanted))


def test_scalar_tanh_network_by_hand():
    a, b, x, y = 0.7, -0.6, 1.5, 0.4
    t = np.tanh(b * x)
    first = (1 - t**2) * x  # ∂t/∂b
    second = -2 * t * (1 - t**2) * x**2  # ∂²t/∂b²
    r = a * t - y
    gauss_newton = np.array([[t * t, t * a * first], [t * a * first, (a * first) ** 2]])
    functional_part = np.array([[0, r * first], [r * first, r * a * second]])

    def model(w):
        return w[0] * torch.tanh(w[1] * x)

    def loss(z):
        return (z - y) ** 2 / 2

    assert_close(
        dense_hessian(lambda w: loss(model(w)), tensors([a, b])), gauss_newton + functional_part
    )
    assert_close(dense_gauss_newton(model, loss, tensors([a, b])), gauss_newton)


def test_cubic_loss_makes_gauss_newton_more_than_jtj():
    w = 1.1  # z = w², ℓ = z³: G = (2w)² · 6z
    found = dense_gauss_newton(lambda w: w[0] ** 2, lambda z: z**3, tensors([w]))
    assert_close(found, np.array([[24 * w**4]]))


@pytest.mark.parametrize(
    "function", [lambda w: w[0].sum(), lambda w: torch.zeros((), dtype=w[0].dtype)]
)
def test_linear_and_constant_functions_have_no_curvature(function):
    assert not dense_hessian(function, tensors([[1.0, 2.0], 3.0])).any()


def test_relu_away_from_its_kink():
    # max(0, w)² for w > 0 and w < 0
    found = dense_hessian(lambda w: (torch.relu(w[0]) ** 2).sum(), tensors([[1.5, -0.5]]))
    assert_close(found, np.diag([2.0, 0.0]))


# --- finite differences and torch's other route ------------------------------------------------


def test_tanh_network_against_differences_of_values(rng):
    model, parameters, x, labels = tanh_network(rng)

    def value(theta):
        z = numpy_network(theta, x.numpy())
        chosen = z[np.arange(len(z)), labels.numpy()]
        return np.mean(np.log(np.exp(z).sum(axis=1)) - chosen)

    found = dense_hessian(lambda w: functional.cross_entropy(model(w, x), labels), parameters)
    assert_close(found, second_differences(value, flat(parameters)), 1e-6)


def test_gauss_newton_is_jacobian_curvature_jacobian(rng):
    model, parameters, x, labels = tanh_network(rng)
    theta = flat(parameters)
    jacobian = np.empty((14, theta.size))
    for p in range(theta.size):
        e = np.zeros(theta.size)
        e[p] = 1e-5
        rise = numpy_network(theta + e, x.numpy()) - numpy_network(theta - e, x.numpy())
        jacobian[:, p] = rise.ravel() / 2e-5
    p = np.exp(numpy_network(theta, x.numpy()))
    p /= p.sum(axis=1, keepdims=True)
    curvature = np.zeros((14, 14))
    for n, row in enumerate(p):
        curvature[2 * n : 2 * n + 2, 2 * n : 2 * n + 2] = (np.diag(row) - np.outer(row, row)) / 7
    found = dense_gauss_newton(model, functional.cross_entropy, parameters, x, labels)
    assert_close(found, jacobian.T @ curvature @ jacobian, 1e-8)


@pytest.mark.parametrize(
    "loss",
    [
        functional.cross_entropy,
        lambda z, t: ((z - t[:, None]) ** 2).sum() / 2,
        lambda z, t: functional.mse_loss(z, t[:, None].double().expand(-1, 2)),
        lambda z, t: torch.logsumexp(z, 1).pow(3).sum() + z[:, 0] @ t.double(),
    ],
    ids=["cross-entropy", "square", "mse_loss", "non-convex"],
)
def test_gauss_newton_plus_functional_is_the_hessian(rng, loss):
    """H = G + Σ_k ∂ℓ/∂z_k ∇²z_k: the second part is the Hessian of ⟨∇ℓ, z⟩ with ∇ℓ held fixed."""
    model, parameters, x, targets = tanh_network(rng)
    outputs = model(parameters, x).requires_grad_()
    (slope,) = torch.autograd.grad(loss(outputs, targets), outputs)
    functional_part = dense_hessian(lambda w: (slope * model(w, x)).sum(), parameters)
    gauss_newton = dense_gauss_newton(model, loss, parameters, x, targets)
    hessian = dense_hessian(lambda w: loss(model(w, x), targets), parameters)
    assert np.abs(functional_part).max() > 0.01 * np.abs(hessian).max()
    assert_close(gauss_newton + functional_part, hessian)


def test_agrees_with_torch_autograd_functional(rng):
    model, parameters, x, labels = tanh_network(rng)

    def function(*w):
        return functional.cross_entropy(model(w, x), labels)

    blocks = torch.autograd.functional.hessian(function, tuple(parameters))
    wanted = np.block(
        [
            [
                block.reshape(w.numel(), v.numel()).numpy()
                for block, v in zip(row, parameters, strict=True)
            ]
            for row, w in zip(blocks, parameters, strict=True)
        ]
    )
    found = dense_hessian(lambda w: function(*w), parameters)
    assert_close(found, wanted)
    assert_close(found, found.T)


def test_mean_squared_error_of_torch(rng):
    """Forward over reverse mode fails for the mean of torch's own loss; the oracle must not."""
    x, y = rng.normal(size=(6, 3)), rng.normal(size=(6, 2))
    features, targets = torch.from_numpy(x), torch.from_numpy(y)
    w, model = tensors([rng.normal(size=(2, 3))]), lambda w, x: x @ w[0].T
    wanted = np.kron(np.eye(2), x.T @ x) * 2 / 12
    hessian = dense_hessian(lambda w: functional.mse_loss(model(w, features), targets), w)
    assert_close(hessian, wanted)
    assert_close(dense_gauss_newton(model, nn.MSELoss(), w, features, targets), wanted)


def test_fused_attention(rng):
    """The kernel torch would choose has no second derivative; the formula on paper has."""
    x = torch.from_numpy(rng.normal(size=(1, 1, 5, 4)))

    def fused(w):
        return functional.scaled_dot_product_attention(x @ w[0], x, x).pow(2).sum()

    def plain(w):
        return (torch.softmax(x @ w[0] @ x.mT / 2, dim=-1) @ x).pow(2).sum()

    w = tensors([rng.normal(size=(4, 4))])
    assert_close(dense_hessian(fused, w), dense_hessian(plain, w))


# --- chunks and operators ----------------------------------------------------------------------


def test_every_chunk_gives_the_same_matrix(rng):
    model, parameters, x, labels = tanh_network(rng)

    def function(w):
        return functional.cross_entropy(model(w, x), labels)

    whole = dense_hessian(function, parameters)
    for chunk in (1, 3, 13, 25, 26, 27, np.int64(5)):
        assert_close(dense_hessian(function, parameters, chunk), whole, 1e-14)


def hessian_and_gauss_newton(rng):
    model, parameters, x, labels = tanh_network(rng)
    loss = functional.cross_entropy

    def function(w):
        return loss(model(w, x), labels)

    return [
        (hessian_operator(function, parameters), dense_hessian(function, parameters)),
        (
            gauss_newton_operator(lambda w: model(w, x), lambda z: loss(z, labels), parameters),
            dense_gauss_newton(lambda w: model(w, x), lambda z: loss(z, labels), parameters),
        ),
    ]


def test_operators_are_the_dense_matrices(rng):
    for operator, dense in hessian_and_gauss_newton(rng):
        assert isinstance(operator, LinearOperator)
        assert operator.dtype == np.float64
        assert operator.shape == dense.shape == (26, 26)
        vector, columns = rng.normal(size=26), rng.normal(size=(26, 5))
        assert_close(operator @ vector, dense @ vector)
        assert_close(operator.matvec(vector[:, None]), (dense @ vector)[:, None])
        assert_close(operator.rmatvec(vector), dense @ vector)
        assert_close(vector @ operator, dense @ vector)
        assert_close(operator @ columns, dense @ columns)
        assert_close(operator.T @ columns, dense @ columns)
        assert_close(operator.rmatmat(columns), dense @ columns)
        assert (operator @ columns[:, :0]).shape == (26, 0)
        assert_close((operator + operator) @ vector, 2 * dense @ vector)


def test_operator_takes_more_columns_than_a_chunk(rng):
    for operator, dense in hessian_and_gauss_newton(rng):
        columns = rng.normal(size=(26, CHUNK + 3))
        assert_close(operator @ columns, dense @ columns)


def test_operator_takes_any_real_vector(rng):
    [(operator, dense), _] = hessian_and_gauss_newton(rng)
    whole = np.arange(26)
    for vector in (whole, whole.astype(np.float32), whole[::-1], list(range(26))):
        assert_close(operator @ vector, dense @ np.asarray(vector, dtype=float))
    frozen = rng.normal(size=26)
    frozen.flags.writeable = False
    assert_close(operator @ frozen, dense @ frozen)


def test_operator_serves_eigsh(rng):
    for operator, dense in hessian_and_gauss_newton(rng):
        found = eigsh(operator, k=3, which="LA", v0=rng.normal(size=26), return_eigenvectors=False)
        assert_close(np.sort(found), np.linalg.eigvalsh(dense)[-3:], 1e-10)


def test_operator_keeps_the_parameters_it_was_made_with(rng):
    w = tensors([rng.normal(size=3)])
    operator = hessian_operator(lambda w: (w[0] ** 4).sum(), w)
    wanted = 12 * w[0].numpy() ** 2
    w[0].zero_()
    assert_close(operator @ np.ones(3), wanted)


# --- no traces: dtype, generator, gradients, stderr, memory ------------------------------------


@pytest.fixture(params=[torch.float16, torch.float32, torch.float64], ids=str)
def default_dtype(request) -> Iterator[torch.dtype]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


def test_default_dtype_is_neither_used_nor_changed(default_dtype):
    state = torch.get_rng_state()
    x, y = [[0.1, 0.2], [0.3, 0.7]], [[0.3, 0.1]]
    weights = tensors([[[1 / 3, 0.1]], [[0.7]]])
    wanted = np.array(
        [
            [0.7**2 * 0.025, 0.7**2 * 0.085],
            [0.7**2 * 0.085, 0.7**2 * 0.29],
        ]
    )
    moments = linear_chain_loss([[0.025, 0.085], [0.085, 0.29]], [[0.025, 0.08]])
    for loss in (moments, linear_chain_sample_loss(x, y)):
        assert loss(weights).dtype == torch.float64
        assert_close(dense_hessian(loss, weights)[:2, :2], wanted)
        assert_close(hessian_operator(loss, weights).matmat(np.eye(3))[:2, :2], wanted)
    gauss_newton = dense_gauss_newton(lambda w: w[1] @ w[0], lambda z: (z**2).sum() / 2, weights)
    assert_close(gauss_newton[:2, :2], 0.7**2 * np.eye(2))
    assert torch.get_default_dtype() == default_dtype
    assert torch.equal(torch.get_rng_state(), state)


def test_gradients_of_the_caller_are_left_alone():
    w = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    scale = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    hessian = dense_hessian(lambda p: scale * (p[0] ** 3).sum(), [w])
    assert_close(hessian, np.diag([18.0, 36.0]))
    gauss_newton = dense_gauss_newton(lambda p: scale * p[0], lambda z: (scale * z**2).sum(), [w])
    assert_close(gauss_newton, np.diag([54.0, 54.0]))
    assert w.grad is None
    assert scale.grad is None
    assert w.requires_grad


@pytest.mark.parametrize("context", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_any_gradient_mode(context):
    with context():
        w = torch.tensor([1.0, 2.0], dtype=torch.float64)
        hessian = dense_hessian(lambda p: (p[0] ** 3).sum(), [w])
        operator = hessian_operator(lambda p: (p[0] ** 3).sum(), [w])
    assert_close(hessian, np.diag([6.0, 12.0]))
    assert_close(operator @ np.ones(2), np.array([6.0, 12.0]))


def test_functions_that_work_in_place():
    def function(w):
        w[0].mul_(2)
        return (w[0] ** 3).sum()

    def loss(z):
        z.sub_(1.0)
        return (z**3).sum()

    w = tensors([[1.0, 3.0]])
    assert_close(dense_hessian(function, w, chunk=1), np.diag([48.0, 144.0]))
    assert_close(dense_gauss_newton(lambda w: 2 * w[0], loss, w), np.diag([24.0, 120.0]))
    assert w[0].tolist() == [1.0, 3.0]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_and_silence():
    """At P = 2700 the peak is below four times the result, and nothing is said on stderr."""
    script = """
import re
from pathlib import Path
import numpy as np
from exacthessian.autograd import dense_hessian, linear_chain_loss, tensors

def peak():
    return 1024 * int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])

rng = np.random.default_rng(0)
loss = linear_chain_loss(np.eye(30), rng.normal(size=(30, 30)))
dense_hessian(loss, tensors([np.eye(30)]), chunk=1)
before = peak()
result = dense_hessian(loss, tensors(rng.normal(size=(3, 30, 30))))
print((peak() - before) / result.nbytes)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert 0.9 < float(done.stdout) < 4


# --- linear chains -----------------------------------------------------------------------------


def chain_value(weights, x, y, ridge):
    """The loss with nothing but loops over samples."""
    total = 0.0
    for sample, target in zip(x.T, y.T, strict=True):
        for weight in weights:
            sample = weight @ sample
        total += sum((sample - target) ** 2) / 2
    penalty = sum(r * np.sum(w * w) / 2 for r, w in zip(ridge, weights, strict=True))
    return total / x.shape[1] + penalty


@given(widths=st.lists(st.integers(1, 3), min_size=2, max_size=4), seed=SEEDS)
@settings(deadline=None, max_examples=25)
def test_chain_losses_are_the_definition(widths, seed):
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(b, a)) for a, b in pairwise(widths)]
    x, y = rng.normal(size=(widths[0], 5)), rng.normal(size=(widths[-1], 5))
    ridge = rng.uniform(size=len(weights)).tolist()
    wanted = chain_value(weights, x, y, ridge)
    moments = linear_chain_loss(x @ x.T / 5, y @ x.T / 5, np.sum(y * y) / 10, ridge)
    samples = linear_chain_sample_loss(x, y, ridge)
    parameters = tensors(weights)
    assert moments(parameters).item() == pytest.approx(wanted, rel=1e-12)
    assert samples(parameters).item() == pytest.approx(wanted, rel=1e-12)
    assert_close(dense_hessian(moments, parameters), dense_hessian(samples, parameters), 1e-11)


@given(rows=st.integers(1, 4), columns=st.integers(1, 4), seed=SEEDS)
@settings(deadline=None, max_examples=15)
def test_one_layer_has_the_moments_as_its_hessian(rows, columns, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(columns, 6)), rng.normal(size=(rows, 6))
    w = tensors([rng.normal(size=(rows, columns))])
    wanted = np.kron(np.eye(rows), x @ x.T / 6) + 0.3 * np.eye(rows * columns)
    assert_close(dense_hessian(linear_chain_loss(x @ x.T / 6, y @ x.T / 6, ridge=0.3), w), wanted)
    assert_close(dense_hessian(linear_chain_sample_loss(x, y, ridge=0.3), w), wanted)


def test_chain_against_differences_of_values(rng):
    weights = [rng.normal(size=(3, 2)), rng.normal(size=(2, 3))]
    x, y = rng.normal(size=(2, 5)), rng.normal(size=(2, 5))

    def value(theta):
        return chain_value([theta[:6].reshape(3, 2), theta[6:].reshape(2, 3)], x, y, [0.1, 0.2])

    found = dense_hessian(linear_chain_sample_loss(x, y, [0.1, 0.2]), tensors(weights))
    assert_close(found, second_differences(value, flat(tensors(weights))), 1e-6)


def test_gauss_newton_of_a_chain_needs_no_samples(rng):
    """With z the product of the weights the loss is quadratic: G = Jᵀ (I ⊗ Σxx) J, J on paper."""
    first, last = rng.normal(size=(3, 2)), rng.normal(size=(4, 3))
    factor = rng.normal(size=(2, 2))
    sigma = factor @ factor.T
    jacobian = np.hstack([np.kron(last, np.eye(2)), np.kron(np.eye(4), first.T)])
    loss = linear_chain_loss(sigma, rng.normal(size=(4, 2)))
    found = dense_gauss_newton(lambda w: w[1] @ w[0], lambda z: loss([z]), tensors([first, last]))
    assert_close(found, jacobian.T @ np.kron(np.eye(4), sigma) @ jacobian)


def test_chain_losses_copy_read_only_arrays(rng):
    x, y, sigma = rng.normal(size=(2, 4)), rng.normal(size=(3, 4)), np.eye(2)
    cross, w = np.ones((3, 2)), rng.normal(size=(3, 2))
    for array in (x, y, sigma, cross, w):
        array.flags.writeable = False
    parameters = tensors([w])
    losses = [linear_chain_loss(sigma, cross), linear_chain_sample_loss(x, y)]
    before = [loss(parameters).item() for loss in losses]
    for array in (x, y, sigma, cross, w):
        array.flags.writeable = True
        array *= 2
    assert [loss(parameters).item() for loss in losses] == before


# --- modules -----------------------------------------------------------------------------------


def module_differences(model, parameters, inputs, loss):
    """Central differences of reverse-mode gradients: right for any module, to about 1e-7."""
    theta = torch.cat([w.reshape(-1) for w in parameters])
    sizes = [w.numel() for w in parameters]

    def gradient(theta: Tensor) -> Tensor:
        pieces = zip(theta.split(sizes), parameters, strict=True)
        leaves = [p.reshape(w.shape).clone().requires_grad_() for p, w in pieces]
        slopes = torch.autograd.grad(loss(model(leaves, inputs)), leaves)
        return torch.cat([s.reshape(-1) for s in slopes])

    steps = 1e-5 * torch.eye(len(theta), dtype=torch.float64)
    return np.stack([((gradient(theta + e) - gradient(theta - e)) / 2e-5).numpy() for e in steps])


def module_function(module):
    """A module as (model, parameters): `model(parameters, inputs)` is `module(inputs)`."""
    named = dict(module.named_parameters())

    def model(parameters, inputs):
        buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        return functional_call(module, dict(zip(named, parameters, strict=True)) | buffers, inputs)

    return model, [weight.detach().clone() for weight in named.values()]


def build(make) -> nn.Module:
    """A float64 module with fixed weights, the global generator left as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().double()


MODULES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), (3, 4)),
    "relu in place": (
        lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True), nn.Linear(3, 2)),
        (3, 4),
    ),
    "batch norm": (lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), (5, 4)),
    "convolution": (lambda: nn.Sequential(nn.Conv1d(2, 2, 2), nn.GELU()), (3, 2, 4)),
    "encoder": (
        lambda: nn.TransformerEncoderLayer(4, 2, 3, dropout=0.0, batch_first=True).eval(),
        (2, 3, 4),
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_against_differences_of_gradients(rng, name):
    make, shape = MODULES[name]
    module = build(make)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    inputs = torch.from_numpy(rng.normal(size=shape))
    model, parameters = module_function(module)

    def loss(z):
        return (z**3).sum()

    wanted = module_differences(model, parameters, inputs, loss)
    assert_close(dense_hessian(lambda w: loss(model(w, inputs)), parameters), wanted, 1e-6)
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())


def test_linear_module_is_the_chain(rng):
    module = build(lambda: nn.Sequential(nn.Linear(2, 3, bias=False), nn.Linear(3, 4, bias=False)))
    x, y = rng.normal(size=(2, 5)), rng.normal(size=(4, 5))
    inputs, targets = torch.from_numpy(x.T), torch.from_numpy(y.T)
    model, parameters = module_function(module)
    wanted = dense_hessian(linear_chain_sample_loss(x, y), parameters)
    mean = nn.MSELoss()  # divides by 4·5 where the house divides by 2·5
    found = dense_hessian(lambda w: 2 * mean(model(w, inputs), targets), parameters)
    assert_close(found, wanted)
    half = gauss_newton_operator(
        lambda w: model(w, inputs), lambda z: ((z - targets) ** 2).sum() / 10, parameters
    )
    outer = dense_gauss_newton(
        lambda w: w[1] @ w[0],
        lambda z: linear_chain_loss(x @ x.T / 5, y @ x.T / 5)([z]),
        parameters,
    )
    assert_close(half @ np.eye(18), outer)


def test_shared_weights_count_once(rng):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(1, 1, bias=False)
            self.second = self.first

        def forward(self, x):
            return self.second(self.first(x))

    model, parameters = module_function(build(Twice))
    w = parameters[0].item()
    one = torch.ones(1, 1, dtype=torch.float64)
    assert len(parameters) == 1
    found = dense_hessian(lambda w: (model(w, one) ** 2).sum(), parameters)
    assert_close(found, np.array([[12 * w**2]]))  # (w²)² = w⁴


# --- refusals ----------------------------------------------------------------------------------

GOOD = [torch.ones(2, dtype=torch.float64)]


def square(w):
    return (w[0] ** 2).sum()


REFUSED_PARAMETERS = [
    (GOOD[0], TypeError, r"^parameters must be a list of tensors, got Tensor$"),
    (iter(GOOD), TypeError, r"^parameters must be a list of tensors, got list_iterator$"),
    ([*GOOD, np.ones(2)], TypeError, r"^parameters\[1\] must be a float64 tensor, got ndarray$"),
    ([*GOOD, torch.ones(2)], TypeError, r"^parameters\[1\] .* float64 .* torch\.float32$"),
    ([GOOD[0] * np.nan], ValueError, r"^parameters\[0\] must be finite and on the cpu$"),
    ([GOOD[0].to("meta")], ValueError, r"^parameters\[0\] must be finite and on the cpu$"),
]


@pytest.mark.parametrize(("parameters", "error", "message"), REFUSED_PARAMETERS)
def test_bad_parameters_are_named(parameters, error, message):
    for call in (
        lambda: dense_hessian(square, parameters),
        lambda: hessian_operator(square, parameters),
        lambda: dense_gauss_newton(square, square, parameters),
        lambda: gauss_newton_operator(square, square, parameters),
    ):
        with pytest.raises(error, match=message):
            call()


REFUSED_FUNCTIONS = [
    (lambda w: w[0], ValueError, r"^function must return a scalar, .* got shape \(2,\)$"),
    (lambda w: w[0][:1], ValueError, r"^function must return a scalar, .* got shape \(1,\)$"),
    (lambda w: 1.0, TypeError, r"^function must return a tensor, got float$"),
    (lambda w: (w[0],), TypeError, r"^function must return a tensor, got tuple$"),
    (lambda w: w[0].sum().float(), TypeError, r"^function must .* float64 .* torch\.float32$"),
    (lambda w: w[0].sum() * 1j, TypeError, r"^function must .* float64 .* torch\.complex128$"),
    (lambda w: w[0].sum() * np.nan, ValueError, r"^function must return finite values"),
    (lambda w: (w[0] - 2).log().sum(), ValueError, r"^function must return finite values"),
    (lambda w: (w[0] - 1).norm(), ValueError, r"^Hessian of function must be finite, got nan"),
    (lambda w: functional.dropout(w[0]).sum(), ValueError, r"^function must not draw random"),
    (lambda w: w[0].sum() * torch.rand(()), ValueError, r"^function must not draw random"),
]


@pytest.mark.parametrize(("function", "error", "message"), REFUSED_FUNCTIONS)
def test_bad_functions_are_named(function, error, message):
    state = torch.get_rng_state()
    with pytest.raises(error, match=message):
        dense_hessian(function, GOOD)
    with pytest.raises(error, match=message):
        hessian_operator(function, GOOD) @ np.ones(2)
    assert torch.equal(torch.get_rng_state(), state)


def test_an_error_of_the_function_itself_comes_through():
    with pytest.raises(RuntimeError, match="inconsistent tensor size"):
        dense_hessian(lambda w: w[0] @ torch.ones(3, dtype=torch.float64), GOOD)


@pytest.mark.parametrize(
    ("model", "loss", "error", "message"),
    [
        (lambda w: w, square, TypeError, r"^model must return a tensor, got list$"),
        (lambda w: w[0].float(), square, TypeError, r"^model must .* float64 .* torch\.float32$"),
        (lambda w: w[0] / 0, square, ValueError, r"^model must return finite values"),
        (lambda w: w[0], lambda z: z, ValueError, r"^loss must return a scalar, .* \(2,\)$"),
        (lambda w: w[0], lambda z: z.sum().float(), TypeError, r"^loss must .* torch\.float32$"),
        (lambda w: w[0], lambda z: z.sum() / 0, ValueError, r"^loss must return finite values"),
        (
            lambda w: w[0],
            lambda z: (z - 1).norm(),
            ValueError,
            r"^Gauss–Newton matrix of loss and model must be finite",
        ),
        (lambda w: functional.dropout(w[0]), square, ValueError, r"^model must not draw random"),
    ],
)
def test_bad_models_and_losses_are_named(model, loss, error, message):
    with pytest.raises(error, match=message):
        dense_gauss_newton(model, loss, GOOD)


@pytest.mark.parametrize(
    ("vector", "error", "message"),
    [
        (np.ones(3), ValueError, r"mismatch"),
        (np.ones((3, 2)), ValueError, r"mismatch: \(2, 2\), \(3, 2\)$"),
        (np.ones(2) * 1j, TypeError, r"^vector must hold real numbers, got dtype complex128$"),
        (np.array([0, np.nan]), ValueError, r"^vector must be finite, got NaN or infinity$"),
    ],
)
def test_bad_vectors_are_named(vector, error, message):
    for operator in (
        hessian_operator(square, GOOD),
        gauss_newton_operator(lambda w: w[0], lambda z: (z**2).sum(), GOOD),
    ):
        with pytest.raises(error, match=message):
            operator @ vector


def test_bad_arrays_are_named():
    with pytest.raises(TypeError, match=r"^arrays\[1\] must hold real numbers, got dtype bool$"):
        tensors([1.0, True])
