"""A plan: how many micro-batches of each step every data-parallel replica takes (FALCON 5.3, strategy S2).

The file is described in docs/formats/plan.md. A plan is a complete value: who carries it out has no choices left, and may
do so twice.
"""
import dataclasses
import hashlib
import json
import os
import stat
import tempfile
from typing import Any, Optional

FORMAT = "mycroft-plan"
VERSION = 1
# A number of eight characters for each of 100,000 replicas, and as much again for what else is there.
MOST_BYTES = 2 << 20
# What fits a signed number of 64 bits, in which ranks exchange it.
MOST = 2**63 - 1


class PlanError(ValueError):
    """What is wrong with a plan, in words for whoever wrote it."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """Micro-batches of each replica, from a step on."""

    epoch: int  # Grows from plan to plan, from 1; the same number is the same plan.
    step: int  # The first step that may be divided so.
    micro_batches: tuple[int, ...]  # Of each data-parallel replica, in their order; at least 1 each.
    reason: str = ""  # For people.

    def __post_init__(self) -> None:
        for name, value, least in (("epoch", self.epoch, 1), ("step", self.step, 0)):
            if not _is_number(value) or not least <= value <= MOST:
                raise PlanError(f"{name} is {value!r} and not a number from {least} to 2**63 - 1")
        if not self.micro_batches:
            raise PlanError("micro_batches is empty")
        for replica, count in enumerate(self.micro_batches):
            if not _is_number(count) or not 1 <= count <= MOST:
                raise PlanError(f"micro_batches of replica {replica} is {count!r} and not a number from 1")

    @property
    def total(self) -> int:
        """Micro-batches of a step, over all replicas."""
        return sum(self.micro_batches)

    @property
    def digest(self) -> int:
        """62 bits of what is to be done, the same for equal plans on every machine."""
        text = json.dumps([self.epoch, self.step, self.micro_batches], separators=(",", ":"))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 2

    def check(self, replicas: int, total: int, multiple_of: int = 1) -> None:
        """Raises PlanError unless the plan is for this job: so many replicas, as many micro-batches a step as before, each
        replica's a multiple (interleaved pipelines)."""
        if len(self.micro_batches) != replicas:
            raise PlanError(f"the plan is for {len(self.micro_batches)} replicas, the job has {replicas}")
        if self.total != total:
            raise PlanError(f"the plan has {self.total} micro-batches a step, the job has {total}")
        odd = [replica for replica, count in enumerate(self.micro_batches) if count % multiple_of]
        if odd:
            raise PlanError(f"micro_batches of replica {odd[0]} is not a multiple of {multiple_of}")

    @staticmethod
    def even(replicas: int, total: int) -> "Plan":
        """The split that the job began with, as close to even as `total` allows."""
        each, more = divmod(total, replicas)
        return Plan(1, 0, tuple(each + (replica < more) for replica in range(replicas)))

    @staticmethod
    def parse(text: str) -> "Plan":
        """Reads the text of a plan file; fields it does not know are left alone. Raises PlanError."""
        try:
            told: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise PlanError(f"not JSON: {error}") from None
        if not isinstance(told, dict):
            raise PlanError("not a JSON object")
        _check_head(told)
        counts = told.get("micro_batches")
        if not isinstance(counts, list):
            raise PlanError("micro_batches is not a list")
        plan = Plan(told.get("epoch", 0), told.get("step", -1), tuple(counts), str(told.get("reason", "")))
        if plan.total != told.get("total"):
            raise PlanError(f"total is {told.get('total')!r}, micro_batches add up to {plan.total}")
        return plan

    def text(self) -> str:
        """The text of the plan's file."""
        told: dict[str, Any] = {"format": FORMAT, "version": VERSION, "epoch": self.epoch, "step": self.step}
        told.update(micro_batches=list(self.micro_batches), total=self.total)
        if self.reason:
            told["reason"] = self.reason
        return json.dumps(told, indent=1) + "\n"

    def write(self, path: str) -> None:
        """Writes the file such that a reader sees the old or the new plan, never a part. Raises OSError."""
        folder = os.path.dirname(os.path.abspath(path))
        descriptor, beside = tempfile.mkstemp(prefix=".plan-", dir=folder)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(self.text())
            os.chmod(beside, 0o644)
            os.replace(beside, path)
        except BaseException:
            os.unlink(beside)
            raise


class PlanFile:
    """The file that a rank looks at. Reading never raises: what is wrong stands in `trouble`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.trouble = ""
        self._stamp: Optional[tuple[int, int, int]] = None
        self._plan: Optional[Plan] = None

    def look(self) -> Optional[Plan]:
        """The plan in the file, None where there is none that can be read. An unchanged file is not read again."""
        try:
            status = os.stat(self.path)
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp != self._stamp:
                self._plan, self._stamp, self.trouble = None, stamp, ""
                if not stat.S_ISREG(status.st_mode):
                    raise PlanError("not a regular file")
                self._plan = Plan.parse(self._read())
        except FileNotFoundError:
            self._plan, self._stamp, self.trouble = None, None, ""
        except OSError as error:
            self._plan, self._stamp, self.trouble = None, None, f"{self.path}: {error}"
        except ValueError as error:
            self._plan, self.trouble = None, f"{self.path}: {error}"
        return self._plan

    def _read(self) -> str:
        with open(self.path, "rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise PlanError(f"larger than {MOST_BYTES} bytes")
        return text.decode("utf-8")


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_head(told: dict[str, Any]) -> None:
    if told.get("format") != FORMAT:
        raise PlanError(f"format is {told.get('format')!r} and not {FORMAT!r}")
    if told.get("version") != VERSION:
        raise PlanError(f"the plan is of version {told.get('version')!r}, this program reads version {VERSION}")
