"""What emulating a launch may take: how long, and how much of the host's memory.

Nothing is cut off by force: who works asks the deadline now and then, and memory is added up
before it is taken.
"""

from __future__ import annotations

import math
import os
import re
import resource
import time
from dataclasses import dataclass
from pathlib import Path

from memlab.errors import MemlabError, UsageError

EMULATION_TIMEOUT_S = 60.0
"""How long emulating one launch may take unless the user allows more. A launch on a GPU may take
as long: one option stands for both."""

RESERVED_BYTES = 2**28
"""Of what is free, kept for what is not laid out beforehand: models, references, the report."""

_SIZE_UNITS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


class EmulationTimeoutError(MemlabError):
    """The deadline has passed.

    Attributes:
        reached: How far the work came, in words.
    """

    def __init__(self, seconds: float, reached: str) -> None:
        super().__init__(
            f"the emulator's limit of {seconds:g} s is reached {reached}: "
            f"allow more with --timeout {2 * math.ceil(seconds)}, or use smaller sizes"
        )
        self.reached = reached


class EmulationMemoryError(UsageError):
    """Emulating a launch needs more memory than it may take."""


class Deadline:
    """A moment, some seconds from when it is made."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds until then; negative when it is over."""
        return self._end - time.monotonic()

    def has_passed(self) -> bool:
        """Whether it is over; quick enough to be asked after every few instructions."""
        return self.left() < 0

    def error(self, reached: str) -> EmulationTimeoutError:
        """The error for work that is not done in time; says how far it came, in words."""
        return EmulationTimeoutError(self.seconds, reached)


@dataclass(frozen=True)
class Budget:
    """What emulating one launch may take.

    Attributes:
        timeout_s: From when its memory is laid out, seconds.
        memory_bytes: Of the host's memory; None allows what is free.

    Raises:
        UsageError: A limit is not more than 0.
    """

    timeout_s: float = EMULATION_TIMEOUT_S
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.timeout_s < math.inf:
            raise UsageError(
                f"timeout must be more than 0 seconds and finite, got {self.timeout_s:g}: "
                "use --timeout 60"
            )
        if self.memory_bytes is not None and self.memory_bytes <= 0:
            raise UsageError(
                f"memory limit must be more than 0 bytes, got {self.memory_bytes}: "
                "use --memory-limit 4GiB"
            )

    def allowed_bytes(self) -> int:
        """How many bytes may be taken now."""
        if self.memory_bytes is not None:
            return self.memory_bytes
        return max(available_memory_bytes() - RESERVED_BYTES, 0)

    def check(self, needed: int, what: str) -> None:
        """Refuse work that needs more memory than is allowed.

        Args:
            needed: Bytes.
            what: What for, in words.

        Raises:
            TooLarge: Names the bytes needed and allowed.
        """
        allowed = self.allowed_bytes()
        if needed <= allowed:
            return
        if self.memory_bytes is None:
            limit, cure = "are free", "use smaller sizes, or a GPU with --device 0"
        else:
            limit = "are allowed"
            cure = f"use smaller sizes, or --memory-limit {-(-needed // 2**20)}MiB"
        raise EmulationMemoryError(
            f"emulating this launch needs {needed} bytes of host memory ({what}); "
            f"{allowed} {limit}: {cure}"
        )


def parse_size(text: str) -> int:
    """Read a number of bytes such as `4GiB`, `512MiB` or `1.5gib`.

    Raises:
        UsageError: It is no such thing.
    """
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,18})?)\s*([a-z]*)", text.strip().lower(), re.ASCII)
    if match is None or match[2] not in _SIZE_UNITS:
        raise UsageError(
            f"memory limit must be bytes, KiB, MiB or GiB, got {text!r}: use --memory-limit 4GiB"
        )
    return int(float(match[1]) * _SIZE_UNITS[match[2]])


def available_memory_bytes() -> int:
    """How much memory this process can still take.

    The least of what the host has available, what the container is allowed and what the process
    is (`ulimit -v`); those that cannot be told limit nothing.
    """
    return int(
        max(0, min(_host_available_bytes(), _cgroup_available_bytes(), _process_available_bytes()))
    )


def _host_available_bytes() -> float:
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    except OSError:
        found = None
    if found is not None:
        return int(found[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cgroup_available_bytes() -> float:
    """What control group version 2 leaves; the page cache in it can be given back."""
    folder = Path("/sys/fs/cgroup")
    try:
        most = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        cache = re.search(r"^inactive_file (\d+)", (folder / "memory.stat").read_text(), re.M)
    except (OSError, ValueError):
        return math.inf
    return math.inf if most == "max" else int(most) - used + (int(cache[1]) if cache else 0)


def _process_available_bytes() -> float:
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed == resource.RLIM_INFINITY:
        return math.inf
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        pages = 0
    return allowed - pages * os.sysconf("SC_PAGE_SIZE")
