"""One rank of a PyTorch job on the testbed: it is started by `mycroft testbed torch`, not by hand.

usage: run.py PROGRAM --run-dir DIR --rank N

The run directory has the collective library, the board (crates/testbed/src/board.rs) and, from the moment at which a fault
is injected, `program-fault`: a fault that only the program itself can make.
"""
import argparse
import gc
import importlib.util
import json
import mmap
import os
import signal
import struct
import sys
import time

RUN_DIR, RANK = sys.argv[sys.argv.index("--run-dir") + 1], sys.argv[sys.argv.index("--rank") + 1]
SERVER = os.path.join(RUN_DIR, f"server-{RANK}.sock")
if os.environ.get("TORCH_WORKER_SERVER_SOCKET") != SERVER:
    # An agent reads from the environment a process was started with how to ask it for a Flight Recorder dump.
    os.environ["TORCH_WORKER_SERVER_SOCKET"] = SERVER
    os.environ["TORCH_FR_DUMP_TEMP_FILE"] = os.path.join(RUN_DIR, "fr_rank_")
    os.execv(sys.executable, [sys.executable, *sys.argv])

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer

import mycroft_backend

FOREVER_S = 1e6
# Objects by which the garbage collector's work grows in an iteration: about 10 ms of it.
GARBAGE_STEP = 300_000
# Board: stop_at, ranks, switch_every, then per rank iterations finished and the newest 8192 of them.
BOARD_HEAD, BOARD_KEPT = 40, 8192
BOARD_RANK = 8 + 8 * BOARD_KEPT
WORD = struct.Struct("=Q")


