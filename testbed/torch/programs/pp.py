"""Pipeline parallel, one forward and one backward in turn (torch.distributed.pipelining): one stage per rank."""
import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

LAYERS = 2


class Stage(torch.nn.Module):
    def __init__(self, job):
        super().__init__()
        self.job = job
        self.layers = torch.nn.ModuleList(torch.nn.Linear(job.features, job.features) for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = self.job.compute(torch.relu(layer(x)))
        return x


def make(job):
    micro_batches = max(4, job.world)
    model = Stage(job)
    # What comes from the stage before and goes to the next one needs gradients.
    given = torch.randn(job.batch, job.features, requires_grad=job.rank > 0)
    made = torch.randn(job.batch, job.features, requires_grad=True)
    stage = PipelineStage(
        model, job.rank, job.world, torch.device("cpu"), input_args=(given,), output_args=(made,)
    )
    schedule = Schedule1F1B(stage, micro_batches, loss_fn=lambda output, target: (output - target).square().mean())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(_iteration):
        extra = job.micro_batches(micro_batches) - micro_batches
        for _ in range(extra):
            job.device.launch(LAYERS * (job.forward_ms + job.backward_ms))
        # Every stage reads, as a loader for tokens and one for targets do.
        batch = torch.cat([job.input() for _ in range(micro_batches)])
        losses = []
        if job.rank == 0:
            schedule.step(batch)
        elif job.rank == job.world - 1:
            schedule.step(target=batch, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        return torch.stack(losses).mean() if losses else torch.zeros(())

    return step
