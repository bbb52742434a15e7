"""The limits of emulating a launch: its time and the host's memory.

The limits are cooperative: the emulator asks the deadline from time to time, and adds up memory
before it is allocated.
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
"""The default time limit of emulating a launch, and of a launch on a GPU, in seconds: one option
sets both."""

RESERVED_BYTES = 2**28
"""Free memory that is kept for data of unknown size: models, references and the report."""

_SIZE_UNITS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


class EmulationTimeoutError(MemlabError):
    """The deadline has passed.

    Attributes:
        reached: The progress of the work, in words.
    """

    def __init__(self, seconds: float, reached: str) -> None:
        super().__init__(
            f"the emulator's limit of {seconds:g} s is reached {reached}: "
            f"allow more with --timeout {2 * math.ceil(seconds)}, or use smaller sizes"
        )
        self.reached = reached


class EmulationMemoryError(UsageError):
    """Emulating a launch needs more memory than is allowed."""


class Deadline:
    """A moment, given in seconds from its construction."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def bring_forward(self) -> None:
        """Let the deadline pass now."""
        self._end = -math.inf

    def left(self) -> float:
        """Seconds until the deadline; negative after it."""
        return self._end - time.monotonic()

    def has_passed(self) -> bool:
        """Whether the deadline has passed; cheap enough to ask after every few instructions."""
        return self.left() < 0

    def error(self, reached: str) -> EmulationTimeoutError:
        """The error for work that is not done in time, with its progress in words."""
        return EmulationTimeoutError(self.seconds, reached)


@dataclass(frozen=True)
class Budget:
    """The limits of emulating one launch.

    Attributes:
        timeout_s: Time limit in seconds, from the layout of its memory.
        memory_bytes: Limit of the host's memory in bytes; None allows the free memory.

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
        """The bytes that may be allocated now."""
        if self.memory_bytes is not None:
            return self.memory_bytes
        return max(available_memory_bytes() - RESERVED_BYTES, 0)

    def check(self, needed: int, purpose: str) -> int:
        """Refuse work that needs more memory than is allowed; the bytes allowed are returned.

        Args:
            needed: Bytes.
            purpose: The use of the memory, in words.

        Raises:
            EmulationMemoryError: The message gives the bytes needed and allowed.
        """
        allowed = self.allowed_bytes()
        if needed <= allowed:
            return allowed
        if self.memory_bytes is None:
            limit, advice = "are free", "use smaller sizes, or a GPU with --device 0"
        else:
            limit = "are allowed"
            advice = f"use smaller sizes, or --memory-limit {-(-needed // 2**20)}MiB"
        raise EmulationMemoryError(
            f"emulating this launch needs {needed} bytes of host memory ({purpose}); "
            f"{allowed} {limit}: {advice}"
        )


def parse_size(text: str) -> int:
    """Read a number of bytes such as `4GiB`, `512MiB` or `1.5gib`.

    Raises:
        UsageError: The text is not a number of bytes.
    """
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,18})?)\s*([a-z]*)", text.strip().lower(), re.ASCII)
    if match is None or match[2] not in _SIZE_UNITS:
        raise UsageError(
            f"memory limit must be bytes, KiB, MiB or GiB, got {text!r}: use --memory-limit 4GiB"
        )
    return int(float(match[1]) * _SIZE_UNITS[match[2]])


def available_memory_bytes() -> int:
    """The memory that this process can still allocate, in bytes.

    This is the smallest of the host's available memory, the container's limit and the limit of the
    process (`ulimit -v`); limits that cannot be read are ignored.
    """
    return int(
        max(0, min(_host_available_bytes(), _cgroup_available_bytes(), _process_available_bytes()))
    )


def _host_available_bytes() -> float:
    try:
        text = Path("/proc/meminfo").read_bytes()
        available = re.search(rb"^MemAvailable:\s+(\d+) kB", text, re.M)
    except OSError:
        available = None
    if available is not None:
        return int(available[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cgroup_available_bytes() -> float:
    """The memory left by control group version 2; page cache counts as free."""
    folder = Path("/sys/fs/cgroup")
    try:
        most = (folder / "memory.max").read_text().strip()
        if most == "max":
            return math.inf
        used = int((folder / "memory.current").read_text())
        cache = re.search(r"^inactive_file (\d+)", (folder / "memory.stat").read_text(), re.M)
    except (OSError, ValueError):
        return math.inf
    return int(most) - used + (int(cache[1]) if cache else 0)


def _process_available_bytes() -> float:
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed == resource.RLIM_INFINITY:
        return math.inf
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        pages = 0
    return allowed - pages * os.sysconf("SC_PAGE_SIZE")
