"""A second oracle: closed forms against exact rational numbers, or fifty digits where there is exp.

Automatic differentiation shares its floating-point numbers with the closed forms. Here a loss is
written once more, in plain Python, and differentiated with numbers a + a₁ε₁ + a₂ε₂ + a₁₂ε₁ε₂,
εᵢ² = 0, over the rationals: the coefficient of ε₁ε₂ is an entry of the Hessian, without rounding.
A closed spectrum must have the power sums tr H, tr H², … of that Hessian; ranks are ranks over ℚ.
"""

from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest

from exacthessian import LinearChain, mode, product
from exacthessian.aligned import AlignedChain
from exacthessian.attention import Head, ScalarAttention
from exacthessian.chain import gauss_newton_rank
from exacthessian.papers import cracking_the_hessian as cth
from exacthessian.scalar import ReluNetwork, TwoLayer
from exacthessian.ufm import DeepLinearUFM
from exacthessian.ufm_cross_entropy import Collapse

POWERS = 6
ROUNDING = 1e-11
mpmath.mp.dps = 50


class Jet:
    """a + a₁ε₁ + a₂ε₂ + a₁₂ε₁ε₂ over any numbers."""

    def __init__(self, value, one=0, two=0, both=0):
        self.parts = value, one, two, both

    def __add__(self, other):
        return Jet(*(a + b for a, b in zip(self.parts, jet(other).parts, strict=True)))

    def __mul__(self, other):
        a, a1, a2, a12 = self.parts
        b, b1, b2, b12 = jet(other).parts
        return Jet(a * b, a1 * b + a * b1, a2 * b + a * b2, a12 * b + a1 * b2 + a2 * b1 + a * b12)

    def through(self, value, first, second):
        """f(self) from f, f' and f'' at its value."""
        _, one, two, both = self.parts
        return Jet(value, first * one, first * two, first * both + second * one * two)

    def __neg__(self):
        return self * -1

    def __sub__(self, other):
        return self + -jet(other)

    __radd__, __rmul__ = __add__, __mul__


def jet(number):
    return number if isinstance(number, Jet) else Jet(number)


def exp(x):
    value = mpmath.exp(x.parts[0])
    return x.through(value, value, value)


def log(x):
    a = x.parts[0]
    return x.through(mpmath.log(a), 1 / a, -1 / a**2)


def inverse(x):
    a = x.parts[0]
    return x.through(1 / a, -1 / a**2, 2 / a**3)


def relu(x):
    return x if x.parts[0] > 0 else Jet(0)


def exact(array):
    return [exact(row) for row in array] if np.ndim(array) else Fraction(float(array))


def turned(matrix):
    return list(zip(*matrix, strict=True))


def times(a, b):
    return [[sum((x * y for x, y in zip(row, column, strict=True)), Jet(0)) for column in turned(b)]
            for row in a]  # fmt: skip


def total(numbers):
    return sum(numbers, Jet(0))


def shaped(theta, shapes):
    ends, matrices = iter(theta), []
    for rows, columns in shapes:
        matrices.append([[next(ends) for _ in range(columns)] for _ in range(rows)])
    return matrices


