"""Plans and their files."""
import json
import os
import random
import tempfile
import unittest

from mycroft.plan import MOST_BYTES, Plan, PlanError, PlanFile

DIGEST = 578819602035253126


class Plans(unittest.TestCase):
    def test_a_plan_is_read_as_it_was_written(self):
        drawn = random.Random(1)
        for _ in range(200):
            counts = tuple(drawn.randint(1, 40) for _ in range(drawn.randint(1, 64)))
            plan = Plan(drawn.randint(1, 10**9), drawn.randint(0, 10**12), counts, drawn.choice(["", "gpu of host3"]))
            read = Plan.parse(plan.text())
            self.assertEqual((read, read.digest, read.total), (plan, plan.digest, sum(counts)))

    def test_a_file_of_version_1_is_read(self):
        with open(os.path.join(os.path.dirname(__file__), "data/plan-v1.json"), encoding="ascii") as file:
            plan = Plan.parse(file.read())
        self.assertEqual((plan.epoch, plan.step, plan.micro_batches), (3, 1200, (8, 8, 5, 11)))
        self.assertEqual(plan.digest, DIGEST, "ranks of two releases must agree on it")

    def test_unknown_fields_are_left_alone(self):
        told = json.loads(Plan(1, 0, (2, 1)).text())
        told["weather"] = {"in": "Cambridge"}
        self.assertEqual(Plan.parse(json.dumps(told)), Plan(1, 0, (2, 1)))

    def test_what_is_wrong_is_said(self):
        good = json.loads(Plan(3, 10, (2, 1)).text())
        for change, words in [
            ({"format": "x"}, "format"),
            ({"version": 2}, "version 2"),
            ({"epoch": 0}, "epoch"),
            ({"epoch": True}, "epoch"),
            ({"epoch": 2**63}, "epoch"),
            ({"step": -1}, "step"),
            ({"step": 1.5}, "step"),
            ({"micro_batches": []}, "empty"),
            ({"micro_batches": 3}, "list"),
            ({"micro_batches": [3, 0]}, "replica 1"),
            ({"micro_batches": [1, "2"]}, "replica 1"),
            ({"total": 4}, "add up to 3"),
        ]:
            with self.assertRaisesRegex(PlanError, words, msg=str(change)):
                Plan.parse(json.dumps({**good, **change}))
        for text in ["", "[]", "{", "[" * 100_000, "1" * 5000]:
            with self.assertRaises(PlanError):
                Plan.parse(text)

    def test_no_text_is_anything_but_a_plan_or_refused(self):
        drawn, good = random.Random(7), Plan(3, 10, (2, 1, 12), "why").text()
        letters = '[]{}",:0123456789eE.-+ntfaN \n\u0000'
        for _ in range(3000):
            text = list(good)
            for _ in range(drawn.randint(1, 4)):
                at = drawn.randrange(len(text))
                text[at : at + drawn.randint(0, 2)] = drawn.choices(letters, k=drawn.randint(0, 3))
            try:
                plan = Plan.parse("".join(text))
            except PlanError:
                continue
            self.assertEqual(Plan.parse(plan.text()), plan)

    def test_a_plan_for_another_job_is_refused(self):
        plan = Plan(1, 0, (4, 4, 2, 6))
        plan.check(4, 16, 2)
        for replicas, total, multiple, words in [(3, 16, 1, "3"), (4, 15, 1, "15"), (4, 16, 4, "replica 2")]:
            with self.assertRaisesRegex(PlanError, words):
                plan.check(replicas, total, multiple)

    def test_the_even_split_adds_up(self):
        self.assertEqual(Plan.even(4, 16).micro_batches, (4, 4, 4, 4))
        self.assertEqual(Plan.even(4, 18).micro_batches, (5, 5, 4, 4))


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "plan.json")
        self.file = PlanFile(self.path)

    def test_no_file_is_no_plan_and_no_trouble(self):
        self.assertEqual((self.file.look(), self.file.trouble), (None, ""))

    def test_a_new_plan_is_seen_and_one_that_is_gone(self):
        for epoch in (1, 2):
            plan = Plan(epoch, 0, (1, 2))
            plan.write(self.path)
            self.assertEqual(self.file.look(), plan)
            self.assertEqual(self.file.look(), plan)
        os.unlink(self.path)
        self.assertIsNone(self.file.look())
        self.assertEqual(os.listdir(os.path.dirname(self.path)), [], "nothing is left beside it")

    def test_what_is_no_plan_is_trouble_and_not_read_for_ever(self):
        for content in [b"{", b"\xff", b" " * (MOST_BYTES + 1)]:
            with open(self.path, "wb") as file:
                file.write(content)
            self.assertIsNone(self.file.look())
            self.assertIn(self.path, self.file.trouble)
        os.unlink(self.path)
        os.mkfifo(self.path)
        self.assertIsNone(self.file.look(), "nobody writes into this pipe, and nobody waits for it")
        self.assertIn("regular", self.file.trouble)


if __name__ == "__main__":
    unittest.main()
