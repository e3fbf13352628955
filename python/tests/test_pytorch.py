"""Real PyTorch jobs on Gloo: an uneven division gives the loss and the gradients of the even one. Skipped without torch."""
import os
import tempfile
import unittest

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
except ImportError:
    torch = None

import mycroft
import mycroft.pytorch

SAMPLES, SIZE, FEATURES, STEPS, SEED = 300, 3, 7, 6, 11
# How much slower the last replica is, as in FALCON's figure 13.
SLOWER = (1.3, 1.8, 2.5)


def dealt_out(times, total):
    """Micro-batches of each replica such that the slowest is as early as can be: one by one to who would be done first."""
    counts = [1] * len(times)
    for _ in range(total - len(times)):
        counts[min(range(len(times)), key=lambda i: (counts[i] + 1) * times[i])] += 1
    return tuple(counts)


def made(dtype):
    """The model, and the data with its targets, the same in each process."""
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).to(dtype)
    return model, torch.randn(SAMPLES, FEATURES, dtype=dtype), torch.randn(SAMPLES, 1, dtype=dtype)


def reference(total, dtype):
    """Losses and parameters of one process that takes all micro-batches of each step."""
    model, data, targets = made(dtype)
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    controller = mycroft.Controller("none", replica=0, replicas=1, total=total)
    batches = iter(mycroft.MicroBatchSampler(controller, SAMPLES, SIZE, seed=SEED))
    for step in range(STEPS):
        parts = [next(batches) for _ in controller.begin(step)]
        loss = sum(torch.nn.functional.mse_loss(model(data[part]), targets[part]) for part in parts) / total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, [parameter.detach() for parameter in model.parameters()]


class Case:
    """A job: how replicas are laid out, their micro-batches from the change-over on, and what weighs gradients."""

    def __init__(self, layout, counts, how, dtype="float64"):
        self.layout, self.counts, self.how, self.dtype = layout, tuple(counts), how, dtype


class Rank:
    """One process of a job, and the plan file that it alone reads."""

    def __init__(self, rank, folder, case):
        self.rank, self.path, self.case = rank, os.path.join(folder, f"plan-{rank}"), case
        replicas = len(case.counts)
        self.controller = mycroft.Controller(
            self.path,
            replica=rank * replicas // dist.get_world_size(),
            replicas=replicas,
            total=sum(case.counts),
            agree=mycroft.pytorch.largest_over(),
        )

    def wrapped(self, model):
        """The model as the layout has it."""
        if self.case.layout == "hsdp":
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
            for layer in (model[0], model[2], model):
                fully_shard(layer, mesh=mesh)
            return model
        parallel = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.0001)
        if self.case.how == "hook":
            mycroft.pytorch.weigh_gradients(parallel, self.controller)
        return parallel

    def train(self):
        """Gives the job's loss and the plan's epoch of each step, and the parameters. Rank 1 sees the plan two steps after
        the others, and one after the plan's own step."""
        model, data, targets = made(getattr(torch, self.case.dtype))
        parallel = self.wrapped(model)
        optimizer, losses, epochs = torch.optim.SGD(parallel.parameters(), 0.1), [], []
        batches = iter(mycroft.MicroBatchSampler(self.controller, SAMPLES, SIZE, seed=SEED))
        for step in range(STEPS):
            if step == (3 if self.rank == 1 else 1):
                mycroft.Plan(1, 2, self.case.counts).write(self.path)
            share = self.controller.begin(step)
            optimizer.zero_grad()
            summed = torch.zeros(1, dtype=data.dtype)
            for _ in mycroft.pytorch.accumulate(parallel, share):
                part = next(batches)
                loss = torch.nn.functional.mse_loss(parallel(data[part]), targets[part])
                (loss * share.scale if self.case.how == "scale" else loss / share.count).backward()
                summed += loss.detach()
            optimizer.step()
            # The ranks of a shard group all add the losses of their replica.
            ranks_each = dist.get_world_size() // len(self.case.counts)
            losses.append(float(mycroft.pytorch.mean_loss(summed, share)) / ranks_each)
            epochs.append(share.epoch)
        whole = [getattr(p, "full_tensor", lambda p=p: p)().detach() for p in parallel.parameters()]
        return losses, epochs, whole


