"""Runs a small job with one fault for real and keeps what it leaves behind: Flight Recorder dumps, stacks, and the truth.

usage: generate.py OUT [SCENARIO ...] [--seeds 1,2] [--recorder hook,gloo] [--hookpg DIR] [--list]

Every run makes OUT/SCENARIO-RECORDER-SEED/ with pickle/, json/, pyspy/ and truth.json. See README.md.
"""
import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TRAIN_DIR = "/srv/train"  # where the script runs: this name ends up in the dumps, and no other does
QUIET_S = 1.5  # a job of milliseconds per step that has not moved for so long is stuck
PATIENCE_S = 60.0  # a start takes some seconds on a loaded machine
SLOW_START_S = 12.0  # until then a job in which nobody has moved may still be starting
PYSPY_S = 20.0
LATE_S = 20.0

WRONG = {"what": ["desync", "hang"], "category": ["argument-mismatch"]}
BRANCH = {"what": ["desync", "hang", "deadlock"], "category": ["code-divergence"]}
STUCK = {"what": ["hang"], "category": ["not-started"], "cause": ["stuck"]}
NOTHING = {"what": ["healthy"], "category": [None], "cause": [None], "culprits": []}

# What is true of each scenario. `seq` is a function of (plan) or absent where no number is certain; `group` is a
# description of a process group; lists are the answers that are right.
TRUTH = {
    "healthy": {**NOTHING, "note": "sub-groups, a point-to-point ring, every step completes; the job has ended"},
    "healthy_running": {**NOTHING, "running": 60, "note": "dumped in full run: ranks are in different steps"},
    "alltoall_skewed_ok": {**NOTHING, "note": "uneven splits, legal"},
    "slow_rank": {"what": ["slow", "healthy"], "category": [None, "unknown", "not-started", "data-loading"],
                  "cause": [None, "slow"], "running": 40, "culprits_any": True, "note": "one rank computes for 250 ms in each step; nothing hangs"},
    "rank_stuck": {**STUCK, "collective": "all_gather", "seq": lambda p: 2 + 2 * p["at"]},
    "never_started": {**STUCK, "collective": "broadcast", "seq": lambda p: 1, "note": "its dump has no entries"},
    "checkpoint_stuck": {**STUCK, "culprit": 0, "collective": "all_gather", "seq": lambda p: 2 + 2 * p["at"]},
    "loader_stuck": {**STUCK, "category": ["data-loading", "not-started"], "cause": ["stuck", "data-imbalance"], "stuck_in": "iteration"},
    "compile_stuck": {**STUCK, "collective": "all_gather", "seq": lambda p: 2 + 2 * p["at"]},
    "gil_held": {**STUCK, "category": ["not-started", "unknown", "process-exit", "host-thread"], "cause": ["stuck", "process-gone", None],
                 "collective": "all_gather", "seq": lambda p: 2 + 2 * p["at"], "missing": "culprit"},
    "dump_lost": {**STUCK, "collective": "all_gather", "seq": lambda p: 2 + 2 * p["at"], "missing": "other",
                  "note": "the dump and stacks of a rank that only waits are lost"},
    "two_stuck": {**STUCK, "collective": "all_gather", "seq": lambda p: 2 + 2 * p["at"], "two": True},
    "skewed_wrap": {**STUCK, "collective": "all_reduce", "group": "default_pg", "seq": lambda p: 1 + p["at"], "env": {"TORCH_FR_BUFFER_SIZE": "16"}},
    "size_mismatch": {**WRONG, "cause": ["size"], "collective": "all_reduce", "seq": lambda p: 2 + 2 * p["at"], "park": True},
    "dtype_hang": {**WRONG, "cause": ["dtype"], "collective": "all_reduce", "seq": lambda p: 2 + 2 * p["at"], "park": True},
    "dtype_silent": {**WRONG, "cause": ["dtype"], "collective": "all_reduce", "seq": lambda p: 2 + p["at"], "note": "same bytes: nothing hangs, the sum is garbage"},
    "alltoall_oversend": {**WRONG, "cause": ["splits", "size"], "seq": lambda p: 2 + 2 * p["at"], "park": True},
    "alltoall_wrong_splits": {**WRONG, "cause": ["splits", "size"], "seq": lambda p: 2 + 2 * p["at"], "park": True},
    "alltoall_permuted": {"what": ["hang", "desync", "unknown"], "culprits_any": True, "park": True,
                          "note": "splits are not recorded and every total is right: no dump can tell who; naming nobody is right"},
    "p2p_size": {**WRONG, "cause": ["size"], "collective": ["send", "recv"], "park": True, "hook_only": True},
    "p2p_missing_send": {**STUCK, "collective": ["send", "recv", "all_reduce"]},
    "p2p_deadlock": {"what": ["deadlock"], "category": ["code-divergence", "unknown", "not-started"],
                     "cause": ["cross-group-order", "divergence", None], "two": True, "hook_only": True},
    "group_order": {"what": ["deadlock"], "category": ["code-divergence", "unknown", "not-started"],
                    "cause": ["cross-group-order"], "cycle": [0, 1, 2, 3], "or_culprits": [1, 2],
                    "note": "the whole cycle, or those two that changed their order"},
    "pipeline_async_skip": {**BRANCH, "cause": ["divergence"], "seq": lambda p: 2 + 4 * p["at"] + 2, "park": True},
    "branch_type": {**BRANCH, "cause": ["divergence"], "seq": lambda p: 3 + 3 * p["at"], "park": True},
    "branch_extra": {**BRANCH, "cause": ["divergence"], "seq": lambda p: 3 + 2 * p["at"], "park": True},
    "exception_continue": {**BRANCH, "cause": ["divergence", "error-handling"], "seq": lambda p: 3 + 2 * p["at"], "park": True},
    "exception_handler_collective": {**BRANCH, "cause": ["divergence", "error-handling"], "seq": lambda p: 3 + 2 * p["at"], "park": True},
    "eval_one_stage": {**BRANCH, "what": ["desync", "hang", "deadlock"], "cause": ["divergence", "cross-group-order"], "world": [8], "last_stage": True, "park": True},
    "wrong_group_member": {**BRANCH, "cause": ["divergence", "cross-group-order"], "park": True},
    "data_exhausted": {**BRANCH, "category": ["code-divergence", "data-loading"], "cause": ["divergence", "data-imbalance"], "seq": lambda p: 2 + 2 * p["at"], "park": True},
    "data_exhausted_exit": {"what": ["hang", "desync"], "category": ["not-started", "code-divergence", "data-loading"],
                            "cause": ["data-imbalance", "divergence", "stuck"], "seq": lambda p: 2 + 2 * p["at"]},
    "stuck_stage": {**STUCK, "world": [8], "cause": ["stuck"]},
    "killed": {"what": ["crash", "hang"], "category": ["process-exit", "unknown", "not-started"], "cause": ["process-gone", "stuck", None],
               "collective": "all_gather", "seq": lambda p: 2 + 2 * p["at"], "missing": "culprit", "gone": True},
    "crashed": {"what": ["crash", "hang"], "category": ["process-exit", "unknown", "not-started"], "cause": ["process-gone", "stuck", None],
                "collective": "all_gather", "seq": lambda p: 2 + 2 * p["at"], "missing": "culprit", "gone": True},
}


