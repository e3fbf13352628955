"""Step marks: the training loop tells where an iteration begins.

A mark costs one record in the tracer's ring. Where no tracer is loaded it costs a look at the linker's counter of loaded
libraries. The C interface has one mark, for where an iteration begins; an iteration ends where the next begins.
"""
import contextlib
from collections.abc import Iterator
from typing import Optional

from mycroft.libraries import Libraries, load_library

_MOST = 2**64 - 1


class Marks:
    """A counter of steps, and the libraries that are told of them."""

    def __init__(self) -> None:
        self._libraries = Libraries()
        self._next = 0

    def mark(self, step: Optional[int] = None) -> bool:
        """Iteration `step` begins; without a number, the one after the last. True if a tracer recorded it."""
        step = self._next if step is None else int(step)
        if not 0 <= step <= _MOST:
            raise ValueError(f"step {step} is not from 0 to 2**64 - 1")
        self._next = step + 1
        recorded = False
        for function in self._libraries.functions():
            recorded = function(step) == 0 or recorded
        return recorded

    def watched(self) -> bool:
        """Whether a probe library is loaded in this process."""
        return bool(self._libraries.functions())

    def load(self, path: str) -> bool:
        """Loads a probe library, and says whether it takes step marks."""
        load_library(path)
        return self.watched()


_marks = Marks()


def mark(step: Optional[int] = None) -> bool:
    """Iteration `step` begins; without a number, the one after the last. True if a tracer recorded it: it does from the
    first communicator of the process on."""
    return _marks.mark(step)


@contextlib.contextmanager
def step(number: Optional[int] = None) -> Iterator[bool]:
    """`with mycroft.step():` around one iteration; gives what `mark` gives. Leaving it tells nothing."""
    yield _marks.mark(number)


def watched() -> bool:
    """Whether a probe library is loaded in this process (NCCL loads its plugin at the first communicator)."""
    return _marks.watched()


def load(path: str) -> bool:
    """Loads a probe library, which `mycroft` never does by itself; for programs that do not use NCCL's plugin interface.
    True if it takes step marks. Raises OSError where it cannot be loaded."""
    return _marks.load(path)
