"""The ranks of a small job with one fault, run by generate.py. Not meant to be started by hand.

The functions below look like a training script's, because their names end up in the dumps: a tool that reads the dumps
must not find the answer in a function's name.
"""
import ctypes
import json
import os
import random
import signal
import socket
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

FOREVER_S = 100_000.0


class Job:
    """What generate.py decided: scenario, world size, culprit, iteration, and where the results go."""

    def __init__(self, plan, rank):
        self.plan, self.rank = plan, rank
        self.world, self.culprit, self.at = plan["world"], plan["culprit"], plan["at"]
        self.scenario, self.iterations = plan["scenario"], plan["iterations"]
        self.rng = random.Random(plan["seed"])
        self.is_hook = plan["recorder"] == "hook"
        self.backend = "hooked" if self.is_hook else "gloo"
        self.progress = os.open(os.path.join(plan["work"], f"progress_{rank}"), os.O_CREAT | os.O_WRONLY, 0o644)
        self.moved = 0
        self.groups = {}
        self.faulted = False

    def due(self, iteration):
        """Whether this rank misbehaves in this iteration."""
        return self.rank == self.culprit and iteration == self.at

    def tick(self):
        self.moved += 1
        os.pwrite(self.progress, b"%012d\n" % self.moved, 0)

    def group(self, desc, ranks):
        made = dist.new_group(ranks, group_desc=desc)
        if self.rank in ranks:
            self.groups[desc] = made
        return made


# ---------------------------------------------------------------------------------------------------------------- start


def start(job):
    plan = job.plan
    torch.set_num_threads(1)
    if job.is_hook:
        sys.path.insert(0, plan["hookpg"])
        import hookpg

        if plan["park"]:
            hookpg.park()

        def make(store, rank, size, timeout):
            gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
            return hookpg.wrap(gloo, "nccl2", plan["hang_on_error"])

        dist.Backend.register_backend("hooked", make, devices=["cpu"])
    elif plan["park"]:
        sys.path.insert(0, plan["hookpg"])
        import hookpg

        hookpg.park()
    dist.init_process_group(
        job.backend, init_method=f"file://{plan['work']}/store", rank=job.rank, world_size=job.world
    )
    threading.Thread(target=dump_on_request, args=(job,), daemon=True, name="fr_dumper").start()


def dump_on_request(job):
    """Stands for torch's monitor thread and its pipe file: waits for the request and writes the dump."""
    request = os.path.join(job.plan["work"], "dump_now")
    while not os.path.exists(request):
        time.sleep(0.01)
    write_dump(job)


def write_dump(job):
    name = "nccl2" if job.is_hook else "gloo"
    out = job.plan["out"]
    data = c10d._dump_fr_trace(True, True, False, backend=name)
    for folder, file, content in (
        ("pickle", f"comm_lib_trace_rank_{job.rank}", data),
        ("json", f"trace_{job.rank}.json", c10d._dump_fr_trace_json(True, False, backend=name)),
    ):
        os.makedirs(os.path.join(out, folder), exist_ok=True)
        part = os.path.join(out, folder, f".{file}.part")
        with open(part, "wb") as f:
            f.write(content)
        os.rename(part, os.path.join(out, folder, file))


# ------------------------------------------------------------------------------------------------------ the training job


def load_batch(job, iteration, rows=8):
    job.tick()
    torch.manual_seed(iteration)
    return torch.randn(rows, 4)


def forward(job, batch):
    return batch.tanh() * 1.5


def sync_gradients(job, grad, group=None):
    dist.all_reduce(grad, group=group)
    job.tick()


def gather_outputs(job, output, group=None):
    size = dist.get_world_size(group)
    gathered = [torch.empty_like(output) for _ in range(size)]
    dist.all_gather(gathered, output, group=group)
    job.tick()
    return gathered


def shard_gradients(job, grad, group=None):
    size = dist.get_world_size(group)
    pieces = [grad.clone() for _ in range(size)]
    out = torch.empty_like(grad)
    dist.reduce_scatter(out, pieces, group=group)
    job.tick()
    return out


def broadcast_weights(job, src=0):
    weights = torch.ones(16, 4)
    dist.broadcast(weights, src=src)
    job.tick()


def train_step(job, batch):
    output = forward(job, batch)
    gather_outputs(job, output)
    sync_gradients(job, output)


def log_metrics(job, value):
    loss = torch.tensor([value])
    dist.all_reduce(loss)
    job.tick()
    return loss.item()


def evaluate(job, batch):
    score = forward(job, batch).mean().reshape(1)
    return gather_outputs(job, score)


