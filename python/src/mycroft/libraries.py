"""Finds the probe libraries that are loaded in this process, and loads none.

NCCL opens its plugin with RTLD_LOCAL, so that the program's own scope does not show `mycroft_step`. The dynamic linker
lists what is loaded (`dl_iterate_phdr`), and `dlopen` with RTLD_NOLOAD gives a handle only of what is there already.
"""
import ctypes
import os
import sys
from typing import Any, Callable, Optional

# Part of the file name of ours, and of a plugin that NCCL found by a short name (libnccl-profiler-NAME.so).
NAMES = ("mycroft", "profiler")
SYMBOL = b"mycroft_step"
StepFunction = Callable[[int], int]


class _Info(ctypes.Structure):
    """dl_phdr_info of the C library, as far as it is read."""

    _fields_ = [
        ("addr", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("header_count", ctypes.c_uint16),
        ("adds", ctypes.c_ulonglong),
        ("subs", ctypes.c_ulonglong),
    ]


# These keep the interpreter's lock: given up inside the linker's lock, it could not be had back while another thread
# imports an extension module.
_Visit = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Info), ctypes.c_size_t, ctypes.c_void_p)
_Step = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_uint64)


class Libraries:
    """The `mycroft_step` functions of this process. Looks again only after the linker has loaded something."""

    def __init__(self) -> None:
        self._linker = _linker()
        self._adds = -1
        self._names: list[bytes] = []
        self._addresses: set[int] = set()
        self._functions: list[StepFunction] = []
        self._visit = _Visit(self._seen)

    def functions(self) -> list[StepFunction]:
        """What to call at a step: one function for each library, none where none is loaded."""
        self.look()
        return self._functions

    def look(self) -> None:
        """Lists the loaded libraries anew, if any were loaded since: NCCL loads its plugin late."""
        linker = self._linker
        if linker is None:
            return
        self._names = []
        linker.dl_iterate_phdr(self._visit, None)
        for name in self._names:
            self._take(linker, name)

    def _seen(self, info: Any, size: int, _data: Any) -> int:
        """Called for each loaded library; 1 ends the walk: nothing was loaded since the last one."""
        told = info.contents
        if size >= ctypes.sizeof(_Info) and not self._names:
            if told.adds == self._adds:
                return 1
            self._adds = told.adds
        self._names.append(told.name or b"")
        return 0

    def _take(self, linker: Any, path: bytes) -> None:
        name = os.path.basename(path).decode(errors="replace")
        plugin = os.path.basename(os.environ.get("NCCL_PROFILER_PLUGIN", ""))
        if not any(part in name for part in NAMES) and (not plugin or plugin not in name):
            return
        handle = linker.dlopen(path, os.RTLD_LAZY | os.RTLD_NOLOAD)
        if not handle:
            return
        address = linker.dlsym(handle, SYMBOL)
        if not address:
            linker.dlclose(handle)
        elif address not in self._addresses:
            # The handle is kept, so that what is called stays where it is.
            self._addresses.add(address)
            self._functions.append(_Step(address))


def _linker() -> Any:
    """The dynamic linker's functions; None where the platform is another one."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        linker: Any = ctypes.PyDLL(None)
        linker.dl_iterate_phdr.argtypes = [_Visit, ctypes.c_void_p]
        linker.dlopen.argtypes = [ctypes.c_char_p, ctypes.c_int]
        linker.dlopen.restype = ctypes.c_void_p
        linker.dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        linker.dlsym.restype = ctypes.c_void_p
        linker.dlclose.argtypes = [ctypes.c_void_p]
        return linker
    except (OSError, AttributeError):
        return None


def load_library(path: Optional[str]) -> None:
    """Loads a probe library, as NCCL would. Raises OSError where it cannot be loaded."""
    ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
