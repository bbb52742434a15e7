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
    found = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", text)
    if found is None:
        raise DeviceError("the NVIDIA driver does not say its version")
    return found[1]


def counters_restricted() -> bool | None:
    """Whether only administrators may read hardware counters; None if the driver does not say."""
    try:
        text = (PROC_FOLDER / "params").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"^RmProfilingAdminOnly: (\d)", text, re.MULTILINE)
    return None if found is None else found[1] != "0"
