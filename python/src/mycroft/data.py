"""Which samples this replica's micro-batches hold, whatever the plans are."""
import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Callable, Optional

if TYPE_CHECKING:
    from mycroft.controller import Controller

# Gives the order of all samples in a pass over the data, by the number of the pass.
Order = Callable[[int], Sequence[int]]


class MicroBatchSampler:
    """A batch sampler (`DataLoader(dataset, batch_sampler=...)`): each item is the samples of one micro-batch of this replica.

    All replicas go through one order of the samples, cut into micro-batches that are numbered over the whole job; a step
    takes the next `total` of them, and each replica its own part (`Share.ids`). So every sample of a pass is used exactly
    once, and the samples of a step are those of the even split. What does not fill a step at the end of a pass is left out.

    A loader with workers asks ahead by `num_workers * prefetch_factor` micro-batches: give the controller a `lead` of as
    many steps as that may be, or use no workers. Where it asks too far ahead, TooFarAhead is raised.
    """

    def __init__(
        self,
        controller: "Controller",
        samples: int,
        micro_batch_size: int,
        *,
        start: int = 0,
        seed: int = 0,
        shuffle: bool = True,
        order: Optional[Order] = None,
    ) -> None:
        """`samples` in the data set; `start`: the step at which the job begins or goes on. The order of a pass is drawn from
        `seed`, that of the data where `shuffle` is off, or what `order` gives. Raises ValueError where no step is full."""
        self._controller, self._size, self._samples = controller, micro_batch_size, samples
        self._steps = samples // (micro_batch_size * controller.total) if micro_batch_size > 0 else 0
        if self._steps < 1:
            raise ValueError(f"{samples} samples do not fill a step of {controller.total} micro-batches")
        self._step = start
        self._order = order or (_shuffled(samples, seed) if shuffle else lambda _: range(samples))

    @property
    def steps(self) -> int:
        """Steps of a pass over the data."""
        return self._steps

    def __len__(self) -> int:
        """Micro-batches of a pass for a replica, if it took an even share; what a plan gives it is more or less."""
        return self._steps * self._controller.total // self._controller.replicas

    def __iter__(self) -> Iterator[list[int]]:
        """The rest of the pass that the next step belongs to."""
        number = self._step // self._steps
        order, first = self._order(number), number * self._steps * self._controller.total
        while self._step // self._steps == number:
            for micro in self._controller.share(self._step).ids:
                begin = (micro - first) * self._size
                yield list(order[begin : begin + self._size])
            self._step += 1


def _shuffled(samples: int, seed: int) -> Order:
    def order(number: int) -> Sequence[int]:
        drawn = list(range(samples))
        random.Random(f"{seed} {number}").shuffle(drawn)
        return drawn

    return order