class Board:
    """What the launcher reads and says."""

    def __init__(self, path, rank):
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)
        self.words, self.rank = memoryview(self.map).cast("Q"), rank
        self.own = (BOARD_HEAD + rank * BOARD_RANK) // 8
        self.ranks = self.words[1]

    def is_stopped(self, iteration):
        return iteration >= self.words[0]

    def events_wanted(self, iteration):
        """Whether the profiler is to be given events, None if it always is; see Board::switch."""
        every = self.words[2]
        return None if every == 0 else iteration // every % 4 in (0, 3)

    def finish(self, micros, processor_ns):
        done = self.words[self.own]
        value = min(micros, 2**32 - 1) | min(processor_ns, 2**32 - 1) << 32
        self.words[self.own + 1 + done % BOARD_KEPT] = value
        self.words[self.own] = done + 1

    def all_stopped(self):
        done = [self.words[(BOARD_HEAD + rank * BOARD_RANK) // 8] for rank in range(self.ranks)]
        return all(self.is_stopped(iterations) for iterations in done)


class Batches(torch.utils.data.IterableDataset):
    """An endless set of samples; the storage behind it may be slow."""

    def __init__(self, job):
        self.job, self.made = job, torch.Generator().manual_seed(job.rank)

    def __iter__(self):
        while True:
            self.read_shard()
            yield torch.randn(self.job.features, generator=self.made)

    def read_shard(self):
        fault = self.job.faulty("rank-stuck", "data-wait")
        if fault == "rank-stuck":
            time.sleep(FOREVER_S)
        elif fault == "data-wait" and not self.job.has_waited:
            # Once an iteration, however many samples that takes.
            self.job.has_waited = True
            time.sleep(self.job.severity / 1e3)


class Job:
    """What a program needs: its place, input, computations on the emulated device, and the loss at the end."""

    features, batch = 128, 4
    forward_ms, backward_ms = 5.0, 10.0

    def __init__(self, run_dir, rank):
        self.run_dir, self.rank, self.world = run_dir, rank, int(os.environ["WORLD_SIZE"])
        self.device, self.fault, self.severity = mycroft_backend.device(), None, 0.0
        self.loader = iter(torch.utils.data.DataLoader(Batches(self), batch_size=self.batch))
        self.garbage, self.has_waited = [], False

    def look(self):
        """Whether a fault has been injected that this rank has to make."""
        path = os.path.join(self.run_dir, "program-fault")
        if self.fault is None and os.path.exists(path):
            with open(path) as file:
                told = json.load(file)
            if told["rank"] == self.rank:
                self.fault, self.severity = told["kind"], told["severity"]

    def faulty(self, *kinds):
        return self.fault if self.fault in kinds else None

    def input(self):
        return next(self.loader)

    def compute(self, tensor, forward_ms=None, backward_ms=None):
        """The device computes what led to this tensor, and on the way back its gradient."""
        self.device.launch(self.forward_ms if forward_ms is None else forward_ms)
        if tensor.requires_grad:
            ms = self.backward_ms if backward_ms is None else backward_ms
            tensor.register_hook(lambda _: self.device.launch(ms))
        return tensor

    def micro_batches(self, usual):
        """How many micro-batches this rank has: more than the others if they were dealt out unevenly."""
        return int(usual * self.severity) if self.faulty("uneven-micro-batches") else usual

    def average(self, loss):
        """The mean loss of all ranks, in which a rank may take another branch than its peers."""
        loss = loss.detach().clone().reshape(1)
        kind = self.faulty("skipped-collective", "wrong-collective", "wrong-size")
        if kind == "skipped-collective":
            return loss
        if kind == "wrong-collective":
            dist.broadcast(loss, self.rank)
            return loss
        if kind == "wrong-size":
            loss = loss.repeat(100_000)
        dist.all_reduce(loss, dist.ReduceOp.AVG)
        return loss[:1]

    def misbehave(self):
        """What befalls the process between two iterations."""
        self.has_waited = False
        if self.faulty("rank-frozen"):
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self.faulty("cuda-execution-error"):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        elif self.faulty("gc-pauses"):
            # Objects that live on, so that every full collection looks at them all: more until one lasts as told.
            begun = time.monotonic()
            gc.collect()
            if (time.monotonic() - begun) * 1e3 < self.severity:
                self.garbage.extend([None] for _ in range(GARBAGE_STEP))


def processor_ns():
    return time.process_time_ns()


def train(job, step, board):
    iteration = 0
    while not board.is_stopped(iteration):
        wanted = board.events_wanted(iteration)
        if wanted is not None:
            mycroft_backend.nccl().lib.mtbProfilerEvents(int(wanted))
        begun, processor = time.monotonic_ns(), processor_ns()
        job.look()
        job.misbehave()
        loss = step(iteration)
        job.average(loss)
        # As reading the loss does: the host waits for the device once an iteration.
        job.device.synchronize()
        board.finish((time.monotonic_ns() - begun) // 1000, processor_ns() - processor)
        iteration += 1
    begun = time.monotonic()
    while not board.all_stopped() and time.monotonic() - begun < 20:
        time.sleep(0.002)


def load(program):
    """A program of this folder by its name, or any file."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = program if program.endswith(".py") else os.path.join(here, "programs", program + ".py")
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--run-dir", required=True)
    parser.add_argument("--rank", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    os.environ[mycroft_backend.ENV_LIBRARY] = os.path.join(args.run_dir, "libnccl.so.2")
    mycroft_backend.register()
    board, job = Board(os.path.join(args.run_dir, "board"), args.rank), Job(args.run_dir, args.rank)
    # A file, because hosts that are namespaces share no address before their communicators exist.
    store = dist.FileStore(os.path.join(args.run_dir, "store"), job.world)
    dist.init_process_group(mycroft_backend.NAME, store=store, rank=args.rank, world_size=job.world)
    server = _WorkerServer(SERVER, -1)
    step = load(args.program).make(job)
    try:
        train(job, step, board)
        dist.destroy_process_group()
        server.shutdown()
    except dist.DistBackendError as failure:
        # A rank whose peer died does what most training jobs do: it hangs until somebody ends it.
        print(f"{failure}; waiting to be ended", file=sys.stderr, flush=True)
        time.sleep(FOREVER_S)


if __name__ == "__main__":
    main()
