"""The dense Hessian of a linear chain, written in a single pass over memory.

`chain` defines it by Kronecker products; here it is written as fast as memory takes it. By (1)
there, row (a, i) of the block of layers k and l, reshaped like W_l, is a matrix of rank two:

    M[a, :]ᵀ N[i, :] + C[i, :]ᵀ G[a, :] = (M[a, :]ᵀ  C[i, :]ᵀ) (N[i, :] ; G[a, :]).

So a few rows at a time are written by batched products of inner dimension two straight into the
result, without a temporary of comparable size. The block above the diagonal is the one below it
with M, N transposed and C, G transposed and exchanged. Memory is fastest in its own order: where
all layers have one shape, rows are written whole, from their first entry to their last.
"""

import os
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from exacthessian.inputs import Array

CHUNK_ENTRIES = 2**15  # of the factors of the rows that are written at once: they stay in the cache
Block = tuple[Array, Array, Array, Array]  # M, N, C, G


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
    blocks: dict[tuple[int, int], Block] = {}
    for k in range(len(weights)):
        inputs, slope = before[k] @ sigma_xx, after[k].T @ residual
        M, N = after[k].T @ after[k], inputs @ before[k].T
        zeros = np.zeros((len(N), len(M)))
        blocks[k, k] = (M + M.T) / 2, (N + N.T) / 2, zeros, zeros.T
        C = np.eye(len(N))
        for l in reversed(range(k)):
            M, N, G = after[k].T @ after[l], inputs @ before[l].T, slope @ before[l].T
            blocks[k, l], blocks[l, k] = (M, N, C, G), (M.T, N.T, G.T, C.T)
            C = C @ weights[l]
    spans = [slice(*pair) for pair in pairwise(accumulate((w.size for w in weights), initial=0))]
    equal = len({weight.shape for weight in weights}) == 1
    for k, here in enumerate(spans):
        row = [blocks[k, l] for l in range(len(weights))]
        if equal:
            _write_block(out[here], *(np.stack(part, axis=1) for part in zip(*row, strict=True)))
        else:
            for span, block in zip(spans, row, strict=True):
                _write_block(out[here, span], *block)


def _write_block(out: Array, M: Array, N: Array, C: Array, G: Array) -> None:
    """Write M[a, j] N[i, b] + C[i, j] G[a, b] to row (a, i) and column (j, b) of `out`; a middle
    axis of the factors is for blocks side by side.
    """
    (rows, *blocks, p), (inner, *_, q) = M.shape, N.shape
    target = out.reshape(rows, inner, *blocks, p, q)
    group = min(rows, max(1, CHUNK_ENTRIES // (N.size + C.size)))
    left, right = (np.empty((group, inner, *blocks, 2, size)) for size in (p, q))
    left[..., 1, :], right[..., 0, :] = C, N
    for a in range(0, rows, group):
        some = min(group, rows - a)
        left[:some, ..., 0, :], right[:some, ..., 1, :] = (
            M[a : a + some, None],
            G[a : a + some, None],
        )
        np.matmul(left[:some].mT, right[:some], out=target[a : a + some])


def buffer(size: int, out: Array | None) -> Array:
    """`out`, if it can hold a Hessian of P = `size` parameters, or fresh memory for it.

    >>> buffer(2, out=None).shape
    (2, 2)
    """
    if out is None:
        what = f"a dense Hessian of P = {size} parameters"
        within_memory(what, 8 * size**2, "hvp and operator work without it")
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