def make_plan(scenario, seed, recorder, hookpg):
    truth = TRUTH[scenario]
    draw = random.Random(f"{scenario}{seed}")
    world = draw.choice(truth.get("world", [4, 6]))
    culprit = truth.get("culprit", draw.randrange(world))
    culprits = [culprit]
    if truth.get("two"):
        culprits = sorted(draw.sample(range(world), 2))
    if truth.get("last_stage"):
        replica = draw.randrange(world // 4)
        culprits = [replica * 4 + 2, replica * 4 + 3]
    if "cycle" in truth:
        culprits = truth["cycle"]
    if scenario in ("p2p_size", "p2p_missing_send"):
        culprits = [culprit % (world - 1)]
    return {
        "scenario": scenario, "seed": seed, "recorder": recorder, "world": world, "culprit": culprits[0],
        "culprits": culprits, "at": draw.randrange(3, 8), "iterations": 14, "park": bool(truth.get("park")),
        "hang_on_error": seed % 2 == 1, "hookpg": hookpg,
    }


class Rank:
    """A forked rank: not our child, so that it can only be asked whether it still is."""

    def __init__(self, pid):
        self.pid = pid

    def is_over(self):
        try:
            with open(f"/proc/{self.pid}/stat") as f:
                return f.read().rsplit(")", 1)[1].split()[0] in ("Z", "X")
        except (FileNotFoundError, ProcessLookupError):
            return True


def start_loader():
    """The process that loads torch once and forks the ranks of every job."""
    os.makedirs(TRAIN_DIR, exist_ok=True)
    script = os.path.join(TRAIN_DIR, "train.py")
    shutil.copyfile(os.path.join(HERE, "train.py"), script)
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen([sys.executable, script], cwd=TRAIN_DIR, stdin=subprocess.PIPE, env=env)


def start(loader, plan, work):
    loader.stdin.write(json.dumps(plan).encode() + b"\n")
    loader.stdin.flush()
    ranks = []
    deadline = time.time() + PATIENCE_S
    for rank in range(plan["world"]):
        path = os.path.join(work, f"pid_{rank}")
        while not os.path.exists(path) or not open(path).read().endswith("\n"):
            if time.time() > deadline or loader.poll() is not None:
                raise SystemExit("the loader does not start ranks")
            time.sleep(0.02)
        ranks.append(Rank(int(open(path).read())))
    return ranks


def progress(plan, work):
    moved = []
    for rank in range(plan["world"]):
        try:
            moved.append(int(open(os.path.join(work, f"progress_{rank}")).read() or 0))
        except (FileNotFoundError, ValueError):
            moved.append(0)
    return moved


def wait_until_due(plan, truth, ranks, work):
    """Until the job is stuck (or over), or has run long enough for a dump of a running job."""
    deadline, last, since = time.time() + PATIENCE_S, None, time.time()
    while time.time() < deadline:
        time.sleep(0.05)
        now = progress(plan, work)
        if truth.get("running"):
            if now[plan["culprit"]] >= truth["running"]:
                return
            continue
        if now != last:
            last, since = now, time.time()
        # The first to move may be ahead of the last to start.
        started = sum(1 for moved in now if moved > 0)
        quiet = time.time() - since
        if quiet > (QUIET_S if started >= plan["world"] - 1 else SLOW_START_S):
            return
    raise SystemExit(f"{plan['scenario']}: neither stuck nor over after {PATIENCE_S} s: {progress(plan, work)}")


def take_stacks(plan, ranks, out):
    folder = os.path.join(out, "pyspy")
    os.makedirs(folder)
    spy = os.path.join(os.path.dirname(sys.executable), "py-spy")
    if not os.path.exists(spy):
        spy = shutil.which("py-spy")
    if spy is None:
        print("py-spy is not installed: no stacks")
        return
    kinds = (("json", ["--json", "--full-filenames"]), ("txt", ["--full-filenames"]))
    for rank, child in enumerate(ranks):
        if child.is_over():
            continue
        for ending, flags in kinds:
            if ending == "txt" and plan["scenario"] == "loader_stuck":
                flags = [*flags, "--subprocesses"]
            try:
                got = subprocess.run([spy, "dump", "--pid", str(child.pid), *flags], capture_output=True, timeout=PYSPY_S)
            except subprocess.TimeoutExpired:
                continue
            if got.returncode == 0:
                with open(os.path.join(folder, f"rank_{rank}.{ending}"), "wb") as f:
                    f.write(got.stdout)


def request_dumps(plan, ranks, out, work):
    open(os.path.join(work, "dump_now"), "w").close()
    alive = [rank for rank, child in enumerate(ranks) if not child.is_over()]
    deadline = time.time() + PATIENCE_S
    wanted = lambda: [r for r in alive if not os.path.exists(os.path.join(out, "json", f"trace_{r}.json"))]  # noqa: E731
    last, since = None, time.time()
    while wanted() and time.time() < deadline:
        time.sleep(0.02)
        if wanted() != last:
            last, since = wanted(), time.time()
        if len(last) < len(alive) and time.time() - since > LATE_S:
            break  # the others answered long ago: these cannot
    return [r for r in range(plan["world"]) if not os.path.exists(os.path.join(out, "pickle", f"comm_lib_trace_rank_{r}"))]


def neutral_names():
    """This machine's paths, each with a name of the same length that says nothing: dumps are binary."""
    pairs = {}
    for real, stem in ((sys.prefix, "/opt/venv"), (sys.base_prefix, "/opt/python"), (os.path.expanduser("~"), "/opt")):
        for path in {real, os.path.realpath(real)}:
            if len(path) > 5:
                pairs[path] = stem[: len(path)].ljust(len(path), "_")
    return sorted(pairs.items(), key=lambda pair: -len(pair[0]))


def make_neutral(out, work):
    names = [*neutral_names(), (work, "/tmp/job".ljust(len(work), "_")), (out, "/tmp/out".ljust(len(out), "_"))]
    for folder, _, files in os.walk(out):
        for file in files:
            path = os.path.join(folder, file)
            data = open(path, "rb").read()
            for real, said in names:
                data = data.replace(real.encode(), said.encode())
            with open(path, "wb") as f:
                f.write(data)


def run(loader, scenario, seed, recorder, out_root, hookpg):
    truth = TRUTH[scenario]
    plan = make_plan(scenario, seed, recorder, hookpg)
    out = os.path.join(out_root, f"{scenario}-{recorder}-{seed}")
    work = tempfile.mkdtemp(prefix="fr_work_")
    building = f"{out}.part"
    shutil.rmtree(building, ignore_errors=True)
    os.makedirs(building)
    env = {"TORCH_FR_BUFFER_SIZE": "2000", **truth.get("env", {})}
    plan.update(work=work, out=building, env=env)
    ranks = start(loader, plan, work)
    try:
        wait_until_due(plan, truth, ranks, work)
        if not truth.get("running"):
            take_stacks(plan, ranks, building)
            missing = request_dumps(plan, ranks, building, work)
        else:
            missing = request_dumps(plan, ranks, building, work)
            take_stacks(plan, ranks, building)
        ended = [rank for rank, child in enumerate(ranks) if child.is_over()]
        said = {rank: open(os.path.join(work, f"stderr_{rank}"), errors="replace").read()[-600:] for rank in range(plan["world"])}
        parked = [rank for rank, text in said.items() if "parked:" in text]
    finally:
        for child in ranks:
            kill_tree(child)
    if truth.get("missing") == "other":
        lost = next(r for r in range(plan["world"]) if r not in plan["culprits"])
        for kind, name in (("pickle", f"comm_lib_trace_rank_{lost}"), ("json", f"trace_{lost}.json"), ("pyspy", f"rank_{lost}.json"), ("pyspy", f"rank_{lost}.txt")):
            path = os.path.join(building, kind, name)
            if os.path.exists(path):
                os.remove(path)
        missing = sorted({*missing, lost})
    write_truth(plan, truth, building, missing, ended, parked)
    make_neutral(building, work)
    shutil.rmtree(out, ignore_errors=True)
    os.rename(building, out)
    shutil.rmtree(work, ignore_errors=True)
    print(f"{os.path.basename(out)}: world {plan['world']}, culprits {plan['culprits']}, at {plan['at']}, no dump of {missing}, parked {parked}, ended {ended}", flush=True)
    for rank, text in said.items():
        if os.environ.get("FR_SHOW_STDERR"):
            print(f"  rank {rank}: {text}")


def kill_tree(child):
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(child.pid)], capture_output=True, text=True).stdout.split()
    for pid in [*map(int, children), *([child.pid] if not child.is_over() else [])]:
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass


