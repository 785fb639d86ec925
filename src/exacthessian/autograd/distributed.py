"""Products with the Hessian of any torch model over data spread across processes.

The script is started by `torchrun` and calls `run_sharded` on every process. Rank 0 drives: it runs
the algorithm on an operator; for each product it broadcasts the vector, every rank multiplies by
the Hessian of the *summed* loss of its samples, and rank 0 adds and divides by N once.

The samples are cut into virtual shards at places that do not depend on the number of processes, and
the shards' products are added along one fixed binary tree, of which a rank sends the largest
subtrees that it owns. So the bits are the same for any number of processes, and without any group,
given the same shards, threads, torch build and processor.

Gloo listens on the loopback interface; for several machines set GLOO_SOCKET_IFNAME. Attention runs
on torch's plain kernel, the only one that has second derivatives.
"""

import atexit
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from scipy.sparse.linalg import LinearOperator
from torch import Tensor
from torch._C._distributed_c10d import TCPStore
from torch.nn.attention import SDPBackend, sdpa_kernel

from exacthessian.inputs import Array, real_array, require, whole_number

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
Rows: TypeAlias = Callable[[int, int], tuple[Tensor, Tensor]]
Tree: TypeAlias = tuple[int, int]  # the subtree of the shards start, …, start + length − 1
Answer = TypeVar("Answer")

STOP, MULTIPLY, ABORT = range(3)
GRACE = 5.0  # seconds in which a rank that lives says so after a fault
runs = 0


def run_sharded(
    work: Callable[[LinearOperator], Answer],
    module: torch.nn.Module,
    loss_sum: Loss,
    rows: Rows,
    samples: int,
    *,
    matrix: str = "hessian",
    shards: int = 8,
    timeout: float = 300.0,
    checkpoint: str | Path | None = None,
) -> Answer | None:
    """`work(H)` on rank 0, None on the others. H is the Hessian, or the Gauss–Newton matrix, of
    (1/N) Σ_n ℓ(f(x_n), y_n), in the order of `module.parameters()`, as a float64 operator.

    `loss_sum(outputs, targets)` is the sum of ℓ over the samples it is given; `rows(a, b)` gives
    inputs and targets of the samples a, …, b − 1 and is called for a rank's own shards only.

    A rank that holds another model, fails, dies, or takes longer than `timeout` seconds (for one
    product, or rank 0 between two of them) ends the run on every rank with a RankError that names
    it. With `checkpoint`, a file, every product is stored; a run that was killed and is
    started again with the same `work` reads them and goes on, to the same bits.

    >>> weights = torch.nn.Linear(2, 1, bias=False).double()
    >>> x, y = torch.eye(2).double(), torch.zeros(2, 1).double()
    >>> def squares(z, y):
    ...     return ((z - y) ** 2).sum() / 2
    >>> run_sharded(lambda H: H @ np.ones(2), weights, squares, lambda a, b: (x[a:b], y[a:b]), 2,
    ...             shards=2)
    array([0.5, 0.5])
    """
    known = matrix in ("hessian", "gauss_newton")
    require(known, "matrix must be 'hessian' or 'gauss_newton'", repr(matrix))
    enough = whole_number("shards", shards, least=1) <= whole_number(
        "samples", samples, 1, most=inf
    )
    world = int(os.environ["WORLD_SIZE"]) if "RANK" in os.environ else 1
    require(samples >= world, f"samples must be at least the number of ranks {world}", samples)
    require(enough, f"shards must be at most the number of samples {samples}", shards)
    team = _Team(module, loss_sum, samples, matrix, shards, _group_of_all(timeout))
    mark = team.agree(rows)
    if team.rank == 0:
        return team.drive(work, checkpoint, mark)
    team.serve()
    return None


class RankError(RuntimeError):
    """A rank differs from the others, fails, or does not answer. The message names it."""


