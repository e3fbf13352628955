"""`python -m mycroft exclude ...`: a list of hosts to leave out, in the words of a scheduler. `python -m mycroft env`: what a
job's environment needs."""
import argparse
import datetime
import json
import os
import shlex
import subprocess
import sys
from typing import Optional

from mycroft import exclude, native, rendezvous

# As sysexits.h has it: a failure that another attempt elsewhere may mend; and one of usage.
EXIT_EXCLUDED, EXIT_USAGE = 75, 2


def main(arguments: Optional[list[str]] = None) -> int:
    """Runs the command; gives the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    end = words.index("--") if "--" in words else len(words)
    args = _parser().parse_args(words[:end])
    args.command = words[end + 1 :]
    try:
        if args.run is _env:
            return _env()
        now = exclude.time(args.now) if args.now else datetime.datetime.now(datetime.timezone.utc)
        hosts = exclude.parse(exclude.limited(sys.stdin)) if args.list == "-" else exclude.read(args.list)
        code: int = args.run(args, hosts, now)
        return code
    except (OSError, ValueError) as error:
        print(f"mycroft: {error}", file=sys.stderr)
        return EXIT_USAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mycroft", description=__doc__)
    commands = parser.add_subparsers(required=True)
    text = "prints what to export so that NCCL loads the tracer: eval \"$(python -m mycroft env)\""
    commands.add_parser("env", help=text, description=text).set_defaults(run=_env)
    ways = commands.add_parser("exclude", help="hosts to leave out").add_subparsers(required=True)

    def way(name: str, run: object, text: str) -> argparse.ArgumentParser:
        added = ways.add_parser(name, help=text, description=text)
        added.add_argument("list", help="JSON list of hosts with reason and end; - for standard input")
        added.add_argument("--now", help="judge ends of time as of then (2026-12-01T00:00:00Z)")
        added.set_defaults(run=run)
        return added

    slurm = way("slurm", _slurm, "prints --exclude=... for sbatch and srun")
    slurm.add_argument("--job", help="print the scontrol command for this pending job instead")
    text = "prints kubectl commands that taint and label nodes, and free those whose time is over"
    kubernetes = way("kubernetes", _kubernetes, text)
    kubernetes.add_argument("--apply", action="store_true", help="run them")
    torchrun = way("torchrun", _torchrun, "runs a command (-- torchrun ...) unless this host is on the list: then exit code 75")
    torchrun.add_argument("--host", action="append", help="name of this host, if it has another here")
    way("hook", _hook, "runs a program of yours (-- PROGRAM ...), which reads the hosts as JSON from its input")
    return parser


def _env() -> int:
    print(native.exports(), end="")
    return 0


def _slurm(args: argparse.Namespace, hosts: list[exclude.Exclusion], now: datetime.datetime) -> int:
    words = exclude.slurm([held.host for held in exclude.held(hosts, now)[0]], args.job)
    if words:
        print(shlex.join(words))
    return 0


def _kubernetes(args: argparse.Namespace, hosts: list[exclude.Exclusion], now: datetime.datetime) -> int:
    failed = 0
    for words in exclude.kubernetes(hosts, now):
        print(shlex.join(words), flush=True)
        if args.apply:
            ended = subprocess.run(words, check=False).returncode
            # A taint that is gone already is as it should be.
            failed += ended != 0 and not words[-1].endswith("-")
    return 1 if failed else 0


def _torchrun(args: argparse.Namespace, hosts: list[exclude.Exclusion], now: datetime.datetime) -> int:
    found = exclude.is_excluded(hosts, args.host or rendezvous.own_names(), now)
    if found is not None:
        print(f"mycroft: {found.told()}", file=sys.stderr)
        return EXIT_EXCLUDED
    command = _checked(args.command)
    sys.stdout.flush()
    os.execvp(command[0], command)


def _hook(args: argparse.Namespace, hosts: list[exclude.Exclusion], now: datetime.datetime) -> int:
    held, over = exclude.held(hosts, now)

    def told(some: list[exclude.Exclusion]) -> list[dict]:  # type: ignore[type-arg]
        return [{"host": e.host, "reason": e.reason, "until": e.until and e.until.isoformat()} for e in some]

    text = json.dumps({"format": exclude.FORMAT, "version": exclude.VERSION, "hosts": told(held), "over": told(over)})
    return subprocess.run(_checked(args.command), input=text + "\n", text=True, check=False).returncode


def _checked(words: list[str]) -> list[str]:
    if not words:
        raise ValueError("which command? it stands after --")
    return words


if __name__ == "__main__":
    sys.exit(main())
