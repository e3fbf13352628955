"""A program with one communicator of a collective library that loads its profiler plugin as NCCL does: marks its steps.

usage: marks_of_a_job.py LIBRARY      (NCCL_PROFILER_PLUGIN names the tracer)

It then waits until its input ends: the tracer's segment goes with the process.
"""
import ctypes
import sys

import mycroft
from mycroft.hooks import OptimizerSteps


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 128)]


class Optimizer:
    """Something that steps."""


def main(library):
    assert not mycroft.watched() and not mycroft.mark(100), "nothing is loaded, and nothing was loaded for it"
    nccl = ctypes.CDLL(library)
    assert not mycroft.watched(), "the library has not opened its plugin yet"
    unique, communicator = UniqueId(), ctypes.c_void_p()
    assert nccl.ncclGetUniqueId(ctypes.byref(unique)) == 0
    nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId, ctypes.c_int]
    assert nccl.ncclCommInitRank(ctypes.byref(communicator), 1, unique, 0) == 0
    assert mycroft.watched()
    with mycroft.step(7) as recorded:
        assert recorded
    with mycroft.step() as recorded:
        assert recorded, "8"
    assert mycroft.mark(2**63)
    optimizers, hook = [Optimizer(), Optimizer()], OptimizerSteps(start=20)
    for _ in range(3):
        for optimizer in optimizers:
            hook(optimizer)
    print("marked", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
