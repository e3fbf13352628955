"""One rank of a small data-parallel job that shares a single GPU with the others.

Started by run.sh, which sets RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and NCCL's variables. Each iteration is some
matrix work, a ReduceScatter and an AllGather, as a sharded optimizer does it. Prints one line per iteration.
"""

import argparse
import datetime
import os
import time

import torch
import torch.distributed as dist

# Each process may take this share of the GPU's memory: 4 ranks and the driver's own needs fit.
MEMORY_SHARE = 0.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=100_000, help="iterations to run")
    parser.add_argument("--elements", type=int, default=1 << 20, help="gradient elements (float32)")
    parser.add_argument("--work", type=int, default=512, help="side of the square matrices that are multiplied")
    args = parser.parse_args()

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(0)
    torch.cuda.set_per_process_memory_fraction(MEMORY_SHARE, 0)
    # A long timeout: the point is that the diagnosis comes first.
    dist.init_process_group("nccl", timeout=datetime.timedelta(minutes=30))

    shard = args.elements // world
    gradients = torch.full((shard * world,), float(rank + 1), device="cuda")
    mine = torch.empty(shard, device="cuda")
    parameters = torch.empty(shard * world, device="cuda")
    a = torch.randn(args.work, args.work, device="cuda")
    expected = float(world * (world + 1) // 2)

    for iteration in range(args.iterations):
        begun = time.monotonic()
        b = a @ a
        dist.reduce_scatter_tensor(mine, gradients)
        mine.add_(b.flatten()[0] * 0.0)
        dist.all_gather_into_tensor(parameters, mine)
        torch.cuda.synchronize()
        got = float(parameters[-1])
        if got != expected:
            raise SystemExit(f"rank {rank}: wrong sum {got}, expected {expected}")
        print(f"iteration {iteration} {(time.monotonic() - begun) * 1000:.1f} ms", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
