"""A Hessian product of parameters sharded by FSDP2, and the mistake next to it: see test_fsdp."""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Partial, Replicate, distribute_tensor
from torch.func import functional_call

from exacthessian.phantoms import phantom

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
p = phantom("outliers", 3000, seed=0)
plain = phantom("outliers", 3000, seed=0).model  # gives the forward, not the weights
fully_shard(p.model, mesh=mesh)
first, last = (
    len(p.inputs) * n // dist.get_world_size() for n in (dist.get_rank(), dist.get_rank() + 1)
)
x, y = (part[first:last] for part in p.data)


# start
def product(model, vector, placements):
    """Σ_n ∇²ℓ_n · vector over the samples of all ranks, sharded like the parameters of `model`."""
    sharded = dict(model.named_parameters())
    weights = [weight.detach().requires_grad_() for weight in sharded.values()]
    full = [
        weight.redistribute(mesh, [Replicate()]).to_local(grad_placements=placements)
        for weight in weights
    ]
    outputs = functional_call(plain, dict(zip(sharded, full, strict=True)), (x,))
    loss = ((outputs - y) ** 2).sum() / 2  # of this rank's samples only
    gradient = torch.autograd.grad(loss, weights, create_graph=True)
    return torch.autograd.grad(gradient, weights, vector)


# end
def matvec(v, placements):
    """The product of the whole vector, for the phantom."""
    shapes = [weight.shape for weight in plain.parameters()]
    pieces = torch.from_numpy(v).split([shape.numel() for shape in shapes])
    shards = [
        distribute_tensor(piece.reshape(shape), mesh, weight.placements)
        for piece, shape, weight in zip(pieces, shapes, p.model.parameters(), strict=True)
    ]
    images = [part.full_tensor() for part in product(p.model, shards, placements)]
    return np.concatenate([image.numpy().ravel() for image in images]) / len(p.inputs)


right, obvious = (p.residual(lambda v, g=g: matvec(v, g)) for g in ([Partial()], None))
if dist.get_rank() == 0:
    Path(sys.argv[1], "residuals").write_text(f"{right} {obvious}")
dist.barrier()
dist.destroy_process_group()
