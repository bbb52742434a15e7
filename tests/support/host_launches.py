"""The launches that the host code of a file tells."""

from __future__ import annotations

from typing import Any

from memlab.kernels.host_code.machine import RecordedLaunch
from memlab.kernels.host_code.reading import read_host_code


def read_launches(*file: Any, **known: Any) -> tuple[RecordedLaunch, ...]:
    """The launches of a file; arguments as of `read_host_code`."""
    return read_host_code(*file, **known).launches