def run(rank, world, folder, cases):
    """One process: plays the cases one after the other, and leaves what it saw."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    for number, case in enumerate(cases):
        place = os.path.join(folder, str(number))
        os.makedirs(place, exist_ok=True)
        torch.save(Rank(rank, place, case).train(), os.path.join(place, f"seen-{rank}"))
    # Nobody tears down while a peer is still in the last exchange.
    dist.barrier()
    dist.destroy_process_group()


@unittest.skipUnless(torch, "no torch here")
class Gradients(unittest.TestCase):
    def play(self, world, cases):
        """Compares each case with one process that takes all micro-batches."""
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(run, (world, folder, cases), nprocs=world)
            for number, case in enumerate(cases):
                with self.subTest(case=vars(case)):
                    places = [os.path.join(folder, str(number), f"seen-{rank}") for rank in range(world)]
                    self.compare(case, [torch.load(place) for place in places])

    def compare(self, case, seen):
        near = {"rtol": 1e-12, "atol": 1e-12} if case.dtype == "float64" else {"rtol": 1e-5, "atol": 1e-6}
        self.assertGreater(len(set(case.counts)), 1, "uneven")
        losses, parameters = reference(sum(case.counts), getattr(torch, case.dtype))
        for got, epochs, trained in seen:
            self.assertEqual(epochs, [0, 0, 0, 1, 1, 1], "all change over when the last rank has read the plan")
            torch.testing.assert_close(torch.tensor(got), torch.tensor(losses), **near)
            for one, other in zip(trained, parameters):
                torch.testing.assert_close(one, other, **near)

    def test_two_and_three_ranks_train_as_one(self):
        self.play(2, [Case("ddp", (5, 3), "scale", "float32"), Case("ddp", dealt_out([1.0, 2.5], 8), "scale")])
        self.play(3, [Case("ddp", dealt_out([1.0, 1.0, 1.8], 12), "scale")])

    def test_four_ranks_with_one_slower_train_as_one(self):
        divisions = [dealt_out([1.0, 1.0, 1.0, slower], 16) for slower in SLOWER]
        cases = [Case("ddp", counts, how) for counts in divisions for how in ("scale", "hook")]
        self.play(4, cases + [Case("hsdp", (6, 2), "scale")])


@unittest.skipUnless(torch, "no torch here")
class Loaders(unittest.TestCase):
    def test_a_loader_with_workers_reads_ahead_and_each_sample_comes_once(self):
        data = list(range(96))  # 12 steps of 4 micro-batches of 2.
        with tempfile.TemporaryDirectory() as folder:
            path, used = os.path.join(folder, "plan"), []
            options = {"replicas": 2, "total": 4, "agree": list, "lead": 4}
            jobs = [mycroft.Controller(path, replica=replica, **options) for replica in range(2)]
            samplers = [mycroft.MicroBatchSampler(job, len(data), 2) for job in jobs]
            # As many as four micro-batches ahead, which may be one a step.
            ahead = {"num_workers": 2, "prefetch_factor": 2}
            loaders = [iter(torch.utils.data.DataLoader(data, batch_sampler=one, **ahead)) for one in samplers]
            counts = []
            for step in range(12):
                if step == 2:
                    mycroft.Plan(1, 3, (3, 1)).write(path)
                shares = [job.begin(step) for job in jobs]
                counts.append(shares[0].count)
                used += [n for share, loader in zip(shares, loaders) for _ in share for n in next(loader).tolist()]
        self.assertEqual(counts, [2] * 6 + [3] * 6, "settled at step 2, four steps before")
        self.assertEqual(sorted(used), data)


@unittest.skipUnless(torch, "no torch here")
class Optimizers(unittest.TestCase):
    def test_an_iteration_is_marked_once(self):
        from torch.optim.optimizer import register_optimizer_step_post_hook

        from mycroft.hooks import OptimizerSteps

        marked, layers = [], [torch.nn.Linear(2, 2) for _ in range(2)]
        handle = register_optimizer_step_post_hook(OptimizerSteps(tell=marked.append))
        self.addCleanup(handle.remove)
        optimizers = [torch.optim.SGD(layers[0].parameters(), 0.1), torch.optim.AdamW(layers[1].parameters())]
        for _ in range(3):
            for _ in range(4):  # Accumulated.
                layers[1](layers[0](torch.ones(2))).sum().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        self.assertEqual(marked, [1, 2, 3])


if __name__ == "__main__":
    unittest.main()