def wait_in(job, how):
    """Ways in which a host thread stops: asleep, in a read, on a lock, in a queue."""
    job.faulted = True
    if how == 0:
        time.sleep(FOREVER_S)
    elif how == 1:
        ours, theirs = socket.socketpair()
        theirs.recv(1)
        ours.close()
    elif how == 2:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    else:
        import queue

        queue.Queue().get()


def fetch_shard(job):
    wait_in(job, job.plan["seed"] % 4)


def simple_loop(job, hook):
    """Forward, gather, reduce; `hook(iteration, batch)` may act, or replace the step by returning True."""
    broadcast_weights(job)
    for iteration in range(job.iterations):
        batch = load_batch(job, iteration)
        if not hook(iteration, batch):
            train_step(job, batch)


# ------------------------------------------------------------------------------------------------------------- scenarios


def healthy(job):
    tp = job.world // 2
    for t in range(2):
        job.group(f"TENSOR_MODEL_PARALLEL_GROUP_{t}", list(range(t * tp, t * tp + tp)))
    mine = job.groups[f"TENSOR_MODEL_PARALLEL_GROUP_{job.rank // tp}"]
    for iteration in range(job.iterations):
        batch = load_batch(job, iteration)
        sync_gradients(job, batch, mine)
        train_step(job, batch)
        shard_gradients(job, batch)
        ring_exchange(job, batch)
        if iteration % 3 == 0:
            evaluate(job, batch)
            dist.barrier()


def ring_exchange(job, batch):
    right, left = (job.rank + 1) % job.world, (job.rank - 1) % job.world
    got = torch.empty_like(batch)
    work = [dist.isend(batch, right), dist.irecv(got, left)]
    for w in work:
        w.wait()
    job.tick()


def healthy_running(job):
    job.iterations = 1_000_000
    simple_loop(job, lambda iteration, batch: time.sleep(0.002))


def rank_stuck(job):
    simple_loop(job, lambda iteration, batch: fetch_shard(job) if job.due(iteration) else None)


def size_mismatch(job):
    def hook(iteration, batch):
        rows = 6 if job.due(iteration) else 8
        batch = load_batch(job, iteration, rows)
        sync_gradients(job, batch)
        gather_outputs(job, batch[:1].contiguous())
        return True

    simple_loop(job, hook)


def dtype_hang(job):
    def hook(iteration, batch):
        sync_gradients(job, batch.double() if job.due(iteration) else batch)
        gather_outputs(job, batch)
        return True

    simple_loop(job, hook)


def dtype_silent(job):
    def hook(iteration, batch):
        tokens = (batch * 100).int() if job.due(iteration) else batch
        sync_gradients(job, tokens)
        return True

    simple_loop(job, hook)


def exchange_tokens(job, rows_in, rows_out):
    data = torch.randn(sum(rows_in), 4)
    out = torch.empty(sum(rows_out), 4)
    dist.all_to_all_single(out, data, rows_out, rows_in)
    job.tick()


def alltoall_oversend(job):
    """One rank sends more than its peers expect: they find a broken message."""

    def hook(iteration, batch):
        rows_in = [2] * job.world
        if job.due(iteration):
            rows_in = [3] * job.world
            rows_in[job.rank] = 2
        exchange_tokens(job, rows_in, [2] * job.world)
        sync_gradients(job, batch)
        return True

    simple_loop(job, hook)


def alltoall_wrong_splits(job):
    """One rank's splits are larger than its peers', in both directions."""

    def hook(iteration, batch):
        rows = [3 if job.due(iteration) else 2] * job.world
        exchange_tokens(job, rows, rows)
        sync_gradients(job, batch)
        return True

    simple_loop(job, hook)


def alltoall_permuted(job):
    """One rank's input splits are in another order than its peers expect; every total is right."""

    def hook(iteration, batch):
        rows_in = [2] * job.world
        if job.due(iteration):
            others = [r for r in range(job.world) if r != job.rank]
            rows_in[others[0]], rows_in[others[1]] = 1, 3
        exchange_tokens(job, rows_in, [2] * job.world)
        sync_gradients(job, batch)
        return True

    simple_loop(job, hook)


def alltoall_skewed_ok(job):
    """Uneven but legal: every pair agrees, totals differ from rank to rank and from step to step."""

    def hook(iteration, batch):
        draw = random.Random(iteration * 7919 + job.plan["seed"])
        table = [[draw.randrange(0, 9) for _ in range(job.world)] for _ in range(job.world)]
        rows_in = table[job.rank]
        rows_out = [table[src][job.rank] for src in range(job.world)]
        exchange_tokens(job, rows_in, rows_out)
        sync_gradients(job, batch)
        return True

    simple_loop(job, hook)


