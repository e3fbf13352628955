"""Micro-batch plans in plain PyTorch loops: DDP, and `fully_shard` where a replica is a whole shard group.

    agree = mycroft.pytorch.largest_over(torch.distributed.new_group(backend="gloo"))
    controller = mycroft.Controller("plan.json", replica=rank, replicas=world, total=32, agree=agree)
    batches = iter(DataLoader(data, batch_sampler=mycroft.MicroBatchSampler(controller, len(data), 4)))
    for step in range(steps):
        share = controller.begin(step)
        for _ in mycroft.pytorch.accumulate(model, share):
            (loss_of(model, next(batches)) * share.scale).backward()
        optimizer.step()
"""
import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mycroft.controller import Agree, Share

if TYPE_CHECKING:
    from mycroft.controller import Controller


def largest_over(group: Any = None) -> Agree:
    """The agreement of a controller over a process group that holds all ranks of the job.

    A group of Gloo costs the host a message and the device nothing; with one of NCCL the host waits for the device in each
    round."""
    import torch
    import torch.distributed as dist

    backend = str(dist.get_backend(group))
    device = "cuda" if backend == "nccl" else "cpu"

    def largest(numbers: Sequence[int]) -> list[int]:
        tensor = torch.tensor(list(numbers), dtype=torch.int64, device=device)
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group)
        return [int(number) for number in tensor.tolist()]

    return largest


def accumulate(model: Any, share: Share) -> Iterator[int]:
    """Gives the number of each micro-batch of the share, and lets the model exchange gradients with the last one only.

    `model` is DistributedDataParallel or a module of `fully_shard`; what has neither `no_sync` nor `set_requires_gradient_sync`
    is left alone. Where parameters are sharded over replicas every forward gathers them, and uneven numbers would hang: shard
    inside a replica only (HSDP)."""
    last = share.ids[-1]
    for micro in share.ids:
        with _exchange(model, micro == last):
            yield micro


@contextlib.contextmanager
def _exchange(model: Any, wanted: bool) -> Iterator[None]:
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(wanted)
        yield
    elif wanted or not hasattr(model, "no_sync"):
        yield
    else:
        with model.no_sync():
            yield


def weigh_gradients(model: Any, controller: "Controller", group: Any = None) -> None:
    """For loops that divide by the number of their own micro-batches: a communication hook of DistributedDataParallel that
    weighs this replica's gradients with m_i * D / M before they are averaged. Not together with `Share.scale`."""
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    group = group if group is not None else dist.group.WORLD

    def hook(state, bucket):  # type: ignore[no-untyped-def]  # PyTorch refuses annotations other than its own.
        bucket.buffer().mul_(controller.current.weight)
        return default_hooks.allreduce_hook(state, bucket)

    model.register_comm_hook(group, hook)


def mean_loss(summed: Any, share: Share, group: Any = None) -> Any:
    """The mean loss over all micro-batches of the step, on every rank: from the sum over this replica's. Collective."""
    import torch.distributed as dist

    mean = summed.detach().clone() / share.total
    dist.all_reduce(mean, group=group)
    return mean