def hessian(loss, theta, number=exact):
    """The Hessian of a loss of plain numbers, entry by entry, as a list of rows."""
    size = len(theta)
    values = [number(t) for t in theta]
    rows = [[0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            point = [Jet(v, int(k == i), int(k == j)) for k, v in enumerate(values)]
            rows[i][j] = rows[j][i] = loss(point).parts[3]
    return rows


def power_sums(matrix):
    columns, power, sums = turned(matrix), matrix, []
    for _ in range(POWERS):
        sums.append(float(sum(power[i][i] for i in range(len(matrix)))))
        power = [[sum(a * b for a, b in zip(r, c, strict=True) if a and b) for c in columns]
                 for r in power]  # fmt: skip
    return sums


def rank(matrix):
    """Over the rationals."""
    rows, found = [list(row) for row in matrix], 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((r for r in range(found, len(rows)) if rows[r][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        for r in range(found + 1, len(rows)):
            factor = rows[r][column] / rows[found][column]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[found], strict=True)]
        found += 1
    return found


def agrees(spectrum, matrix):
    """Whether a spectrum has the power sums of an exact matrix, to rounding."""
    assert spectrum.size == len(matrix)
    values = spectrum.expand()
    for k, true in enumerate(power_sums(matrix), start=1):
        assert abs((values**k).sum() - true) <= ROUNDING * (np.abs(values) ** k).sum(), k
    return True


def chain_loss(chain):
    shapes = [w.shape for w in chain.weights]
    moments, target = exact(chain.sigma_xx), exact(chain.sigma_yx)
    ridge = [Fraction(r) for r in chain.ridge]

    def loss(theta):
        weights = shaped(theta, shapes)
        product_ = weights[0]
        for weight in weights[1:]:
            product_ = times(weight, product_)
        fitted = times(product_, moments)
        pairs = [(w, f, t) for rows in zip(product_, fitted, target, strict=True)
                 for w, f, t in zip(*rows, strict=True)]  # fmt: skip
        decay = [r * x * x for r, w in zip(ridge, weights, strict=True) for row in w for x in row]
        return total(w * f - 2 * t * w for w, f, t in pairs) * Fraction(1, 2) + (
            total(decay) * Fraction(1, 2)
        )

    return loss


def chain_hessian(chain):
    return hessian(chain_loss(chain), chain.parameters())


def dyadic(rng, *shape):
    """Random numbers that are sums of few powers of two, zeros among them."""
    return rng.integers(-6, 7, size=shape) / 4


def random_chain(seed, widths, **options):
    rng = np.random.default_rng(seed)
    weights = [dyadic(rng, b, a) for a, b in pairwise(widths)]
    root = dyadic(rng, widths[0], widths[0])
    return LinearChain(weights, root @ root.T, dyadic(rng, widths[-1], widths[0]), **options)


CHAINS = [
    random_chain(0, (2, 2, 2)),
    random_chain(1, (1, 2, 1, 2)),
    random_chain(2, (3, 2), ridge=0.5),
    random_chain(3, (1, 1, 1, 1, 1)),
    random_chain(4, (2, 1, 2), ridge=[0.25, 0.5]),
    LinearChain([np.zeros((2, 2)), np.eye(2)], np.eye(2), np.eye(2)),
]


@pytest.mark.parametrize("chain", CHAINS, ids=repr)
def test_the_hessian_of_a_chain(chain):
    true = np.array(chain_hessian(chain), dtype=float)
    assert np.abs(chain.hessian() - true).max() <= 1e-14 * max(1, np.abs(true).max())


@pytest.mark.parametrize("chain", CHAINS[:2] + CHAINS[3:], ids=repr)
def test_the_rank_of_the_gauss_newton_part(chain):
    fitted = LinearChain(chain.weights, chain.sigma_xx, chain.product @ chain.sigma_xx)
    assert gauss_newton_rank(chain) == rank(chain_hessian(fitted))


ALIGNED = [
    AlignedChain((2, 2, 2), ([1.5, 0.5], [2.0, -1.0]), [1.0, 0.25], [2.0, 1.0]),
    AlignedChain((1, 2, 2), ([0.5], [2.0, 0.0]), [1.0], [3.0], ridge=0.25),
    AlignedChain((2, 1, 2), ([2.0], [0.5]), [1.0, 0.5], [1.0, 1.0]),
    AlignedChain.balanced((2, 2, 2, 2), lam=[1.0, 1.0], target=[1.0, 1.0]),
    AlignedChain.balanced((2, 2, 2), lam=[2.0, 0.0], target=[4.0, 1.0]),
    mode.minimum(3, [8.0, 1.0], 2, 1.0),
]


@pytest.mark.parametrize("aligned", ALIGNED, ids=repr)
def test_the_blocks_of_an_aligned_chain(aligned):
    assert agrees(aligned.spectrum(), chain_hessian(aligned.to_chain()))


def test_the_curvature_and_edge_of_a_mode():
    """At σ = 8, 1 with three layers the singular values 2 and 1 are exact."""
    matrix = chain_hessian(mode.minimum(3, [8.0, 1.0], 2, 1.0).to_chain())
    shifted = [[x - Fraction(int(i == j)) * 21 for j, x in enumerate(row)]
               for i, row in enumerate(matrix)]  # fmt: skip
    assert mode.curvature(3, 8.0, 1.0) == pytest.approx(21, rel=1e-15)
    assert mode.edge(3, 8.0) == pytest.approx(2 / 48, rel=1e-15)
    assert len(matrix) - rank(shifted) == 2


@pytest.mark.parametrize(("depth", "ratio"), [(2, 1.1), (3, 1.05), (4, 1.02), (5, 1.01)])
def test_a_two_cycle_lies_in_its_interval(depth, ratio):
    """Interval arithmetic proves: step∘step has a fixed point within 1e-11 of the closed form."""
    eta = ratio * mode.edge(depth, 10.0)
    values = mode.two_cycle(depth, 10.0, eta)
    target, step = mpmath.iv.mpf(10), mpmath.iv.mpf(eta)

    def moved(s):
        return s + step * (target - s**depth) * s ** (depth - 1)

    for low, high in (values, values[::-1]):
        ends = [mpmath.iv.mpf(low) * (1 + mpmath.iv.mpf(sign) / 10**11) for sign in (-1, 1)]
        before, after = (moved(moved(end)) - end for end in ends)
        assert before.b < 0 < after.a or after.b < 0 < before.a
        assert abs(moved(mpmath.iv.mpf(low)).mid - high) < 1e-12


@pytest.mark.parametrize(("inputs", "outputs", "width"), [(2, 2, 4), (1, 2, 3), (2, 1, 3)])
def test_the_bulk_of_a_product(inputs, outputs, width):
    """±s(G) are eigenvalues, as often as stated, over the rationals."""
    rng = np.random.default_rng(0)
    v, w = dyadic(rng, width, inputs), dyadic(rng, outputs, width)
    gradient = np.zeros((outputs, inputs))
    np.fill_diagonal(gradient, [2.0, 1.0][: min(inputs, outputs)])
    chain = LinearChain([v, w], np.eye(inputs), w @ v - gradient)
    matrix = chain_hessian(chain)
    bulk = product.bulk(gradient, width)
    for value, count in zip(bulk.values, bulk.multiplicities, strict=True):
        shifted = [[x - (Fraction(value) if i == j else 0) for j, x in enumerate(row)]
                   for i, row in enumerate(matrix)]  # fmt: skip
        assert len(matrix) - rank(shifted) >= count > 0
    if outputs == 1:
        assert agrees(product.spectrum_one_output(chain), matrix)
    assert agrees(product.spectrum_by_reduction(chain), matrix)


TWO_LAYERS = [
    ([1, 2], [1, 2]),
    ([1, 2], [-1, -2]),
    ([0, 0], [1, 2]),
    ([0.5], [3]),
    ([1, 0, 2], [0.25, 1, -1]),
]


@pytest.mark.parametrize(("w", "v"), TWO_LAYERS)
def test_the_outliers_of_two_layers(w, v):
    network = TwoLayer(w, v, s2=1.5, yx=0.5)
    assert agrees(network.spectrum(), chain_hessian(network))


@pytest.mark.parametrize(
    ("v", "w"),
    [([1, 2, -3], [4, -5, 0.5]), ([1, 2], [1, -1]), ([-1, -2], [3, 1]), ([2], [0])],
)
def test_the_cells_of_a_relu_network(v, w):
    x, y = [1, -1, 2, 0.5], [1, 0.5, -1, 2]
    network, size = ReluNetwork(w, v, x, y), len(v)

    def loss(theta):
        terms = []
        for a, b in zip(exact(x), exact(y), strict=True):
            out = total(o * relu(i * a) for i, o in zip(theta[:size], theta[size:], strict=True))
            terms.append((out - b) * (out - b))
        return total(terms) * Fraction(1, 2 * len(x))

    assert agrees(network.spectrum(), hessian(loss, [*v, *w]))


def test_a_network_with_bias():
    """wᵀ(vx + b) with ⟨v, b⟩ = 0 and ‖v‖ = ‖b‖, which are the paper's assumptions."""
    for w in ([0.5, 1.25, 2.0], [0.0, 0.0, 1.0], [1.0, -1.0, 0.0]):
        first = [[1.5, 0.0], [0.0, -1.5], [0.0, 0.0]]
        chain = LinearChain([first, [w]], np.eye(2), [[0.0, 0.0]])
        assert agrees(cth.theorem_b_1(chain), chain_hessian(chain))


def test_a_head_of_attention():
    for query, key in (([1, 2], [3, -1]), ([1, 2], [1, 2]), ([0, 0], [1, 2]), ([2], [0.5])):
        head = Head(1.5, -0.5, 2.0, 0.75, query, key)
        size, here = len(query), Fraction(head.product)

        def loss(theta, head=head, size=size, here=here):
            step = total(a * b for a, b in zip(theta[1 : 1 + size], theta[1 + size :], strict=True))
            step, value = step - here, theta[0]
            alpha, beta, gamma, zeta = map(Fraction, (head.alpha, head.beta, head.gamma, head.zeta))
            curved = alpha * value * value * Fraction(1, 2) + beta * value * step
            return curved + zeta * step * step * Fraction(1, 2) + gamma * step

        assert agrees(head.spectrum(), hessian(loss, [0.0, *query, *key]))


@pytest.mark.parametrize("tokens", [[1.0, 3.0, -0.5], [2.0, 2.0]], ids=["tokens", "equal tokens"])
def test_a_layer_of_attention_in_fifty_digits(tokens):
    targets = [2.0, 4.0, 1.0][: len(tokens)]
    layer = ScalarAttention(1.5, [0.5, -1.0], [0.25, 1.0], [tokens], [targets])

    def loss(theta):
        value, query, key = theta[0], theta[1:3], theta[3:]
        terms = []
        for x, y in zip(tokens, targets, strict=True):
            score = total(q * k for q, k in zip(query, key, strict=True)) * (1 / mpmath.sqrt(2))
            shares = [exp(score * (x * other)) for other in tokens]
            mixed = total(s * other for s, other in zip(shares, tokens, strict=True))
            out = value * mixed * inverse(total(shares))
            terms.append((out - y) * (out - y))
        return total(terms) * (mpmath.mpf(1) / (2 * len(tokens)))

    assert agrees(layer.spectrum(), hessian(loss, [1.5, 0.5, -1.0, 0.25, 1.0], mpmath.mpf))


@pytest.mark.parametrize("ridge", [0.02, (0.01, 0.03)])
def test_the_unconstrained_features_of_the_squared_loss(ridge):
    ufm = DeepLinearUFM(classes=2, samples=2, depth=1, width=2, ridge=ridge)
    chain = ufm.optimum(np.random.default_rng(0)).to_chain()
    assert agrees(ufm.spectrum(), chain_hessian(chain))


@pytest.mark.parametrize("point", [Collapse(2, 1, 1, 1, 1.5), Collapse(3, 1, 1, 2, 2.0)])
def test_the_unconstrained_features_of_cross_entropy_in_fifty_digits(point):
    model = point.point(np.random.default_rng(0))
    shapes, K = [w.shape for w in model.weights], point.classes
    ridge = mpmath.mpf(model.ridge[0])

    def loss(theta):
        features, *weights = shaped(theta, shapes)
        out = features
        for weight in weights:
            out = times(weight, out)
        terms = []
        for i, column in enumerate(turned(out)):
            terms.append(log(total(exp(z) for z in column)) - column[i * K // len(out[0])])
        decay = total(t * t for t in theta) * (ridge / 2)
        return total(terms) * (mpmath.mpf(1) / len(out[0])) + decay

    assert agrees(point.spectrum(), hessian(loss, model.parameters(), mpmath.mpf))


def test_a_wrong_spectrum_is_seen():
    matrix = chain_hessian(CHAINS[0])
    right = product.spectrum_by_reduction(CHAINS[0])
    assert agrees(right, matrix)
    with pytest.raises(AssertionError):
        agrees(type(right).from_values(right.expand() * (1 + 1e-9)), matrix)
