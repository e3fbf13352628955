"""Exclusion lists in the words of schedulers."""
import contextlib
import datetime
import io
import json
import os
import random
import re
import stat
import sys
import tempfile
import unittest
from unittest import mock

from mycroft import __main__ as command
from mycroft import exclude
from mycroft.exclude import Exclusion, ExclusionError, hostlist

NOW = datetime.datetime(2026, 11, 27, tzinfo=datetime.timezone.utc)
HOSTS = [
    {"host": "node03", "reason": "it's $(slow)", "until": "2026-12-01T00:00:00Z"},
    {"host": "node01", "reason": "", "until": None},
    {"host": "node02", "reason": "NIC", "until": "2026-11-01T00:00:00+01:00"},
]


def expanded(text):
    """What Slurm makes of a host list, written anew: numbers of a range have the width of its first."""
    hosts = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", text):
        name, _, inside = part.partition("[")
        for item in inside.rstrip("]").split(",") if inside else [""]:
            low, dash, high = item.partition("-")
            numbers = [str(n).zfill(len(low)) for n in range(int(low), int(high) + 1)] if dash else [item]
            hosts += [name + number for number in numbers]
    return hosts


class Lists(unittest.TestCase):
    def test_the_short_form(self):
        for hosts, text in [
            ([], ""),
            (["node7"], "node7"),
            (["node01", "node02", "node03", "node07"], "node[01-03,07]"),
            (["n9", "n10", "n8", "n8"], "n[8-10]"),
            (["n09", "n10", "n9"], "n[9-10,09]"),
            (["rack1-a2", "rack1-a3", "login"], "login,rack1-a[2-3]"),
            (["a1.example", "a2.example"], "a1.example,a2.example"),
            (["n99999999999999999998", "n99999999999999999999"], "n99999999999[999999998-999999999]"),
            (["10", "11"], "10,11"),
        ]:
            self.assertEqual(hostlist(hosts), text)

    def test_what_is_shortened_is_what_was_meant(self):
        drawn = random.Random(3)
        for _ in range(500):
            names = {
                drawn.choice(["n", "gpu-", "r1c"]) + str(drawn.randint(0, 120)).zfill(drawn.randint(1, 3))
                for _ in range(drawn.randint(1, 60))
            }
            text = hostlist(sorted(names, key=lambda _: drawn.random()))
            self.assertEqual(sorted(expanded(text)), sorted(names), text)

    def test_a_file_of_version_1_is_read(self):
        with open(os.path.join(os.path.dirname(__file__), "data/exclusions-v1.json"), encoding="ascii") as file:
            read = exclude.parse(file.read())
        self.assertEqual(read, [Exclusion("node07", "GPU 3 throttles, case 12", exclude.time("2026-12-01T00:00:00Z"))])

    def test_what_is_wrong_is_said(self):
        for text, words in [
            ("{", "JSON"),
            ('{"hosts": []}', "format"),
            ('"node1"', "list"),
            ("[1]", "names no host"),
            ('[{"host": "-rf"}]', "no name"),
            ('[{"host": "a b"}]', "no name"),
            ('[{"host": "a;b"}]', "no name"),
            ('[{"host": "a\\n"}]', "no name"),
            ('[{"host": "a", "reason": "x\\u001b[2J"}]', "no line"),
            ('[{"host": "a", "until": "tomorrow"}]', "no time"),
            ('[{"host": "a", "until": "2026-12-01T00:00:00"}]', "offset"),
            ('[{"host": "a", "until": 7}]', "no time"),
        ]:
            with self.assertRaisesRegex(ExclusionError, words, msg=text):
                exclude.parse(text)

    def test_no_text_is_anything_but_a_list_or_refused(self):
        drawn, good = random.Random(9), json.dumps(HOSTS)
        for _ in range(3000):
            text = list(good)
            for _ in range(drawn.randint(1, 4)):
                at = drawn.randrange(len(text))
                text[at : at + drawn.randint(0, 2)] = drawn.choices('[]{}",:0129 -.TZ$;\n', k=drawn.randint(0, 3))
            try:
                hosts = exclude.parse("".join(text))
            except ExclusionError:
                continue
            for words in exclude.kubernetes(hosts, NOW):
                self.assertRegex(words[3], r"\A[a-z0-9][a-z0-9._-]*\Z")

    def test_of_two_ends_the_later_counts(self):
        def entry(until):
            return {"host": "a", "until": until}

        early, late = "2026-12-01T00:00:00Z", "2026-12-02T00:00:00Z"
        for pair, until in [((early, late), late), ((late, early), late), ((late, None), None), ((None, early), None)]:
            read = exclude.parse(json.dumps([entry(one) for one in pair]))
            self.assertEqual(read, [Exclusion("a", "", until and exclude.time(until))])

    def test_a_host_is_known_by_its_short_and_by_its_full_name(self):
        hosts = [Exclusion("node1", "", None), Exclusion("node2.a.example", "", None), Exclusion("node3", "", NOW)]
        for names, excluded in [
            (["node1"], True),
            (["NODE1.b.example"], True),
            (["node2.a.example"], True),
            (["node2.b.example"], False),
            (["node3"], False),
            (["node11"], False),
        ]:
            self.assertEqual(exclude.is_excluded(hosts, names, NOW) is not None, excluded, names)


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.list = os.path.join(self.folder, "hosts.json")
        with open(self.list, "w", encoding="ascii") as file:
            json.dump({"format": "mycroft-exclusions", "version": 1, "hosts": HOSTS}, file)

    def run_it(self, *words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            way, rest = words[0], words[1:]
            code = command.main(["exclude", way, "--now", "2026-11-27T00:00:00Z", self.list, *rest])
        return code, out.getvalue(), err.getvalue()

    def program(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(f"#!{sys.executable}\nimport json, os, sys\n{text}")
        os.chmod(path, stat.S_IRWXU)
        return path

    def test_slurm_leaves_out_whose_time_is_not_over(self):
        self.assertEqual(self.run_it("slurm"), (0, "'--exclude=node[01,03]'\n", ""))
        code, out, _ = self.run_it("slurm", "--job", "12_3")
        self.assertEqual((code, out), (0, "scontrol update JobId=12_3 'ExcNodeList=node[01,03]'\n"))
        code, out, err = self.run_it("slurm", "--job", "1; rm")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("no number", err)

    def test_nobody_to_leave_out_is_no_option(self):
        with open(self.list, "w", encoding="ascii") as file:
            file.write("[]")
        self.assertEqual(self.run_it("slurm"), (0, "", ""))

    def test_kubernetes_prints_and_runs_only_when_asked(self):
        log = os.path.join(self.folder, "log")
        self.program("kubectl", f"open({log!r}, 'a').write(json.dumps(sys.argv[1:]) + chr(10))\n")
        with mock.patch.dict(os.environ, {"PATH": self.folder}):
            code, printed, _ = self.run_it("kubernetes")
            self.assertEqual((code, os.path.exists(log)), (0, False))
            self.assertEqual(self.run_it("kubernetes", "--apply")[:2], (0, printed))
        with open(log, encoding="ascii") as file:
            ran = [json.loads(line) for line in file]
        taints = [words for words in ran if words[0] == "taint"]
        self.assertEqual(
            taints,
            [
                ["taint", "nodes", "node01", "mycroft.dev/excluded=true:NoSchedule", "--overwrite"],
                ["taint", "nodes", "node02", "mycroft.dev/excluded:NoSchedule-"],
                ["taint", "nodes", "node03", "mycroft.dev/excluded=true:NoSchedule", "--overwrite"],
            ],
        )
        patch = json.loads(ran[5][-1])["metadata"]
        self.assertEqual(patch["labels"], {"mycroft.dev/excluded": "true"})
        self.assertEqual(patch["annotations"]["mycroft.dev/excluded-reason"], "it's $(slow)")
        self.assertEqual(json.loads(ran[3][-1])["metadata"]["labels"], {"mycroft.dev/excluded": None}, "its time is over")
        self.assertIn("'\"'\"'", printed, "what is printed can be given to a shell")

    def test_what_kubectl_fails_at_is_told(self):
        self.program("kubectl", "sys.exit(1)\n")
        with mock.patch.dict(os.environ, {"PATH": self.folder}):
            self.assertEqual(self.run_it("kubernetes", "--apply")[0], 1)

    def test_torchrun_does_not_begin_on_a_host_of_the_list(self):
        with mock.patch("os.execvp", side_effect=SystemExit(9)) as begun:
            code, _, err = self.run_it("torchrun", "--host", "node03.example", "--", "torchrun", "--nnodes=2:4", "train.py")
            self.assertEqual((code, begun.called), (75, False))
            self.assertIn("node03 is left out until 2026-12-01T00:00:00+00:00: it's $(slow)", err)
            with self.assertRaises(SystemExit):
                self.run_it("torchrun", "--host", "node02", "--", "torchrun", "--nnodes=2:4", "train.py")
            begun.assert_called_once_with("torchrun", ["torchrun", "--nnodes=2:4", "train.py"])

    def test_a_hook_reads_the_hosts(self):
        log = os.path.join(self.folder, "log")
        hook = self.program("hook", f"open({log!r}, 'w').write(sys.stdin.read()); sys.exit(int(sys.argv[1]))\n")
        self.assertEqual(self.run_it("hook", "--", hook, "3")[0], 3)
        with open(log, encoding="ascii") as file:
            told = json.load(file)
        self.assertEqual([host["host"] for host in told["hosts"]], ["node01", "node03"])
        self.assertEqual([host["host"] for host in told["over"]], ["node02"])
        code, _, err = self.run_it("hook")
        self.assertEqual(code, 2)
        self.assertIn("which command", err)


if __name__ == "__main__":
    unittest.main()
