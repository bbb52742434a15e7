"""The kernel driver's release and its limit on counters, read from recorded files."""

from pathlib import Path

import pytest

from memlab.device.gpu import kernel_driver
from memlab.errors import DeviceError

# From a machine with an H200.
VERSION = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (x@y)\n"
    "GCC version:  gcc version 15.3.0 (GCC)\n"
)
PARAMS = "NvLinkDisable: 1\nRmProfilingAdminOnly: {}\nPreserveVideoMemoryAllocations: 0\n"


@pytest.mark.parametrize(("value", "restricted"), [("0", False), ("1", True)])
def test_the_driver_describes_itself(
    value: str, restricted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "version").write_text(VERSION)
    (tmp_path / "params").write_text(PARAMS.format(value))
    monkeypatch.setattr(kernel_driver, "PROC_FOLDER", tmp_path)

    assert kernel_driver.driver_release() == "580.159.04"
    assert kernel_driver.counters_restricted() is restricted


def test_no_driver_describes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_driver, "PROC_FOLDER", tmp_path / "missing")

    with pytest.raises(DeviceError, match="no NVIDIA driver is loaded"):
        kernel_driver.driver_release()
    assert kernel_driver.counters_restricted() is None
