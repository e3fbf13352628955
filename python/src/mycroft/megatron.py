"""Micro-batch plans in Megatron-Core, without a fork of it.

    installed = mycroft.megatron.install(controller, step=lambda: args.curr_iteration)

Two things are put before Megatron's own, while the program runs. The schedules (`megatron.core.pipeline_parallel.schedules`)
begin the controller's step, take the plan's number of micro-batches, and weigh the loss with m_i * D / M, since Megatron
divides by the replica's own number and averages over replicas. The calculator (`num_microbatches_calculator`) gives the
plan's number inside of a schedule and Megatron's outside of it, where the number of consumed samples, the steps of the
learning rate and the logs are worked out from it.
"""
import contextlib
import functools
import importlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Callable, Optional

if TYPE_CHECKING:
    from mycroft.controller import Controller, Share

CALCULATOR = "_GLOBAL_NUM_MICROBATCHES_CALCULATOR"
SCHEDULES = (
    "forward_backward_no_pipelining",
    "forward_backward_pipelining_without_interleaving",
    "forward_backward_pipelining_with_interleaving",
)
_log = logging.getLogger("mycroft")


class PlannedCalculator:
    """Stands before Megatron's calculator of micro-batches, and is it in all but the number inside of a schedule."""

    def __init__(self, calculator: Any) -> None:
        self._calculator = calculator
        self._planned: Optional[int] = None

    def get(self) -> int:
        """Micro-batches of this replica."""
        return int(self._calculator.get() if self._planned is None else self._planned)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._calculator, name)

    @contextlib.contextmanager
    def planned(self, count: int) -> Iterator[None]:
        """While this lasts, a replica has so many micro-batches."""
        self._planned = count
        try:
            yield
        finally:
            self._planned = None


class Installed:
    """What `install` put into Megatron; `remove` takes it out."""

    def __init__(self, controller: "Controller", step: Optional[Callable[[], int]]) -> None:
        self._controller, self._step = controller, step
        self._calculators = importlib.import_module("megatron.core.num_microbatches_calculator")
        self._schedules = importlib.import_module("megatron.core.pipeline_parallel.schedules")
        self._utils = importlib.import_module("megatron.core.utils")
        self._before: dict[str, Any] = {}
        self._is_told = False
        for name in SCHEDULES:
            self._before[name] = getattr(self._schedules, name)
            setattr(self._schedules, name, self._wrapped(self._before[name]))
        self._calculator()

    def remove(self) -> None:
        """Puts Megatron's own schedules and calculator back."""
        for name, schedule in self._before.items():
            setattr(self._schedules, name, schedule)
        calculator = getattr(self._calculators, CALCULATOR)
        if isinstance(calculator, PlannedCalculator):
            setattr(self._calculators, CALCULATOR, calculator._calculator)

    def _calculator(self) -> Optional[PlannedCalculator]:
        """Ours, put before Megatron's again where that was configured anew; None where there is none yet."""
        calculator = getattr(self._calculators, CALCULATOR)
        if calculator is None or isinstance(calculator, PlannedCalculator):
            return calculator
        planned = PlannedCalculator(calculator)
        setattr(self._calculators, CALCULATOR, planned)
        return planned

    def _wrapped(self, schedule: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(schedule)
        def planned(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("forward_only", False):
                return schedule(*args, **kwargs)
            share = self._controller.begin(None if self._step is None else self._step())
            if not self._fits(share, kwargs["num_microbatches"]):
                return schedule(*args, **kwargs)
            kwargs["num_microbatches"] = share.count
            with contextlib.ExitStack() as stack:
                calculator = self._calculator()
                if calculator is not None:
                    stack.enter_context(calculator.planned(share.count))
                stack.enter_context(self._weighed(kwargs["model"], share.weight))
                return schedule(*args, **kwargs)

        return planned

    def _fits(self, share: "Share", each: int) -> bool:
        """Whether Megatron's step has the micro-batches that the plan divides; not while the batch size grows."""
        fits = each * len(share.micro_batches) == share.total
        if not fits and not self._is_told:
            _log.warning("no plan is applied: a step has %d micro-batches for each replica", each)
        self._is_told = not fits
        return fits

    @contextlib.contextmanager
    def _weighed(self, model: Any, weight: float) -> Iterator[None]:
        """While this lasts, Megatron scales losses by `weight` too. Not where it divides by tokens of all replicas."""
        config = self._utils.get_model_config(model[0] if isinstance(model, list) else model)
        scale = config.grad_scale_func
        if weight == 1.0 or getattr(config, "calculate_per_token_loss", False):
            yield
            return
        config.grad_scale_func = lambda loss: (loss if scale is None else scale(loss)) * weight
        try:
            yield
        finally:
            config.grad_scale_func = scale


def install(controller: "Controller", step: Optional[Callable[[], int]] = None) -> Installed:
    """Lets Megatron-Core divide micro-batches as the controller says. Call it after Megatron was initialized and before it
    trains, on every rank, with `replica` the data-parallel rank and an agreement over all ranks.

    `step` gives the number of the iteration that Megatron is in; without it each training pass of a schedule is the next
    step, which is wrong where Megatron runs one again to check itself."""
    return Installed(controller, step)
