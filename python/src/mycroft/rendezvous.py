"""A rendezvous of torchrun that hosts of an exclusion list do not join: `torchrun --rdzv-backend=mycroft ...`.

It is the c10d rendezvous, with one question before: is this host on the list now? torchrun asks where it starts, and again
whenever the job's processes are started anew, so that a host which was put on the list in the meantime leaves then, and the
others go on if they are enough (`--nnodes=MIN:MAX`). torchrun finds it by the entry point `torchrun.handlers`.

    --rdzv-conf exclude=/shared/hosts.json[,host=NAME]

`host`: the name of this host in the list, where it has another here. The rest of the configuration is that of c10d. The host
that keeps the rendezvous (`--rdzv-endpoint`) must not be the one to leave: the others would lose it.
"""
import datetime
import logging
import os
import socket
from typing import Any, Callable, Optional

from mycroft import exclude

BACKEND = "mycroft"
_log = logging.getLogger("mycroft")


def own_names(name: Optional[str] = None) -> list[str]:
    """The names of this host: the one that is given, or what the machine and Slurm call it."""
    names = [name] if name else [socket.gethostname(), socket.getfqdn(), os.environ.get("SLURMD_NODENAME", "")]
    return [name for name in names if name]


def excluded(path: str, names: list[str]) -> Optional[exclude.Exclusion]:
    """What the list says of this host. A list that is not there excludes nobody; one that cannot be read neither, and that
    is logged."""
    try:
        hosts = exclude.read(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.warning("no host is left out: %s: %s", path, error)
        return None
    return exclude.is_excluded(hosts, names, datetime.datetime.now(datetime.timezone.utc))


def handler() -> Callable[[Any], Any]:
    """What the entry point gives torchrun: a function that makes the rendezvous from its parameters."""
    return _made


def _made(parameters: Any) -> Any:
    from torch.distributed.elastic.rendezvous import api

    config = dict(parameters.config)
    path, name = config.pop("exclude", None), config.pop("host", None)
    if not path:
        raise ValueError("which list? --rdzv-conf exclude=/shared/hosts.json")
    place = (parameters.endpoint, parameters.run_id, parameters.min_nodes, parameters.max_nodes, parameters.local_addr)
    inner = api.rendezvous_handler_registry.create_handler(api.RendezvousParameters("c10d", *place, **config))

    class Handler(_Asking, api.RendezvousHandler):  # type: ignore[misc, unused-ignore]
        """torchrun asks for a class of its own."""

    return Handler(inner, path, own_names(name))


class _Asking:
    """The c10d rendezvous, which an excluded host neither joins nor closes."""

    def __init__(self, inner: Any, path: str, names: list[str]) -> None:
        self._inner, self._path, self._names = inner, path, names
        self._has_left = False

    def get_backend(self) -> str:
        """The name by which torchrun knows it."""
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        """As c10d."""
        return bool(self._inner.use_agent_store)

    def next_rendezvous(self) -> Any:
        """Joins, unless this host is on the list: then its torchrun ends, without an error and without its processes, which
        torchrun stops before it asks. (Its own exception for this, RendezvousGracefulExitError, ends torchrun 2.15 with an
        AttributeError.)"""
        found = excluded(self._path, self._names)
        if found is not None:
            self._has_left = True
            _log.warning("this host leaves the job: %s", found.told())
            raise SystemExit(0)
        return self._inner.next_rendezvous()

    def is_closed(self) -> bool:
        """As c10d."""
        return bool(self._inner.is_closed())

    def set_closed(self) -> None:
        """As c10d; a host that left closes it for nobody."""
        if not self._has_left:
            self._inner.set_closed()

    def num_nodes_waiting(self) -> int:
        """As c10d."""
        return int(self._inner.num_nodes_waiting())

    def get_run_id(self) -> str:
        """As c10d."""
        return str(self._inner.get_run_id())

    def shutdown(self) -> bool:
        """As c10d; a host that left ends it for nobody. The others see that it is gone by its missing heartbeat."""
        return True if self._has_left else bool(self._inner.shutdown())
