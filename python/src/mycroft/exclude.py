"""Hosts to leave out, in the words of schedulers. Pure functions: time is an argument, and nothing is run here.

The list is a JSON file: `{"format": "mycroft-exclusions", "version": 1, "hosts": [{"host": "node07", "reason": "slow GPU",
"until": "2026-12-01T00:00:00Z"}]}`, or the list of hosts alone; see docs/formats/plan.md.
"""
import dataclasses
import datetime
import json
import re
from collections.abc import Sequence
from typing import Any, Optional, TextIO

FORMAT = "mycroft-exclusions"
VERSION = 1
# More than any scheduler's command line takes.
MOST_HOSTS = 10_000
MOST_BYTES = 4 << 20
# What a kernel and a DNS allow, so that no name needs quoting or can be an option.
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z")
# Longer numbers are no numbers of hosts.
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})\Z")
TAINT = "mycroft.dev/excluded"
UNTIL = "mycroft.dev/excluded-until"
REASON = "mycroft.dev/excluded-reason"


class ExclusionError(ValueError):
    """What is wrong with a list of hosts."""


@dataclasses.dataclass(frozen=True)
class Exclusion:
    """A host, why it is left out, and until when; None: until somebody takes it from the list."""

    host: str
    reason: str = ""
    until: Optional[datetime.datetime] = None

    def holds(self, now: datetime.datetime) -> bool:
        """Whether the host is still left out."""
        return self.until is None or now < self.until

    def told(self) -> str:
        """In words."""
        until = f" until {self.until.isoformat()}" if self.until else ""
        return f"{self.host} is left out{until}: {self.reason or 'no reason given'}"


def parse(text: str) -> list[Exclusion]:
    """Reads a list of hosts; of a host that stands there twice the later end counts. Raises ExclusionError."""
    try:
        told: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ExclusionError(f"not JSON: {error}") from None
    if isinstance(told, dict):
        if (told.get("format"), told.get("version")) != (FORMAT, VERSION):
            raise ExclusionError(f"format is {told.get('format')!r} version {told.get('version')!r}, not {FORMAT!r} {VERSION}")
        told = told.get("hosts")
    if not isinstance(told, list) or len(told) > MOST_HOSTS:
        raise ExclusionError(f"no list of at most {MOST_HOSTS} hosts")
    hosts: dict[str, Exclusion] = {}
    for entry in told:
        new = _exclusion(entry)
        old = hosts.get(new.host)
        if old is None or (old.until is not None and (new.until is None or new.until > old.until)):
            hosts[new.host] = new
    return [hosts[host] for host in sorted(hosts)]


def read(path: str) -> list[Exclusion]:
    """Reads a file with a list of hosts. Raises OSError, and ValueError for what is in it."""
    with open(path, encoding="utf-8") as file:
        return parse(limited(file))


def limited(file: TextIO) -> str:
    """The text of a file that is not too large. Raises ExclusionError."""
    text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise ExclusionError(f"longer than {MOST_BYTES} characters")
    return text


def _exclusion(entry: Any) -> Exclusion:
    if not isinstance(entry, dict) or not isinstance(entry.get("host"), str):
        raise ExclusionError(f"{entry!r} names no host")
    if not _HOST.match(entry["host"]):
        raise ExclusionError(f"{entry['host']!r} is no name of a host")
    reason, until = entry.get("reason") or "", entry.get("until")
    if not isinstance(reason, str) or not all(letter.isprintable() for letter in reason):
        raise ExclusionError(f"the reason of {entry['host']} is no line of text")
    return Exclusion(entry["host"], reason, None if until is None else time(until))


def time(text: Any) -> datetime.datetime:
    """A time as `2026-12-01T00:00:00Z`, or with another offset. Raises ExclusionError."""
    try:
        read = datetime.datetime.fromisoformat(re.sub(r"[zZ]\Z", "+00:00", text))
    except (TypeError, ValueError):
        raise ExclusionError(f"{text!r} is no time such as 2026-12-01T00:00:00Z") from None
    if read.tzinfo is None:
        raise ExclusionError(f"{text!r} says no offset from UTC, such as Z")
    return read


