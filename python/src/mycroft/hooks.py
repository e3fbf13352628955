"""Step marks from what frameworks call: PyTorch's optimizers, Lightning and Transformers. Imported when asked for.

Use one of these, or `mycroft.step` by hand, not two at once: each marks every iteration.
"""
import weakref
from typing import Any, Callable, Optional

from mycroft.marks import mark

Mark = Callable[[int], Any]


class OptimizerSteps:
    """Marks an iteration when an optimizer has stepped: once an iteration, though gradients be accumulated or several
    optimizers step in it. The mark says that the next iteration begins."""

    def __init__(self, optimizer: Any = None, start: int = 0, tell: Mark = mark) -> None:
        """Without `optimizer` an iteration ends where one steps that has stepped in it already; the first of several tells.
        Where one steps more often than others (a discriminator), name the one to count by. `start`: the first number."""
        self._only = None if optimizer is None else weakref.ref(optimizer)
        self._stepped: Any = weakref.WeakSet()
        self._step, self._tell = start, tell

    def __call__(self, optimizer: Any, args: Any = None, kwargs: Any = None) -> None:
        """The hook itself, as PyTorch calls it."""
        if self._only is not None:
            if self._only() is not optimizer:
                return
        else:
            if self._stepped and optimizer not in self._stepped:
                self._stepped.add(optimizer)
                return
            self._stepped = weakref.WeakSet([optimizer])
        self._step += 1
        self._tell(self._step)


def count_optimizer_steps(optimizer: Optional[Any] = None, start: int = 0) -> Any:
    """Marks iterations of any PyTorch loop: hooks every optimizer of the process, or the one that is given. Returns what
    removes the hook (`.remove()`). A step that a gradient scaler leaves out is none."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    return register_optimizer_step_post_hook(OptimizerSteps(optimizer, start))


def lightning_callback(start: int = 0) -> Any:
    """A Lightning callback (`Trainer(callbacks=[...])`) that marks where each optimizer step's first batch begins."""
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

    class StepMarks(Callback):  # type: ignore[misc, valid-type, unused-ignore]
        """Marks one step for as many batches as are accumulated."""

        def __init__(self) -> None:
            super().__init__()
            self._step = start

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            """Called before each batch; numbers of batches begin anew in each pass over the data."""
            if batch_idx % max(1, int(trainer.accumulate_grad_batches)) == 0:
                mark(self._step)
                self._step += 1

    return StepMarks()


def transformers_callback() -> Any:
    """A callback of Hugging Face's Trainer (`Trainer(callbacks=[...])`) that marks each step, by the Trainer's number; its
    gradient accumulation is inside a step."""
    from transformers import TrainerCallback

    class StepMarks(TrainerCallback):  # type: ignore[misc, valid-type, unused-ignore]
        """Marks the beginning of each step."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            """Called before the first micro-batch of a step."""
            mark(int(state.global_step))

    return StepMarks()