def slow_rank(job):
    job.iterations = 1_000_000

    def preprocess(iteration, batch):
        if job.rank == job.culprit:
            end = time.perf_counter() + 0.25
            x = 1.0
            while time.perf_counter() < end:
                x = x * 1.0000001 + 0.1
        else:
            time.sleep(0.01)

    simple_loop(job, preprocess)


def gil_held(job):
    def hook(iteration, batch):
        if job.due(iteration):
            encode_tokens(job)

    simple_loop(job, hook)


def encode_tokens(job):
    # A C function called with the interpreter's lock held.
    ctypes.PyDLL("libc.so.6").sleep(int(FOREVER_S))


def pipeline_async_skip(job):
    """Many operations in flight; one rank forgets one of them."""
    broadcast_weights(job)
    pending = []
    for iteration in range(job.iterations):
        batch = load_batch(job, iteration)
        for bucket in range(4):
            if job.due(iteration) and bucket == 2:
                continue
            pending.append(dist.all_reduce(torch.ones(8 + 8 * bucket), async_op=True))
            job.tick()
        if iteration % 4 == 3:
            drain(job, pending)


def drain(job, pending):
    while pending:
        pending.pop(0).wait()
        job.tick()


def branch_type(job):
    """One rank takes the evaluation branch: another kind of collective."""

    def hook(iteration, batch):
        sync_gradients(job, batch)
        if job.due(iteration):
            evaluate(job, batch)
        else:
            log_metrics(job, iteration)
        sync_gradients(job, batch)
        return True

    simple_loop(job, hook)


def branch_extra(job):
    """One rank issues one more of the same kind and size: everything after is shifted by one, silently for a while."""

    def hook(iteration, batch):
        sync_gradients(job, batch)
        if job.due(iteration):
            clip_gradients(job, batch)
        sync_gradients(job, batch)
        if iteration > job.at + 1:
            gather_outputs(job, batch)
        return True

    simple_loop(job, hook)


def clip_gradients(job, batch):
    norm = batch.clone()
    dist.all_reduce(norm)
    job.tick()


def exception_continue(job):
    """One rank's step raises; it logs the error and goes on with the next batch, one collective short."""
    broadcast_weights(job)
    for iteration in range(job.iterations):
        batch = load_batch(job, iteration)
        try:
            output = forward(job, batch)
            gather_outputs(job, output)
            check_loss(job, iteration)
            sync_gradients(job, output)
        except ValueError as error:
            print(f"step {iteration} failed: {error}; skipped", file=sys.stderr)


def check_loss(job, iteration):
    if job.due(iteration):
        raise ValueError("loss is nan")


def exception_handler_collective(job):
    """One rank's step raises; its handler tells the others with a collective of its own, and waits for them in it."""
    broadcast_weights(job)
    for iteration in range(job.iterations):
        batch = load_batch(job, iteration)
        try:
            output = forward(job, batch)
            gather_outputs(job, output)
            check_loss(job, iteration)
            sync_gradients(job, output)
        except ValueError as error:
            report_failure(job, error)


def report_failure(job, error):
    flag = torch.ones(1)
    dist.broadcast(flag, src=job.rank)
    if job.faulted:
        return
    dist.barrier()


def checkpoint_stuck(job):
    """Rank 0 saves, and its file system does not answer; the others go on to the next step."""

    def hook(iteration, batch):
        if iteration == job.at:
            save_checkpoint(job)

    simple_loop(job, hook)


def save_checkpoint(job):
    if job.rank != 0:
        return
    pipe = os.path.join(job.plan["work"], "checkpoint.pt")
    os.mkfifo(pipe)
    with open(pipe, "wb") as file:  # waits for a reader that never comes
        torch.save({"weights": torch.ones(4)}, file)


def pipeline_groups(job, tp=2, pp=2):
    dp = job.world // (tp * pp)
    rank_of = lambda d, p, t: d * pp * tp + p * tp + t  # noqa: E731
    for d in range(dp):
        for p in range(pp):
            job.group(f"tp_{d}_{p}", [rank_of(d, p, t) for t in range(tp)])
    for p in range(pp):
        for t in range(tp):
            job.group(f"dp_{p}_{t}", [rank_of(d, p, t) for d in range(dp)])
    for d in range(dp):
        for t in range(tp):
            job.group(f"pp_{d}_{t}", [rank_of(d, p, t) for p in range(pp)])
    r = job.rank
    d, p, t = r // (pp * tp), r // tp % pp, r % tp
    job.tp, job.dp, job.pp = job.groups[f"tp_{d}_{p}"], job.groups[f"dp_{p}_{t}"], job.groups[f"pp_{d}_{t}"]
    job.stage, job.stages = p, pp
    job.prev = rank_of(d, p - 1, t) if p > 0 else None
    job.next = rank_of(d, p + 1, t) if p + 1 < pp else None


