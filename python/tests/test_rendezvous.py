"""Real torchrun agents whose host is put on the list while the job runs. Skipped without torch."""
import importlib.util
import json
import os
import select
import subprocess
import sys
import tempfile
import unittest

import mycroft
from mycroft import rendezvous

# Longest for anything that an agent does: torch takes some seconds to load on busy cores.
LIMIT_S = 120

WORKER = """
import os, sys
folder, host = sys.argv[1:]
with open(os.path.join(folder, "up"), "w") as up:
    up.write(f"{host} {os.environ['TORCHELASTIC_RESTART_COUNT']} {os.environ['WORLD_SIZE']}\\n")
with open(os.path.join(folder, f"go-{host}")) as go:
    sys.exit(int(go.readline()))
"""


class Names(unittest.TestCase):
    def test_a_list_that_cannot_be_read_excludes_nobody(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "hosts.json")
            self.assertIsNone(rendezvous.excluded(path, ["a"]))
            with open(path, "w", encoding="ascii") as file:
                file.write("{")
            with self.assertLogs("mycroft", "WARNING"):
                self.assertIsNone(rendezvous.excluded(path, ["a"]))
            with open(path, "w", encoding="ascii") as file:
                json.dump([{"host": "a"}], file)
            self.assertEqual(rendezvous.excluded(path, ["a.example"]).host, "a")
            self.assertIsNone(rendezvous.excluded(path, ["b"]))

    def test_a_host_has_names(self):
        self.assertIn(os.uname().nodename, rendezvous.own_names())
        self.assertEqual(rendezvous.own_names("x"), ["x"])


@unittest.skipUnless(importlib.util.find_spec("torch"), "no torch here")
class Agents(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name in ("up", "go-a", "go-b"):
            os.mkfifo(os.path.join(self.folder, name))
        # What pip writes for the package: where torchrun looks for rendezvous.
        told = os.path.join(self.folder, "mycroft-0.dist-info")
        os.mkdir(told)
        with open(os.path.join(told, "entry_points.txt"), "w", encoding="ascii") as file:
            file.write("[torchrun.handlers]\nmycroft = mycroft.rendezvous:handler\n")
        with open(os.path.join(self.folder, "worker.py"), "w", encoding="ascii") as file:
            file.write(WORKER)

    def agent(self, host):
        place, source = self.folder, os.path.dirname(os.path.dirname(mycroft.__file__))
        conf = f"store_type=file,exclude={place}/hosts.json,host={host},last_call_timeout=1,keep_alive_interval=1"
        words = ["--nnodes=1:2", "--rdzv-backend=mycroft", "--rdzv-id=job", f"--rdzv-endpoint={place}/store"]
        words += [f"--rdzv-conf={conf}", "--max-restarts=2", "--monitor-interval=0.1", f"{place}/worker.py", place, host]
        path = {**os.environ, "PYTHONPATH": f"{source}:{place}"}
        started = subprocess.Popen([sys.executable, "-m", "torch.distributed.run", *words], env=path)
        self.addCleanup(lambda: (started.kill(), started.wait()))
        return started

    def line(self, pipe):
        """The words of the next line, which must come."""
        text = b""
        while not text.endswith(b"\n"):
            self.assertTrue(select.select([pipe], [], [], LIMIT_S)[0], f"nothing more after {text!r}")
            text += os.read(pipe, 1)
        return text.decode().split()

    def test_a_host_that_is_put_on_the_list_leaves_and_the_job_goes_on(self):
        up = os.open(os.path.join(self.folder, "up"), os.O_RDWR)
        go = {host: os.open(os.path.join(self.folder, f"go-{host}"), os.O_RDWR) for host in "ab"}
        self.addCleanup(lambda: [os.close(each) for each in (up, *go.values())])
        agents = {host: self.agent(host) for host in "ab"}
        # One may have begun alone, for a moment.
        seen = [self.line(up)]
        while sorted(line[0] for line in seen if line[2] == "2") != ["a", "b"]:
            seen.append(self.line(up))
        with open(os.path.join(self.folder, "hosts.json"), "w", encoding="ascii") as file:
            json.dump([{"host": "b", "reason": "slow"}], file)
        os.write(go["a"], b"1\n")
        self.assertEqual(agents["b"].wait(timeout=LIMIT_S), 0, "left without an error")
        line = self.line(up)
        self.assertEqual((line[0], line[2]), ("a", "1"), "goes on alone")
        os.write(go["a"], b"0\n")
        self.assertEqual(agents["a"].wait(timeout=LIMIT_S), 0)


if __name__ == "__main__":
    unittest.main()