def held(exclusions: Sequence[Exclusion], now: datetime.datetime) -> tuple[list[Exclusion], list[Exclusion]]:
    """Those that are left out now, and those whose time is over."""
    return [e for e in exclusions if e.holds(now)], [e for e in exclusions if not e.holds(now)]


def hostlist(hosts: Sequence[str]) -> str:
    """Slurm's short form: node01, node02, node03 and node07 are `node[01-03,07]`. Numbers at the end of a name only."""
    runs: dict[str, list[tuple[str, str]]] = {}
    plain: list[str] = []
    for prefix, digits in sorted({_parts(host) for host in hosts}, key=_by_number):
        if not digits:
            plain.append(prefix)
            continue
        of = runs.setdefault(prefix, [])
        follows = next((i for i, (low, high) in enumerate(of) if _next(low, high) == digits), None)
        if follows is None:
            of.append((digits, digits))
        else:
            of[follows] = (of[follows][0], digits)
    packed = []
    for prefix, of in runs.items():
        ranges = [low if low == high else f"{low}-{high}" for low, high in of]
        single = len(of) == 1 and of[0][0] == of[0][1]
        packed.append(prefix + (ranges[0] if single else "[" + ",".join(ranges) + "]"))
    return ",".join(sorted(plain + packed))


def _parts(host: str) -> tuple[str, str]:
    numbered = _NUMBERED.match(host)
    return (numbered[1], numbered[2]) if numbered and numbered[1] else (host, "")


def _by_number(parts: tuple[str, str]) -> tuple[str, int, int]:
    return (parts[0], int(parts[1] or 0), len(parts[1]))


def _next(low: str, high: str) -> str:
    """The number after `high` in a range that began with `low`, whose width Slurm gives to all of them."""
    return str(int(high) + 1).zfill(len(low))


def slurm(hosts: Sequence[str], job: Optional[str] = None) -> list[str]:
    """The option for `sbatch` or `srun`; with a job the command that gives it to one which is still to start. Nothing
    without hosts."""
    if not hosts:
        return []
    if job is None:
        return [f"--exclude={hostlist(hosts)}"]
    if not re.match(r"[0-9][0-9_\[\],-]*\Z", job):
        raise ExclusionError(f"{job!r} is no number of a Slurm job")
    return ["scontrol", "update", f"JobId={job}", f"ExcNodeList={hostlist(hosts)}"]


def kubernetes(exclusions: Sequence[Exclusion], now: datetime.datetime) -> list[list[str]]:
    """Commands of kubectl: a taint that keeps new pods away, a label to select by, and why and until when as annotations;
    for hosts whose time is over the reverse. Each may be run again. Node names are those of the list, in lower case."""
    commands: list[list[str]] = []
    for exclusion in exclusions:
        node, holds = exclusion.host.lower(), exclusion.holds(now)
        until = exclusion.until.isoformat() if holds and exclusion.until else None
        reason = (exclusion.reason or None) if holds else None
        patch = {
            "metadata": {
                "labels": {TAINT: "true" if holds else None},
                "annotations": {REASON: reason, UNTIL: until},
            }
        }
        taint = [f"{TAINT}=true:NoSchedule", "--overwrite"] if holds else [f"{TAINT}:NoSchedule-"]
        commands.append(["kubectl", "taint", "nodes", node, *taint])
        commands.append(["kubectl", "patch", "node", node, "--type=merge", "-p", json.dumps(patch, sort_keys=True)])
    return commands


def is_excluded(exclusions: Sequence[Exclusion], names: Sequence[str], now: datetime.datetime) -> Optional[Exclusion]:
    """What is said of the host that has these names, if it is left out now. A short name is the same host as a full one."""
    own = {name.lower() for name in names} | {name.lower().split(".")[0] for name in names}
    for exclusion in exclusions:
        listed = exclusion.host.lower()
        if exclusion.holds(now) and (listed in own or ("." not in listed and listed.split(".")[0] in own)):
            return exclusion
    return None
