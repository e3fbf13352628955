"""Fully sharded data parallel (FSDP2): parameters are gathered for each layer, gradients scattered after it."""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

LAYERS, MICRO_BATCHES = 3, 2


class Layer(torch.nn.Module):
    def __init__(self, job):
        super().__init__()
        self.job, self.linear = job, torch.nn.Linear(job.features, job.features)

    def forward(self, x):
        return self.job.compute(torch.relu(self.linear(x)))


def make(job):
    mesh = init_device_mesh("cpu", (job.world,), mesh_dim_names=("dp",))
    model = torch.nn.Sequential(*(Layer(job) for _ in range(LAYERS)))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(_iteration):
        # All ranks gather in every micro-batch, so that a rank with more of them repeats its own computation only.
        extra = job.micro_batches(MICRO_BATCHES) - MICRO_BATCHES
        for micro in range(MICRO_BATCHES):
            model.set_requires_gradient_sync(micro == MICRO_BATCHES - 1)
            for _ in range(extra if micro == 0 else 0):
                job.device.launch(LAYERS * (job.forward_ms + job.backward_ms))
            loss = model(job.input()).square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step
