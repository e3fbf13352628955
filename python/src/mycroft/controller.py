"""Changes a job over from one division of its micro-batches to another, in all ranks at the same step.

Every rank reads the plan file by itself and may see it late. What a rank has read counts for nothing until all ranks have
read the same: in a round, at a step that all know, each offers the plan that it holds, and one all-reduce of four numbers
(the largest of each) tells every rank the same thing, whether all of these are one plan. Only then it is applied, by every
rank from the same step on: the step of the plan, or the step of the round where that is later. A rank that has not seen the
file, or cannot read it, keeps the others from applying it, and is never left behind.
"""
import dataclasses
import logging
from collections.abc import Iterator, Sequence
from typing import Callable, Optional

from mycroft.plan import Plan, PlanError, PlanFile

# Gives the largest of each number over all ranks; see mycroft.pytorch.largest_over.
Agree = Callable[[Sequence[int]], Sequence[int]]

_log = logging.getLogger("mycroft")


class TooFarAhead(RuntimeError):
    """Somebody asked for the division of a step that a plan may still change; `lead` says how far one may look."""


@dataclasses.dataclass(frozen=True)
class Share:
    """What one replica does in one step."""

    step: int
    epoch: int  # Of the plan that divides this step; 0 for the division that the job began with.
    replica: int
    micro_batches: tuple[int, ...]  # Of every replica.

    @property
    def count(self) -> int:
        """Micro-batches that this replica takes."""
        return self.micro_batches[self.replica]

    @property
    def total(self) -> int:
        """Micro-batches of all replicas together."""
        return sum(self.micro_batches)

    @property
    def ids(self) -> range:
        """Numbers of this replica's micro-batches among all of the job's: replica after replica, step after step, each
        exactly once whatever the plans were."""
        first = self.step * self.total + sum(self.micro_batches[: self.replica])
        return range(first, first + self.count)

    @property
    def weight(self) -> float:
        """m_i * D / M: what a gradient that is the mean over this replica's micro-batches is multiplied by before the mean
        over D replicas is taken, so that each of the M micro-batches counts the same (FALCON 5.3)."""
        return self.count * len(self.micro_batches) / self.total

    @property
    def scale(self) -> float:
        """D / M: what the loss of each micro-batch is multiplied by where gradients of micro-batches are summed in a
        replica and averaged over replicas. The same number whatever the plan is."""
        return len(self.micro_batches) / self.total

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids)


def alone(numbers: Sequence[int]) -> Sequence[int]:
    """Agreement of a job of one rank."""
    return numbers


class Controller:
    """One rank's view of the plan. All ranks make theirs with the same arguments but `replica`, and call `begin` with the
    same steps."""

    def __init__(
        self,
        path: str,
        *,
        replica: int,
        replicas: int,
        total: int,
        agree: Agree = alone,
        start: int = 0,
        every: int = 1,
        lead: int = 0,
        multiple_of: int = 1,
    ) -> None:
        """`total` micro-batches a step, of all replicas together. A round is held at the first step and at each that
        `every` divides. The division of a step is settled `lead` steps before, for loaders that read ahead. Each
        replica's number is a multiple of `multiple_of` (interleaved pipelines). Raises ValueError for what cannot be."""
        if not 0 <= replica < replicas or total < replicas or every < 1 or lead < 0 or multiple_of < 1:
            raise ValueError(f"replica {replica} of {replicas}, total {total}, every {every}, lead {lead}")
        if replicas > 1 and agree is alone:
            raise ValueError("several replicas need an agreement: agree=mycroft.pytorch.largest_over(group)")
        self._file = PlanFile(path)
        self._replica, self._replicas, self._total = replica, replicas, total
        self._agree, self._every, self._lead, self._multiple = agree, every, lead, multiple_of
        self._begun, self._start = start - 1, start
        # From which step on, with which plan, in the order of their epochs; the last one that has begun counts.
        self._schedule: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, Plan.even(replicas, total).micro_batches)]
        self._told = ""

    @property
    def trouble(self) -> str:
        """Why this rank does not offer the plan in the file; empty where nothing is wrong."""
        return self._told

    @property
    def current(self) -> Share:
        """The share of the step that was begun last. Raises ValueError before the first."""
        return self.share(self._begun)

    @property
    def replicas(self) -> int:
        """Data-parallel replicas of the job."""
        return self._replicas

    @property
    def total(self) -> int:
        """Micro-batches of a step, over all replicas."""
        return self._total

    def begin(self, step: Optional[int] = None) -> Share:
        """Step `step` begins (without a number, the next): holds a round where one is due, and gives the share.

        Collective where a round is due. The step that was begun last may be begun again, which changes nothing. Raises
        ValueError for any other that is not the next."""
        step = self._begun + 1 if step is None else step
        if step == self._begun:
            return self.share(step)
        if step != self._begun + 1:
            raise ValueError(f"step {step} begins after step {self._begun}: make a new controller to start elsewhere")
        if step == self._start or step % self._every == 0:
            self._round(step)
        self._begun = step
        return self.share(step)

    def share(self, step: int) -> Share:
        """The share of the step that was begun last, or of one of the `lead` steps after it. Raises TooFarAhead, and
        ValueError for a step that is over or before the first."""
        if step > self._begun + self._lead:
            raise TooFarAhead(f"step {step} is more than lead={self._lead} steps after step {self._begun}")
        if step < max(self._begun, self._start):
            raise ValueError(f"step {step} is over, or before the first step, {self._start}")
        _, epoch, counts = [entry for entry in self._schedule if entry[0] <= step][-1]
        return Share(step, epoch, self._replica, counts)

    def _round(self, step: int) -> None:
        """Finds out whether all ranks hold the same new plan, and settles from when on it holds."""
        plan = self._offer()
        epoch, digest = (plan.epoch, plan.digest) if plan else (0, 0)
        most, least, most_digest, least_digest = self._agree([epoch, -epoch, digest, -digest])
        if plan is None or (most, most_digest) != (-least, -least_digest):
            return
        begins = max(plan.step, step + self._lead)
        # What was over before this step is not asked for again.
        first = _last_begun(self._schedule, step)
        self._schedule = [*self._schedule[first:], (begins, plan.epoch, plan.micro_batches)]
        _log.info("plan %d divides micro-batches as %s from step %d", plan.epoch, plan.micro_batches, begins)

    def _offer(self) -> Optional[Plan]:
        """The plan in the file if it is newer than what was agreed on and fits this job."""
        plan = self._file.look()
        told = self._file.trouble
        if plan is not None and plan.epoch <= self._schedule[-1][1]:
            plan = None
        if plan is not None:
            try:
                plan.check(self._replicas, self._total, self._multiple)
            except PlanError as error:
                plan, told = None, f"{self._file.path}: {error}"
        if told and told != self._told:
            _log.warning("the plan is not applied: %s", told)
        self._told = told
        return plan


def _last_begun(schedule: list[tuple[int, int, tuple[int, ...]]], step: int) -> int:
    """Index of the entry that divides the step before `step`; the first where none does."""
    return max([index for index, entry in enumerate(schedule) if entry[0] < step], default=0)
