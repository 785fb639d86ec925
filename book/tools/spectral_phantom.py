"""Spectral phantoms: torch networks whose Hessian spectrum is known, in one file.

Three linear layers W_l = Q_l S_l Q_{l-1}^T in random orthogonal bases, on samples with exactly
prescribed second moments, and the loss mean over n of |f(x_n) - y_n|^2 / 2. The Hessian splits
into blocks of size at most 6, one for each pair of modes. A right product passes

    assert Phantom(kind).residual(matvec) < 1e-12

for every kind. torch.nn.MSELoss() has 2 / outputs times this Hessian, reduction="sum" 2N times.
Generated from exacthessian.phantoms (The Exact Hessian, MIT licence); do not edit.
"""

from itertools import pairwise

import numpy as np
import torch

# kind: outputs, second moments x of the inputs, singular values s and residuals omega of the first
# modes, singular values of the other modes of the middle layer
# fmt: off
KINDS = {
    "outliers": (2, [2.64, 2.27, 2.04, 2.02, 2.81], [1.58, 1.52, 1.55, 1.51, 1.59], [0.18, 0.1],
        [0.11, 0.54, 1.2, 1.43, 1.69, 2.29, 2.59, 2.75, 3.33, 3.74]),
    "degenerate": (10, [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.44, 0.44, 0.44,
        0.44, 0.44, 0.44, 0.44, 0.44, 0.44, 0.44], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0,
        1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
        0.0, 0.0, 0.0, 0.0], [0.0]),
    "indefinite": (4, [0.53, 0.45, 0.41, 0.4], [0.5, 0.5, 0.5, 0.5], [1.13, 1.17, 1.04, 1.09],
        [0.03, 0.3, 0.54, 0.69, 1.0, 2.86]),
}
# fmt: on


class Phantom:
    """A network of about hidden^2 parameters, its samples, and its spectrum."""

    def __init__(self, kind="outliers", hidden=48, samples=103, seed=0, dtype=torch.float64):
        outputs, x, s, omega, others = (np.array(part) for part in KINDS[kind])
        rng, first, learned = np.random.default_rng(seed), len(s), min(len(x), int(outputs))
        if hidden < first:
            raise ValueError(f"hidden must be at least {first} for {kind}, got {hidden}")
        self.widths = (len(x), hidden, hidden, int(outputs))
        self.q = [np.linalg.qr(rng.standard_normal((n, n)))[0] for n in self.widths]
        middle = np.concatenate([s, np.sort(np.resize(others, hidden - first))])
        self.s = np.zeros((3, hidden))
        self.s[0, : len(x)], self.s[1], self.s[2, : int(outputs)] = s[: len(x)], middle, s[:outputs]
        self.x, self.omega = np.zeros(hidden), np.zeros(hidden)
        self.x[: len(x)], self.omega[:learned] = x, omega
        layers = []
        for l, (right, left) in enumerate(pairwise(self.q)):
            rank = min(len(left), len(right))
            weight = (left[:, :rank] * self.s[l, :rank]) @ right[:, :rank].T
            layers.append(torch.nn.Linear(len(right), len(left), bias=False, device="meta"))
            layers[-1].weight = torch.nn.Parameter(torch.from_numpy(weight).to(dtype))
        self.model = torch.nn.Sequential(*layers)
        draws = rng.standard_normal((max(samples, len(x) + 2), len(x) + 1))
        draws[-1] *= 4  # a heavy sample
        draws = np.linalg.qr(draws)[0] * np.sqrt(len(draws))
        scores = draws[:, :learned] * ((x * s[: len(x)] ** 3)[:learned] - omega)
        scores = scores / np.sqrt(x[:learned])
        scores[:, 0] += 0.5 * np.sqrt(x.max()) * draws[:, -1]  # noise that no input explains
        self.inputs = torch.from_numpy((draws[:, :-1] * np.sqrt(x)) @ self.q[0].T).to(dtype)
        self.targets = torch.from_numpy(scores @ self.q[3][:, :learned].T).to(dtype)

    @staticmethod
    def loss(outputs, targets):
        """Half the mean squared norm."""
        return ((outputs - targets) ** 2).sum() / (2 * len(targets))

    def block(self, i, j):
        """Coordinates (layer, row, column) of the pair {i, j} of modes, and its Hessian block."""
        sides = [(i, j)] if i == j else [(i, j), (j, i)]
        where = [
            (l, row, column)
            for row, column in sides
            for l in range(3)
            if row < self.widths[l + 1] and column < self.widths[l]
        ]
        matrix = np.zeros((len(where), len(where)))
        for n, (l, row, column) in enumerate(where):
            for m, (k, row2, column2) in enumerate(where):
                s, top, low = self.s, max(l, k), min(l, k)
                if (row, column) == (row2, column2):
                    through = [s[o + 1 :, row].prod() * s[:o, column].prod() for o in (l, k)]
                    matrix[n, m] += self.x[column] * through[0] * through[1]
                if (row, column) == (column2, row2) and l != k:
                    r, c = (row, column) if l > k else (row2, column2)
                    ends = s[top + 1 :, r].prod() * s[:low, r].prod()
                    matrix[n, m] += self.omega[r] * ends * s[low + 1 : top, c].prod()
        return where, matrix

    def spectrum(self):
        """All eigenvalues as (value, multiplicity, i, j, number in its block), descending."""
        classes = {}
        for i in range(self.widths[1]):
            ends = (i < self.widths[0], i < self.widths[3])
            classes.setdefault((*self.s[:, i], self.x[i], self.omega[i], ends), []).append(i)
        entries = []
        for p, own in enumerate(modes := list(classes.values())):
            pairs = [(own[0], own[0], len(own))]
            if len(own) > 1:
                pairs.append((own[0], own[1], len(own) * (len(own) - 1) // 2))
            pairs += [(own[0], other[0], len(own) * len(other)) for other in modes[p + 1 :]]
            for i, j, count in pairs:
                values = np.linalg.eigvalsh(self.block(i, j)[1])
                entries += [(value, count, i, j, n) for n, value in enumerate(values)]
        return sorted(entries, reverse=True)

    def residual(self, matvec, pairs=8):
        """The worst |matvec(v) - value v| / |H| over known unit eigenvectors v (NumPy, P)."""
        entries, worst = self.spectrum(), 0.0
        for place in np.linspace(0, len(entries) - 1, pairs).astype(int):
            value, _, i, j, n = entries[place]
            where, matrix = self.block(i, j)
            parts = [np.zeros((out, into)) for into, out in pairwise(self.widths)]
            for (l, row, column), part in zip(where, np.linalg.eigh(matrix)[1][:, n], strict=True):
                parts[l] += part * np.outer(self.q[l + 1][:, row], self.q[l][:, column])
            vector = np.concatenate([part.ravel() for part in parts])
            worst = max(worst, np.linalg.norm(np.asarray(matvec(vector)) - value * vector))
        return worst / max(abs(entries[0][0]), abs(entries[-1][0]))
