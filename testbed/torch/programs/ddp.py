"""Data parallel: DistributedDataParallel with buckets small enough that several overlap with the backward pass."""
import contextlib

import torch
from torch.nn.parallel import DistributedDataParallel

LAYERS, MICRO_BATCHES = 3, 2


class Layers(torch.nn.Module):
    def __init__(self, job):
        super().__init__()
        self.job = job
        self.layers = torch.nn.ModuleList(torch.nn.Linear(job.features, job.features) for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = self.job.compute(torch.relu(layer(x)))
        return x


def make(job):
    model = DistributedDataParallel(Layers(job), bucket_cap_mb=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(_iteration):
        number = job.micro_batches(MICRO_BATCHES)
        for micro in range(number):
            # Gradients are summed up locally until the last micro-batch.
            with contextlib.nullcontext() if micro == number - 1 else model.no_sync():
                loss = model(job.input()).square().mean()
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step
