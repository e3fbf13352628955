"""Every operation of the backend against Gloo, in as many processes as asked for.

usage: test_ops.py WORLD      (MYCROFT_TORCH_NCCL names the collective library)
"""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def operations(group, rank, world):
    """Gives (name, tensors) of each operation's results."""

    def made(*shape, dtype=torch.float32, shift=0):
        count = torch.Size(shape).numel()
        return ((torch.arange(count) * (rank + 2) + shift) % 7 + 1).reshape(shape).to(dtype)

    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8):
        tensor = made(33, dtype=dtype)
        dist.all_reduce(tensor, group=group)
        yield f"all_reduce {dtype}", [tensor]
    for op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT):
        tensor = made(1000)
        dist.all_reduce(tensor, op, group=group)
        yield f"all_reduce {op}", [tensor]
    tensor = made(16, 16).t()
    dist.all_reduce(tensor, group=group)
    yield "all_reduce, not contiguous", [tensor]
    tensor = torch.complex(made(5), made(5, shift=1))
    dist.all_reduce(tensor, group=group)
    yield "all_reduce, complex", [tensor]
    tensors = [made(n, shift=n) for n in (3, 40_000, 1)]
    with dist._coalescing_manager(group):
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    yield "all_reduce, coalesced", tensors
    for root in range(world):
        tensor = made(100, shift=root)
        dist.broadcast(tensor, group_src=root, group=group)
        yield f"broadcast {root}", [tensor]
        tensor = made(100, shift=root)
        dist.reduce(tensor, group_dst=root, group=group)
        yield f"reduce {root}", [tensor] if rank == root else []
        parts = [torch.zeros(9) for _ in range(world)] if rank == root else None
        dist.gather(made(9), parts, group_dst=root, group=group)
        yield f"gather {root}", parts or []
        given = [made(9, shift=n) for n in range(world)] if rank == root else None
        tensor = torch.zeros(9)
        dist.scatter(tensor, given, group_src=root, group=group)
        yield f"scatter {root}", [tensor]
    parts = [torch.zeros(4, 3) for _ in range(world)]
    dist.all_gather(parts, made(4, 3), group=group)
    yield "all_gather", parts
    flat = torch.zeros(world * 4, 3)
    dist.all_gather_into_tensor(flat, made(4, 3), group=group)
    yield "all_gather_into_tensor", [flat]
    tensor = torch.zeros(4, 3)
    dist.reduce_scatter(tensor, [made(4, 3, shift=n) for n in range(world)], group=group)
    yield "reduce_scatter", [tensor]
    tensor = torch.zeros(4, 3)
    dist.reduce_scatter_tensor(tensor, made(world * 4, 3), group=group)
    yield "reduce_scatter_tensor", [tensor]
    flats = [torch.zeros(world * n) for n in (2, 5)]
    with dist._coalescing_manager(group):
        for n, flat in zip((2, 5), flats):
            dist.all_gather_into_tensor(flat, made(n, shift=n), group=group)
    yield "all_gather_into_tensor, coalesced", flats
    flats = [torch.zeros(n) for n in (2, 5)]
    with dist._coalescing_manager(group):
        for n, flat in zip((2, 5), flats):
            dist.reduce_scatter_tensor(flat, made(world * n, shift=n), group=group)
    yield "reduce_scatter_tensor, coalesced", flats
    tensor = torch.zeros(world * 3)
    dist.all_to_all_single(tensor, made(world * 3), group=group)
    yield "all_to_all_single", [tensor]
    # Rank r gives (r + s) % 3 rows to rank s: some give nothing.
    sizes = [(rank + other) % 3 for other in range(world)]
    tensor = torch.zeros(sum(sizes), 2)
    dist.all_to_all_single(tensor, made(sum(sizes), 2), sizes, sizes, group=group)
    yield "all_to_all_single, uneven", [tensor]
    parts = [torch.zeros(3) for _ in range(world)]
    dist.all_to_all(parts, [made(3, shift=other) for other in range(world)], group=group)
    yield "all_to_all", parts
    # A ring of unbatched transfers, then the same batched.
    after, before = (rank + 1) % world, (rank - 1) % world
    tensor, given = torch.zeros(500), made(500)
    if rank % 2 == 0:
        dist.send(given, group_dst=after, group=group)
        dist.recv(tensor, group_src=before, group=group)
    else:
        dist.recv(tensor, group_src=before, group=group)
        dist.send(given, group_dst=after, group=group)
    yield "send, recv", [tensor]
    tensor = torch.zeros(500)
    transfers = [
        dist.P2POp(dist.isend, made(500, shift=1), group=group, group_peer=after),
        dist.P2POp(dist.irecv, tensor, group=group, group_peer=before),
    ]
    for work in dist.batch_isend_irecv(transfers):
        work.wait()
    yield "batch_isend_irecv", [tensor]
    tensors = [made(1000, shift=n) for n in range(5)]
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
    yield "asynchronous, waited for backwards", tensors
    tensor = made(1000)
    future = dist.all_reduce(tensor, group=group, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    yield "future", [doubled.wait()]
    objects = [None] * world
    dist.all_gather_object(objects, {"rank": rank}, group=group)
    yield "all_gather_object", [torch.tensor([entry["rank"] for entry in objects])]
    dist.barrier(group=group)
    yield "barrier", []


def check(rank, world, folder):
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import mycroft_backend

    torch.set_num_threads(1)
    mycroft_backend.register()
    dist.init_process_group("mycroft", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    whole = dist.group.WORLD
    pairs = [dist.new_group(range(first, first + 2)) for first in range(0, world, 2)]
    done = 0
    for members in [range(world)] + ([range(first, first + 2) for first in range(0, world, 2)] if world > 2 else []):
        ours = whole if len(members) == world else pairs[members[0] // 2]
        gloo = dist.new_group(members, backend="gloo")
        if rank not in members:
            continue
        place, size = members.index(rank), len(members)
        for (name, got), (_, expected) in zip(operations(ours, place, size), operations(gloo, place, size), strict=True):
            for one, other in zip(got, expected, strict=True):
                assert torch.allclose(one, other), f"rank {rank} of {members}: {name}: {one} instead of {other}"
            done += 1
    average = torch.full((3,), float(rank))
    dist.all_reduce(average, dist.ReduceOp.AVG)
    assert torch.allclose(average, torch.full((3,), (world - 1) / 2))
    flags = torch.tensor([rank == 0, False])
    dist.all_reduce(flags)
    assert flags.tolist() == [True, False]
    try:
        dist.all_reduce(torch.zeros(2, dtype=torch.int16))
        raise AssertionError("NCCL has no 16-bit integers")
    except TypeError:
        pass
    dist.barrier()
    if rank == 0:
        print(f"{done + 3} operations of {world} ranks are right", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(check, (int(sys.argv[1]), folder), nprocs=int(sys.argv[1]))
