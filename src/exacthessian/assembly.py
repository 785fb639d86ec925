"""The dense Hessian of a linear chain, written in a single pass over memory.

`chain` defines it by Kronecker products; here it is written as fast as memory takes it. By (1)
there, row (a, i) of the block of layers k and l, reshaped like W_l, is a matrix of rank two:

    M[a, :]ᵀ N[i, :] + C[i, :]ᵀ G[a, :] = (M[a, :]ᵀ  C[i, :]ᵀ) (N[i, :] ; G[a, :]).

So a few rows at a time are written by batched products of inner dimension two straight into the
result, in the order of memory and without a temporary of comparable size. The blocks above the
diagonal are those below it with M, N transposed and C, G transposed and exchanged.
"""

import os
from collections.abc import Sequence
from functools import reduce

import numpy as np

from exacthessian.inputs import Array

# Rows are written in groups of about this many entries, which stay in the cache (1 MiB).
CHUNK_ENTRIES = 2**17

Factors = tuple[Array, Array, Array, Array]


def write_hessian(
    out: Array,
    weights: Sequence[Array],
    after: Sequence[Array],
    before: Sequence[Array],
    sigma_xx: Array,
    residual: Array,
) -> None:
    """Write both terms of (1) to `out` (P, P), from the layers W_l, the products A_l and B_l after
    and before them, Σxx and Ω.

    >>> out, one = np.empty((2, 2)), np.eye(1)
    >>> write_hessian(out, [3 * one, 5 * one], [5 * one, one], [one, 3 * one], one, 8 * one)
    >>> out
    array([[25., 23.],
           [23.,  9.]])
    """
    edges = np.cumsum([0, *(weight.size for weight in weights)])

    def factors(k: int, l: int) -> Factors:
        """M, N, C and G of the block of layers k and l."""
        if k < l:
            m, n, c, g = factors(l, k)
            return m.T, n.T, g.T, c.T
        m, n = after[k].T @ after[l], before[k] @ sigma_xx @ before[l].T
        if k == l:
            return (
                (m + m.T) / 2,
                (n + n.T) / 2,
                np.zeros((len(n), len(m))),
                np.zeros_like(weights[k]),
            )
        c = reduce(lambda product, weight: weight @ product, weights[l + 1 : k], np.eye(m.shape[1]))
        return m, n, c, after[k].T @ residual @ before[l].T

    for k, (n_out, n_in) in enumerate(weight.shape for weight in weights):
        rows = out[edges[k] : edges[k + 1]].reshape(n_out, n_in, len(out))
        group = min(n_out, max(1, CHUNK_ENTRIES // (n_in * len(out))))
        blocks = []
        for l, weight in enumerate(weights):
            m, n, c, g = factors(k, l)
            left = np.empty((group, n_in, len(weight), 2))  # M[a, :]ᵀ  C[i, :]ᵀ
            right = np.empty((group, n_in, 2, weight.shape[1]))  # N[i, :] ; G[a, :]
            left[..., 1], right[:, :, 0] = c, n
            blocks.append((slice(edges[l], edges[l + 1]), weight.shape, m, g, left, right))
        for a in range(0, n_out, group):
            here = slice(a, min(a + group, n_out))
            count = here.stop - a
            for columns, shape, m, g, left, right in blocks:
                left[:count, :, :, 0], right[:count, :, 1] = m[here, None], g[here, None]
                target = rows[here, :, columns].reshape(count, n_in, *shape)
                np.matmul(left[:count], right[:count], out=target)


def buffer(size: int, out: Array | None) -> Array:
    """`out`, if it can hold a Hessian of P = `size` parameters, or fresh memory for it.

    >>> buffer(2, out=None).shape
    (2, 2)
    """
    if out is None:
        within_memory(
            f"a dense Hessian of P = {size} parameters",
            8 * size**2,
            "hvp and operator work without it",
        )
        return np.empty((size, size))
    fits = isinstance(out, np.ndarray) and out.shape == (size, size) and out.dtype == np.float64
    if not fits or not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError(f"out must be a writeable C-contiguous float64 array ({size}, {size})")
    return out


def within_memory(what: str, needed: int, instead: str = "choose a smaller size") -> None:
    """Refuse what needs more bytes than the machine has, where that is known.

    >>> within_memory("a universe", 10**30)
    Traceback (most recent call last):
    MemoryError: a universe needs 1000000000000000000000000000000 bytes, more than this machine \
has; choose a smaller size
    """
    if needed > _memory():
        raise MemoryError(f"{what} needs {needed} bytes, more than this machine has; {instead}")


def _memory() -> float:
    """Bytes of physical memory, or infinity where that is not known."""
    if not hasattr(os, "sysconf"):
        return float("inf")
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