def write_truth(plan, truth, out, missing, ended, parked):
    seq = truth.get("seq")
    culprits = truth.get("culprits", plan["culprits"])
    said = {
        "scenario": plan["scenario"], "seed": plan["seed"], "recorder": plan["recorder"], "world": plan["world"],
        "what": truth["what"], "category": truth.get("category", []), "cause": truth.get("cause", []),
        "culprits": culprits, "or_culprits": truth.get("or_culprits"), "culprits_any": truth.get("culprits_any", False), "group": truth.get("group", ""),
        "seq": seq(plan) if seq else None, "collective": truth.get("collective", ""), "missing_dumps": missing,
        "ended": sorted(ended), "parked": parked, "iteration": plan["at"], "note": truth.get("note", ""),
    }
    with open(os.path.join(out, "truth.json"), "w") as f:
        json.dump(said, f, indent=1)
        f.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?")
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--recorder", default="hook,gloo")
    parser.add_argument("--hookpg", default="")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list or not args.out:
        print("\n".join(f"{name}: {truth.get('note', '')}" for name, truth in TRUTH.items()))
        return
    out = os.path.abspath(args.out)
    os.makedirs(out, exist_ok=True)
    hookpg = os.path.abspath(args.hookpg) if args.hookpg else ""
    loader = start_loader()
    try:
        for scenario in args.scenarios or TRUTH:
            for recorder in args.recorder.split(","):
                if recorder == "gloo" and TRUTH[scenario].get("hook_only"):
                    continue
                for seed in map(int, args.seeds.split(",")):
                    try:
                        run(loader, scenario, seed, recorder, out, hookpg)
                    except SystemExit as error:
                        print(f"FAILED {error}", flush=True)
    finally:
        loader.stdin.close()
        loader.wait()


if __name__ == "__main__":
    main()