def three_dim_step(job, iteration, inside=lambda iteration: None):
    for micro in range(2):
        x = load_batch(job, iteration)
        if job.prev is not None:
            dist.recv(x, job.prev, group=job.pp)
        sync_gradients(job, x, job.tp)
        if micro == 1:
            inside(iteration)
        if job.next is not None:
            dist.send(x, job.next, group=job.pp)
            job.tick()
    sync_gradients(job, x, job.dp)
    if iteration % 2 == 1:
        log_metrics(job, iteration)


def stuck_stage(job):
    """Tensor, pipeline and data parallel groups; one rank of one stage stops, and everybody waits through three groups."""
    pipeline_groups(job)

    def inside(iteration):
        if job.due(iteration):
            fetch_shard(job)

    for iteration in range(job.iterations):
        three_dim_step(job, iteration, inside)


def eval_one_stage(job):
    """The ranks of the last stage of one replica evaluate, which needs the world; the others train on."""
    pipeline_groups(job)
    for iteration in range(job.iterations):
        three_dim_step(job, iteration)
        if iteration == job.at and job.rank in job.plan["culprits"]:
            evaluate(job, load_batch(job, iteration))


def group_order(job):
    """Half of the ranks call data parallel before tensor parallel: a cycle of four."""
    for name, ranks in (("tp_01", [0, 1]), ("tp_23", [2, 3]), ("dp_02", [0, 2]), ("dp_13", [1, 3])):
        job.group(name, ranks)
    if job.world > 4:
        job.group("rest", list(range(4, job.world)))
    for iteration in range(job.iterations):
        batch = load_batch(job, iteration)
        if job.rank < 4:
            tp = job.groups["tp_01" if job.rank < 2 else "tp_23"]
            dp = job.groups["dp_02" if job.rank % 2 == 0 else "dp_13"]
            if iteration >= job.at and job.rank in (1, 2):
                sync_gradients(job, batch, dp)
                sync_gradients(job, batch, tp)
            else:
                sync_gradients(job, batch, tp)
                sync_gradients(job, batch, dp)
        else:
            sync_gradients(job, batch, job.groups["rest"])
        if iteration % 2 == 0:
            log_metrics(job, iteration)


def p2p_deadlock(job):
    """Two neighbours both receive first."""
    a, b = job.plan["culprits"]
    for iteration in range(job.iterations):
        batch = load_batch(job, iteration)
        train_step(job, batch)
        if job.rank in (a, b):
            swap(job, batch, b if job.rank == a else a, job.rank == a or iteration >= job.at)


def swap(job, batch, peer, receive_first):
    got = torch.empty_like(batch)
    if receive_first:
        dist.recv(got, peer)
        dist.send(batch, peer)
    else:
        dist.send(batch, peer)
        dist.recv(got, peer)
    job.tick()


def p2p_missing_send(job):
    """A pipeline over all ranks; one stage stops before it sends."""
    for iteration in range(job.iterations):
        batch = load_batch(job, iteration)
        if job.rank > 0:
            dist.recv(batch, job.rank - 1)
        if job.due(iteration):
            fetch_shard(job)
        if job.rank + 1 < job.world:
            dist.send(batch, job.rank + 1)
        job.tick()
        if iteration % 3 == 2:
            log_metrics(job, iteration)


def p2p_size(job):
    """A pipeline over all ranks; one stage sends a smaller tensor than its peer expects, or a larger one."""
    for iteration in range(job.iterations):
        batch = load_batch(job, iteration)
        if job.rank > 0:
            dist.recv(batch, job.rank - 1)
        if job.rank + 1 < job.world:
            dist.send(torch.ones(12 if job.due(iteration) else 8, 4), job.rank + 1)
        job.tick()
        if iteration % 3 == 2:
            log_metrics(job, iteration)


def data_exhausted(job):
    """One rank has a batch fewer, leaves the loop and waits in the closing barrier."""
    broadcast_weights(job)
    mine = job.at if job.rank == job.culprit else job.iterations
    for iteration in range(mine):
        train_step(job, load_batch(job, iteration))
    finish_training(job)


def finish_training(job):
    dist.barrier()


def data_exhausted_exit(job):
    """One rank has a batch fewer, leaves the loop and ends the program's work without a last collective."""
    broadcast_weights(job)
    mine = job.at if job.rank == job.culprit else job.iterations
    for iteration in range(mine):
        train_step(job, load_batch(job, iteration))


