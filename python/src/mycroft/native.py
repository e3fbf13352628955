"""The program and the libraries that a wheel for one platform carries. Installed from source, the package has none."""
import os
import shlex
import sys
from typing import Optional

PROGRAM, PLUGIN = "mycroft", "libmycroft_nccl.so"


def path(name: str) -> Optional[str]:
    """Where this package carries a native file; None where it carries none."""
    found = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libexec", name)
    return found if os.path.isfile(found) else None


def environment() -> dict[str, str]:
    """What to set in a job's environment so that NCCL loads the tracer. Raises FileNotFoundError without a plugin."""
    return {"NCCL_PROFILER_PLUGIN": _needed(PLUGIN)}


def exports() -> str:
    """The same as lines for a shell."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment().items())


def run() -> int:
    """The command `mycroft`: becomes the program with the same arguments."""
    try:
        program = _needed(PROGRAM)
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        print(f"mycroft: {error}", file=sys.stderr)
    return 2


def _needed(name: str) -> str:
    found = path(name)
    if found is None:
        raise FileNotFoundError(f"this package carries no {name}: install the wheel for this platform (docs/runbook/install.md)")
    return found
