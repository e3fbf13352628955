"""A mixture of experts: tokens go to the ranks of their experts and back, unevenly, in every layer; gradients of what is
shared are averaged over all ranks."""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable

LAYERS, TOKENS = 2, 64


class Experts(torch.nn.Module):
    """One expert on each rank."""

    def __init__(self, job):
        super().__init__()
        self.job = job
        self.router = torch.nn.Linear(job.features, job.world)
        self.expert = torch.nn.Linear(job.features, job.features)

    def forward(self, x):
        scores = self.router(x).softmax(-1)
        weight, expert = scores.max(-1)
        order = expert.argsort(stable=True)
        given = torch.bincount(expert, minlength=self.job.world)
        taken = torch.empty_like(given)
        dist.all_to_all_single(taken, given)
        sizes_out, sizes_in = taken.tolist(), given.tolist()
        tokens = x.new_empty(sum(sizes_out), x.shape[1])
        tokens = differentiable.all_to_all_single(tokens, x[order], sizes_out, sizes_in)
        done = self.job.compute(torch.relu(self.expert(tokens)))
        back = x.new_empty(x.shape)
        back = differentiable.all_to_all_single(back, done, sizes_in, sizes_out)
        restored = torch.zeros_like(x).index_copy(0, order, back)
        return x + restored * weight.unsqueeze(-1)


def make(job):
    model = torch.nn.Sequential(*(Experts(job) for _ in range(LAYERS)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    shared = [parameter for block in model for parameter in block.router.parameters()]

    def step(_iteration):
        for _ in range(job.micro_batches(1) - 1):
            job.device.launch(LAYERS * (job.forward_ms + job.backward_ms))
        tokens = torch.cat([job.input() for _ in range(TOKENS // job.batch)])
        loss = model(tokens).square().mean()
        loss.backward()
        for parameter in shared:
            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step
