"""The change-over: ranks that read the plan at different times divide every step alike."""
import os
import random
import tempfile
import threading
import unittest

from mycroft import Controller, MicroBatchSampler, Plan, TooFarAhead

REPLICAS, TOTAL = 4, 16


class Meeting:
    """An all-reduce among threads: the largest of each number."""

    def __init__(self, ranks):
        self.barrier, self.offers, self.ranks = threading.Barrier(ranks, timeout=60), {}, ranks

    def of(self, rank):
        def agree(numbers):
            self.offers[rank] = list(numbers)
            self.barrier.wait()
            most = [max(column) for column in zip(*(self.offers[rank] for rank in range(self.ranks)))]
            self.barrier.wait()
            return most

        return agree


class Job:
    """Replicas that each read a file of their own, so that each can see a plan when the test says."""

    def __init__(self, folder, **options):
        self.paths = [os.path.join(folder, f"plan-{rank}") for rank in range(REPLICAS)]
        self.meeting = Meeting(REPLICAS)
        self.controllers = [
            Controller(
                path, replica=rank, replicas=REPLICAS, total=TOTAL, agree=self.meeting.of(rank), **options
            )
            for rank, path in enumerate(self.paths)
        ]

    def show(self, plan, *ranks):
        for rank in ranks or range(REPLICAS):
            plan.write(self.paths[rank])

    def begin(self, step):
        """Every rank begins the step; gives the shares."""
        shares = [None] * REPLICAS

        def run(rank):
            shares[rank] = self.controllers[rank].begin(step)

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(REPLICAS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return shares


class ChangeOver(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def epochs(self, job, steps):
        told = []
        for step in steps:
            shares = job.begin(step)
            self.assertEqual(len({(share.epoch, share.micro_batches) for share in shares}), 1, shares)
            covered = sorted(micro for share in shares for micro in share)
            self.assertEqual(covered, list(range(step * TOTAL, (step + 1) * TOTAL)), "each micro-batch once")
            told.append(shares[0].epoch)
        return told

    def test_a_plan_waits_for_its_step(self):
        job = Job(self.folder)
        job.show(Plan(1, 3, (5, 5, 5, 1)))
        self.assertEqual(self.epochs(job, range(5)), [0, 0, 0, 1, 1])

    def test_a_late_rank_holds_all_back(self):
        job = Job(self.folder)
        plan = Plan(1, 1, (5, 5, 5, 1))
        job.show(plan, 0, 1, 3)
        self.assertEqual(self.epochs(job, range(4)), [0, 0, 0, 0])
        job.show(plan, 2)
        self.assertEqual(self.epochs(job, range(4, 6)), [1, 1])

    def test_plans_that_differ_are_not_applied(self):
        job = Job(self.folder)
        job.show(Plan(1, 0, (5, 5, 5, 1)), 0, 1, 2)
        job.show(Plan(1, 0, (5, 5, 1, 5)), 3)
        self.assertEqual(self.epochs(job, range(2)), [0, 0])
        job.show(Plan(2, 0, (5, 5, 1, 5)), 3)
        self.assertEqual(self.epochs(job, range(2, 4)), [0, 0])
        job.show(Plan(2, 0, (5, 5, 1, 5)))
        self.assertEqual(self.epochs(job, range(4, 5)), [2])

    def test_a_plan_that_one_rank_cannot_use_is_applied_by_none(self):
        job = Job(self.folder)
        job.show(Plan(1, 0, (5, 5, 5, 1)), 0, 1, 2)
        with open(job.paths[3], "w", encoding="ascii") as file:
            file.write("{")
        with self.assertLogs("mycroft", "WARNING"):
            self.assertEqual(self.epochs(job, range(2)), [0, 0])
        self.assertIn("not JSON", job.controllers[3].trouble)
        self.assertEqual(job.controllers[0].trouble, "")

    def test_a_plan_for_another_job_is_told_once(self):
        job = Job(self.folder)
        job.show(Plan(1, 0, (5, 5, 5)))
        with self.assertLogs("mycroft", "WARNING") as told:
            self.assertEqual(self.epochs(job, range(3)), [0, 0, 0])
        self.assertEqual(len(told.output), REPLICAS)

    def test_an_older_plan_is_none(self):
        job = Job(self.folder)
        job.show(Plan(2, 0, (5, 5, 5, 1)))
        self.assertEqual(self.epochs(job, range(2)), [2, 2])
        job.show(Plan(1, 0, (1, 5, 5, 5)))
        self.assertEqual(self.epochs(job, range(2, 4)), [2, 2])

    def test_a_newer_plan_replaces_one_that_has_not_begun(self):
        job = Job(self.folder)
        job.show(Plan(1, 10, (5, 5, 5, 1)))
        self.assertEqual(self.epochs(job, range(2)), [0, 0])
        job.show(Plan(2, 3, (1, 5, 5, 5)))
        self.assertEqual(self.epochs(job, range(2, 12)), [0] + [2] * 9)

    def test_rounds_are_as_rare_as_asked_for(self):
        job = Job(self.folder, every=5, start=3)
        self.assertEqual(self.epochs(job, [3]), [0])
        job.show(Plan(1, 0, (5, 5, 5, 1)))
        self.assertEqual(self.epochs(job, range(4, 7)), [0, 1, 1])

    def test_a_step_may_begin_again_and_no_other_out_of_turn(self):
        job = Job(self.folder)
        for early in (lambda: job.controllers[0].current, lambda: job.controllers[0].begin(-1)):
            with self.assertRaises(ValueError):
                early()
        job.begin(0)
        self.assertEqual(job.controllers[0].begin(0).step, 0)
        for step in (2, -1):
            with self.assertRaises(ValueError):
                job.controllers[0].begin(step)

    def test_drawn_delays_never_part_the_ranks(self):
        for seed in range(40):
            drawn = random.Random(seed)
            with tempfile.TemporaryDirectory() as folder:
                lead = drawn.randint(0, 3)
                job = Job(folder, every=drawn.randint(1, 3), lead=lead)
                settled = {}
                for step in range(14):
                    if drawn.random() < 0.5:
                        epoch = step // 3 + 1
                        counts = [(5, 5, 5, 1), (7, 3, 3, 3), (4, 4, 4, 4)][epoch % 3]
                        ranks = [rank for rank in range(REPLICAS) if drawn.random() < 0.6]
                        if ranks:
                            job.show(Plan(epoch, epoch * 2, counts), *ranks)
                    self.epochs(job, [step])
                    for ahead in range(step, step + lead + 1):
                        told = {(c.share(ahead).epoch, c.share(ahead).micro_batches) for c in job.controllers}
                        self.assertEqual(len(told), 1, f"seed {seed}")
                        self.assertEqual(settled.setdefault(ahead, told), told, f"seed {seed}: settled {lead} ahead")


class Samples(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_every_sample_of_a_pass_is_used_once_under_any_plan(self):
        job = Job(self.folder)
        samplers = [iter(MicroBatchSampler(c, 200, 2, seed=5)) for c in job.controllers]
        passes = {0: [], 1: []}
        for step in range(12):
            if step in (2, 7):
                job.show(Plan(step, step, (7, 1, 3, 5) if step == 2 else (1, 1, 13, 1)))
            shares = job.begin(step)
            if step == 6:
                self.assertTrue(all(next(sampler, None) is None for sampler in samplers), "six steps fill the pass")
                samplers = [iter(MicroBatchSampler(c, 200, 2, seed=5, start=6)) for c in job.controllers]
            for sampler, share in zip(samplers, shares):
                passes[step // 6] += [sample for _ in share for sample in next(sampler)]
        for used in passes.values():
            self.assertEqual((len(used), len(set(used))), (192, 192))
        self.assertNotEqual(passes[0], passes[1])

    def test_a_step_has_the_samples_of_the_even_split(self):
        used = []
        for counts in [(4, 4, 4, 4), (9, 2, 2, 3)]:
            with tempfile.TemporaryDirectory() as folder:
                job = Job(folder)
                job.show(Plan(1, 0, counts))
                shares = job.begin(0)
                samplers = [iter(MicroBatchSampler(c, 64, 3, shuffle=False, order=lambda _: range(64))) for c in job.controllers]
                used.append(sorted(s for sampler, share in zip(samplers, shares) for _ in share for s in next(sampler)))
        self.assertEqual(used[0], used[1])
        self.assertEqual(used[0], list(range(48)))

    def test_a_loader_that_reads_ahead_needs_a_lead(self):
        controller = Controller("none", replica=0, replicas=1, total=2)
        sampler = iter(MicroBatchSampler(controller, 10, 1))
        with self.assertRaises(TooFarAhead):
            next(sampler)
        controller = Controller("none", replica=0, replicas=1, total=2, lead=2)
        sampler = iter(MicroBatchSampler(controller, 10, 1))
        for _ in range(4):
            next(sampler)
        with self.assertRaises(TooFarAhead):
            next(sampler)

    def test_what_cannot_be_is_refused(self):
        for options in [{"replica": 4}, {"total": 3}, {"every": 0}, {"lead": -1}]:
            with self.assertRaises(ValueError):
                Controller("none", **{"replica": 0, "replicas": 4, "total": 4, "agree": list, **options})
        with self.assertRaisesRegex(ValueError, "agreement"):
            Controller("none", replica=0, replicas=2, total=2)
        with self.assertRaisesRegex(ValueError, "fill"):
            MicroBatchSampler(Controller("none", replica=0, replicas=1, total=4), 7, 2)


if __name__ == "__main__":
    unittest.main()
