"""Tensor parallel (DTensor) inside a host's ranks, data parallel across: a column-wise and a row-wise layer per block."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

BLOCKS, MICRO_BATCHES = 2, 2


class Block(torch.nn.Module):
    def __init__(self, job):
        super().__init__()
        self.job = job
        self.up = torch.nn.Linear(job.features, 4 * job.features)
        self.down = torch.nn.Linear(4 * job.features, job.features)

    def forward(self, x):
        hidden = self.job.compute(torch.relu(self.up(x)))
        return self.down(hidden) + x


def make(job):
    tp = min(2, job.world)
    mesh = init_device_mesh("cpu", (job.world // tp, tp), mesh_dim_names=("dp", "tp"))
    model = torch.nn.Sequential(*(Block(job) for _ in range(BLOCKS)))
    for block in model:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    group, size = mesh["dp"].get_group(), mesh["dp"].size()

    def step(_iteration):
        extra = job.micro_batches(MICRO_BATCHES) - MICRO_BATCHES
        for micro in range(MICRO_BATCHES):
            for _ in range(extra if micro == 0 else 0):
                job.device.launch(BLOCKS * (job.forward_ms + job.backward_ms))
            # Ranks of one tensor-parallel group see the same samples.
            batch = job.input()
            dist.broadcast(batch, group_src=0, group=mesh["tp"].get_group())
            loss = model(batch).square().mean()
            loss.backward()
        if size > 1:
            for parameter in model.parameters():
                grad = parameter.grad
                grad = grad.to_local() if hasattr(grad, "to_local") else grad
                dist.all_reduce(grad, dist.ReduceOp.AVG, group=group)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step