@dataclass(eq=False)
class _Team:
    """The ranks of one run; each keeps its own shards of the data."""

    module: torch.nn.Module
    loss_sum: Loss
    samples: int
    matrix: str
    shards: int
    group: dist.ProcessGroup | None

    def __post_init__(self) -> None:
        self.weights = list(self.module.parameters())
        self.sizes = [weight.numel() for weight in self.weights]
        self.rank, self.world = 0, 1
        if self.group is not None:
            self.rank, self.world = dist.get_rank(), dist.get_world_size()
        enough = self.shards >= self.world
        require(enough, f"shards must be at least the {self.world} ranks", self.shards)
        self.data: dict[int, tuple[Tensor, Tensor]] = {}

    def talk(self, collective: Callable[..., Any], *message: Any) -> None:
        """Take part in a collective operation, or say which rank does not."""
        if self.group is None:
            return
        try:
            collective(*message, group=self.group)
        except RuntimeError as error:
            store = dist.distributed_c10d._get_default_store()
            gone = _silent(store, "after a fault", self.rank, self.world, GRACE)
            name = gone or f"{self.rank} (this one)"
            raise RankError(f"rank {name} died, or did not answer in time") from error

    def agree(self, rows: Rows) -> str:
        """Read the data, compare what the ranks hold, and return its fingerprint."""
        named = [*self.module.named_parameters(), *self.module.named_buffers()]
        facts: dict[str, Any] = {
            "architecture": [(name, tuple(value.shape)) for name, value in named],
            "dtype": [str(value.dtype) for _, value in named],
            "weights": _digest(value for _, value in named),
            "mode": (self.module.training, self.matrix, getattr(self.loss_sum, "__name__", "")),
            "number of samples or shards": (self.samples, self.shards),
            "version of torch or number of threads": (torch.__version__, torch.get_num_threads()),
        }
        own, trouble = [], None
        try:
            for start, length in self.trees(self.rank):
                for shard in range(start, start + length):
                    low, high = (self.samples * n // self.shards for n in (shard, shard + 1))
                    self.data[shard] = x, y = rows(low, high)
                    if not len(x) == len(y) == high - low:
                        raise ValueError(f"rows({low}, {high}) gave {len(x)}, {len(y)} samples")
                    own.append(_digest([x, y]))
        except Exception as error:
            trouble = f"{type(error).__name__}: {error}"
        everyone = self.exchange((trouble, facts, own))
        for rank, (_, other, _) in enumerate(everyone):
            for name in facts:
                if other[name] != everyone[0][1][name]:
                    raise RankError(f"rank {rank} differs from rank 0 in its {name}")
        data = [digest for _, _, own in everyone for digest in own]
        return sha256(repr((facts, data)).encode()).hexdigest()

    def exchange(self, message: tuple[Any, ...]) -> list[Any]:
        """The messages of all ranks; the first entry of one says what went wrong, or is None."""
        everyone = [message] * self.world
        self.talk(dist.all_gather_object, everyone, message)
        for rank, other in enumerate(everyone):
            if other[0] is not None:
                raise RankError(f"rank {rank} failed: {other[0]}")
        return everyone

    def trees(self, rank: int) -> list[Tree]:
        """The largest subtrees whose shards all belong to a rank."""
        low, high = (self.shards * n // self.world for n in (rank, rank + 1))
        return list(_cover(low, high, 0, self.shards))

    def sum_of_tree(self, start: int, length: int, v: Tensor, known: dict[Tree, Tensor]) -> Tensor:
        """The sum of the shards' products along the tree, from `known` sums where there are any."""
        if (start, length) in known:
            return known[start, length]
        if length == 1:
            return self.product(*self.data[start], v)
        half = length // 2
        left = self.sum_of_tree(start, half, v, known)
        return left + self.sum_of_tree(start + half, length - half, v, known)

    def product(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """The Hessian or Gauss–Newton matrix of the summed loss of some samples, times v (P,)."""
        weights, grad = self.weights, torch.autograd.grad
        pieces = zip(torch.split(v, self.sizes), weights, strict=True)
        parts = [piece.reshape(weight.shape).to(weight) for piece, weight in pieces]
        with sdpa_kernel(SDPBackend.MATH), torch.enable_grad():
            z = self.module(x)
            if self.matrix == "hessian":
                total = self.loss_sum(z, y)
                slope = grad(total, weights, create_graph=True, materialize_grads=True)
                image = grad(slope, weights, parts, materialize_grads=True)
            else:
                u = torch.zeros_like(z, requires_grad=True)
                pulled = grad(z, weights, u, create_graph=True, materialize_grads=True)
                pushed = grad(pulled, u, parts)[0]  # v ↦ Jv, the transpose of u ↦ Jᵀu
                top = z.detach().requires_grad_()
                slope = grad(self.loss_sum(top, y), top, create_graph=True)
                image = grad(z, weights, grad(slope, top, pushed), materialize_grads=True)
        return torch.cat([part.detach().reshape(-1).double().cpu() for part in image])

    def multiply(self, vector: Array | None) -> Tensor:
        """One product, on all ranks; rank 0 gives the vector and gets the sum over all samples."""
        v = torch.zeros(sum(self.sizes), dtype=torch.float64)
        if vector is not None:
            v.copy_(torch.from_numpy(vector))
        self.talk(dist.broadcast, v, 0)
        known: dict[Tree, Tensor] = {}
        trouble = None
        try:
            known = {tree: self.sum_of_tree(*tree, v, {}) for tree in self.trees(self.rank)}
        except Exception as error:
            trouble = f"{type(error).__name__}: {error}"
        self.exchange((trouble,))
        for other in range(1, self.world):
            for tree in self.trees(other):
                if self.rank == 0:
                    known[tree] = torch.empty_like(v)
                    self.talk(dist.recv, known[tree], other)
                elif self.rank == other:
                    self.talk(dist.send, known[tree], 0)
        return self.sum_of_tree(0, self.shards, v, known) if self.rank == 0 else v

    def command(self, number: int) -> int:
        """The command that rank 0 gives."""
        told = torch.tensor([number])
        self.talk(dist.broadcast, told, 0)
        return int(told)

    def serve(self) -> None:
        """Multiply until rank 0 has finished."""
        while (told := self.command(STOP)) == MULTIPLY:
            self.multiply(None)
        if told == ABORT:
            raise RankError("rank 0 failed: its own message says why")

    def drive(
        self, work: Callable[[LinearOperator], Answer], checkpoint: str | Path | None, mark: str
    ) -> Answer:
        """Do the work on rank 0, and let the others go, whatever happens."""

        size = sum(self.sizes)

        def matvec(vector: Array) -> Array:
            given = real_array("vector", np.ravel(vector), ndim=1).copy()
            self.command(MULTIPLY)
            return self.multiply(given).numpy() / self.samples

        stored = matvec if checkpoint is None else _stored(matvec, Path(checkpoint), mark, size)
        end = ABORT
        try:
            answer = work(LinearOperator((size, size), matvec=stored, dtype=np.float64))
            end = STOP
        except RankError:
            end = MULTIPLY  # nobody listens any more
            raise
        finally:
            if end != MULTIPLY:
                self.command(end)
        return answer


def _group_of_all(timeout: float) -> dist.ProcessGroup | None:
    """A new group of all ranks, as soon as each has come; None if there is no launcher."""
    global runs
    runs, limit, begun = runs + 1, timedelta(seconds=timeout), dist.is_initialized()
    if begun:
        rank, world = dist.get_rank(), dist.get_world_size()
        store = dist.distributed_c10d._get_default_store()
    elif "RANK" in os.environ:
        rank, world, port = (int(os.environ[n]) for n in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
        address = os.environ["MASTER_ADDR"], port
        host = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        door = socket.create_server(address).detach() if host else None
        try:
            store = TCPStore(*address, world, host, limit, False, master_listen_fd=door)
        except RuntimeError as error:
            raise RankError(f"rank 0 did not come within {timeout:g} seconds") from error
    else:
        return None
    if absent := _silent(store, f"run {runs}", rank, world, timeout):
        raise RankError(f"rank {absent} did not come within {timeout:g} seconds")
    if not begun:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", None, limit, world, rank, store)
        atexit.register(dist.destroy_process_group)
    return dist.new_group(backend="gloo", timeout=limit)


def _silent(store: Any, call: str, rank: int, world: int, seconds: float) -> str:
    """The ranks that do not answer a roll call in some seconds; every rank takes part in it."""
    absent, deadline = [], time.monotonic() + seconds
    try:
        store.set(f"exacthessian/{call}/{rank}", "here")
        for other in range(world):
            left = max(deadline - time.monotonic(), 0.1)
            try:
                store.wait([f"exacthessian/{call}/{other}"], timedelta(seconds=left))
            except dist.DistStoreError:
                absent.append(str(other))
    except dist.DistNetworkError:
        return "0"  # which holds the store, if no launcher does
    return ", ".join(absent)


def _cover(low: int, high: int, start: int, length: int) -> Iterator[Tree]:
    """The largest subtrees of (start, length) inside the shards low, …, high − 1, in order."""
    if low <= start and start + length <= high:
        yield start, length
    elif start < high and low < start + length:
        half = length // 2
        yield from _cover(low, high, start, half)
        yield from _cover(low, high, start + half, length - half)


def _digest(values: Any) -> str:
    """SHA-256 of the bytes of some tensors."""
    found = sha256()
    for value in values:
        found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return found.hexdigest()


def _stored(
    matvec: Callable[[Array], Array], path: Path, mark: str, size: int
) -> Callable[[Array], Array]:
    """The products in a file, one after the other: first those that it has, then new ones.

    The file holds the fingerprint of model and data, then for each product SHA-256 of the vector
    and the result. What a killed run wrote in part is dropped.
    """
    record = 32 + 8 * size
    with path.open("a+b") as file:
        file.seek(0)
        if (known := file.read(64)) and known != mark.encode():
            raise ValueError(f"checkpoint {path} is of another model, loss or data")
        file.seek(0, os.SEEK_END)
        if not known:
            file.write(mark.encode())
        file.truncate(64 + (file.tell() - 64) // record * record)
    position = 64

    def product(vector: Array) -> Array:
        nonlocal position
        wanted = sha256(vector.tobytes()).digest()
        with path.open("r+b") as file:
            file.seek(position)
            known = file.read(record)
            if not known:
                known = wanted + matvec(vector).tobytes()
                file.write(known)
        if known[:32] != wanted:
            raise ValueError(f"checkpoint {path} is of another run: its vectors differ")
        position += record
        return np.frombuffer(known[32:]).copy()

    return product