class Shards(torch.utils.data.Dataset):
    def __init__(self, bad_from):
        self.bad_from = bad_from

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        if index >= self.bad_from:
            read_remote(index)
        return torch.randn(4)


def read_remote(index):
    ours, theirs = socket.socketpair()
    theirs.recv(1)
    ours.close()


def loader_stuck(job):
    """One rank's data loader worker waits for a file system; its main thread waits for the worker."""
    bad_from = job.at * 8 if job.rank == job.culprit else 1 << 30
    batches = iter(torch.utils.data.DataLoader(Shards(bad_from), batch_size=8, num_workers=1, prefetch_factor=2))
    broadcast_weights(job)
    for _ in range(job.iterations):
        batch = next(batches)
        job.tick()
        train_step(job, batch)


def compile_stuck(job):
    """One rank recompiles, and its compiler does not come back."""

    def backend(module, inputs):
        if job.rank == job.culprit and len(compiled) >= 1:
            fetch_shard(job)
        compiled.append(1)
        return module.forward

    compiled = []
    model = torch.compile(lambda x: x.tanh() * 2.0, backend=backend, dynamic=False)

    def hook(iteration, batch):
        if job.due(iteration):
            batch = batch[:6].contiguous()
        model(batch)

    simple_loop(job, hook)


def never_started(job):
    """One rank never reaches its first collective."""
    if job.rank == job.culprit:
        restore_weights(job)
    simple_loop(job, lambda iteration, batch: None)


def restore_weights(job):
    fetch_shard(job)


def killed(job):
    """One rank is killed, as by the kernel for lack of memory: no dump and no stacks of it."""

    def hook(iteration, batch):
        if job.due(iteration):
            os.kill(os.getpid(), 9)

    simple_loop(job, hook)


def crashed(job):
    """One rank leaves with an exception: no dump of it."""

    def hook(iteration, batch):
        if job.due(iteration):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    simple_loop(job, hook)


def skewed_wrap(job):
    """A short recorder, and one rank with many operations in a group of its own: positions say nothing any more."""
    half = job.world // 2
    job.group("replica_0", list(range(half)))
    job.group("replica_1", list(range(half, job.world)))
    mine = job.groups["replica_0" if job.rank < half else "replica_1"]
    for iteration in range(job.iterations):
        batch = load_batch(job, iteration)
        for _ in range(5 if job.rank < half else 1):
            sync_gradients(job, batch, mine)
        if job.due(iteration):
            fetch_shard(job)
        sync_gradients(job, batch)


def dump_lost(job):
    rank_stuck(job)


def two_stuck(job):
    """Two ranks stop in the same iteration."""

    def hook(iteration, batch):
        if iteration == job.at and job.rank in job.plan["culprits"]:
            fetch_shard(job)

    simple_loop(job, hook)


def wrong_group_member(job):
    """One rank hands its data to the wrong group: the world instead of its replica."""
    half = job.world // 2
    job.group("replica_0", list(range(half)))
    job.group("replica_1", list(range(half, job.world)))
    mine = job.groups["replica_0" if job.rank < half else "replica_1"]
    for iteration in range(job.iterations):
        batch = load_batch(job, iteration)
        sync_gradients(job, batch)
        sync_gradients(job, batch, None if job.due(iteration) else mine)


def main(plan, rank):
    job = Job(plan, rank)
    start(job)
    try:
        globals()[job.scenario](job)
    except RuntimeError as error:
        text = str(error)
        if "illegal memory access" in text:
            print(text, file=sys.stderr)
            os._exit(17)
        print(f"rank {job.rank}: {text[:300]}", file=sys.stderr)
    wait_for_request()


def launch(plan):
    """Forks the ranks of one job, so that torch is loaded once for all jobs; the loader goes on with the next plan."""
    for rank in range(plan["world"]):
        pid = os.fork()
        if pid:
            with open(os.path.join(plan["work"], f"pid_{rank}"), "w") as f:
                f.write(f"{pid}\n")
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.environ.update(plan["env"])
        os.dup2(os.open(os.path.join(plan["work"], f"stderr_{rank}"), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644), 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        return rank
    return None


def wait_for_request():
    """The program's work is over, or its transport is: the process stays until it has been looked at."""
    while True:
        time.sleep(0.2)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the ranks
    torch.set_num_threads(1)
    for line in iter(sys.stdin.readline, ""):
        the_plan = json.loads(line)
        the_rank = launch(the_plan)
        if the_rank is not None:
            main(the_plan, the_rank)
