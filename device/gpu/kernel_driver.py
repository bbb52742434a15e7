"""The NVIDIA kernel driver's release and settings, read from its files in /proc."""

from __future__ import annotations

import re
from pathlib import Path

from memlab.errors import DeviceError

PROC_FOLDER = Path("/proc/driver/nvidia")
"""The folder of the driver's files."""


def driver_release() -> str:
    """Return the release of the NVIDIA kernel driver, e.g. `580.159.04`.

    Raises:
        DeviceError: No driver is loaded, or its version file has another format.
    """
    try:
        text = (PROC_FOLDER / "version").read_text(encoding="utf-8")
    except OSError:
        raise DeviceError("no NVIDIA driver is loaded") from None
    match = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", text)
    if match is None:
        raise DeviceError("the NVIDIA driver does not report its version")
    return match[1]


def counters_restricted() -> bool | None:
    """Whether only administrators may read hardware counters; None if the driver does not say."""
    try:
        text = (PROC_FOLDER / "params").read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r"^RmProfilingAdminOnly: (\d)", text, re.MULTILINE)
    return None if match is None else match[1] != "0"
