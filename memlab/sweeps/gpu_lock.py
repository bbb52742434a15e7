"""A lock for each GPU, so that no two sweeps on a machine time on it at once."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def gpu_lock(uuid: str | None) -> Iterator[None]:
    """Hold a GPU of this machine during the work; another sweep waits.

    Args:
        uuid: The GPU's UUID; None for an emulated device, which needs no lock.
    """
    if uuid is None:
        yield
        return
    import fcntl

    name = re.sub(r"[^A-Za-z0-9-]", "", uuid)
    path = Path(tempfile.gettempdir()) / f"memlab-{name}.lock"
    try:
        try:
            file = path.open("a")
        except PermissionError:  # another user's file can be locked, too
            file = path.open("r")
    except OSError:  # no such place: an unlocked GPU rather than none
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
