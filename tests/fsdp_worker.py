"""Two Hessian products of parameters sharded by FSDP2, and a mistake: see test_distributed."""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_tensor
from torch.func import functional_call

from exacthessian.phantoms import phantom

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
p = phantom("outliers", 3000, seed=0)
plain = phantom("outliers", 3000, seed=0).model  # gives the forward, not the weights
fully_shard(p.model, mesh=mesh, reshard_after_forward=False)
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


# second
def product_by_forward(model, vector):
    """The same with the hooks of FSDP2, from `fully_shard(model, reshard_after_forward=False)`;
    `vector` and result are whole on every rank.
    """
    model.set_reshard_after_backward(False)  # the first backward would free what the second needs
    model.set_requires_gradient_sync(False)  # one sum, below, instead of one in each backward
    loss = ((model(x) - y) ** 2).sum() / 2
    weights = list(model.parameters())  # after the forward pass: gathered, no shards
    gradient = torch.autograd.grad(loss, weights, create_graph=True)
    image = torch.autograd.grad(gradient, weights, vector)
    for part in image:
        dist.all_reduce(part)
    model.reshard()
    return image


# end
def pieces(v):
    """A vector (P,) in the shapes of the parameters."""
    shapes = [weight.shape for weight in plain.parameters()]
    parts = torch.from_numpy(v).split([shape.numel() for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def matvec(v, placements):
    """The first product of the whole vector, for the phantom."""
    shards = [
        distribute_tensor(piece, mesh, weight.placements)
        for piece, weight in zip(pieces(v), p.model.parameters(), strict=True)
    ]
    images = [part.full_tensor() for part in product(p.model, shards, placements)]
    return np.concatenate([image.numpy().ravel() for image in images]) / len(p.inputs)


def second_matvec(v):
    """The second."""
    images = product_by_forward(p.model, pieces(v))
    sharded = {type(weight) for weight in p.model.parameters()}
    assert sharded == {DTensor}, "the shards must be back after a product"
    return np.concatenate([image.numpy().ravel() for image in images]) / len(p.inputs)


right, obvious = (p.residual(lambda v, g=g: matvec(v, g)) for g in ([Partial()], None))
second = p.residual(second_matvec)
if dist.get_rank() == 0:
    Path(sys.argv[1], "residuals").write_text(f"{right} {second} {obvious}")
dist.barrier()
dist.destroy_process_group()
