"""Runs of user kernels on the first GPU, beside the same runs in the emulator."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import memlab
from memlab.device.datasheets import loader
from memlab.device.devices import open_device
from memlab.errors import DeviceError, UsageError
from memlab.roofline.run import Run

_OF_CACHES = ("l1_", "lrc_", "l2_", "dram_")
"""Counters that depend on sizes of caches, which may not be those of a datasheet."""


@cache
def missing_gpu() -> str:
    """Why no GPU can be used here; empty where one can."""
    try:
        open_device(0)
    except DeviceError as error:
        return str(error)
    return ""


def run_on_gpu(kernel: Any, **launch: Any) -> Run:
    """Run a kernel on the first GPU with a reference or expected arrays, and check both.

    Skips the test where a part of the package that compiles the kernel is missing.
    """
    try:
        run = memlab.run(kernel, **{**launch, "device": 0, "samples": 5})
    except UsageError as error:
        if "pip install" in str(error):  # a part of the kernel's package is missing, or too old
            pytest.skip(str(error))
        raise
    measured = run.measurement
    assert measured.device.kind == "cuda"
    assert measured.time.provenance == "measured"
    assert 0 < measured.time.median_s < 1
    found = measured.verification
    assert found.status == "passed", found.worst
    return run


def check_counters(run: Run, kernel: Any, **launch: Any) -> None:
    """Check that a run on a GPU counts what the emulated device of its architecture counts."""
    capability = run.measurement.device.compute_capability
    sheets = {name: loader.load_datasheet(name) for name in loader.datasheet_names()}
    device = next(
        (name for name, each in sheets.items() if each.compute_capability == capability), None
    )
    if device is None:
        pytest.skip(f"no datasheet has the compute capability {capability}")
    emulated = memlab.run(kernel, **{**launch, "device": device}).measurement
    measured = run.measurement
    assert measured.coverage == emulated.coverage
    assert (measured.block, measured.grid) == (emulated.block, emulated.grid)
    counted = measured.counters.by_name()
    assert any(counted.values())
    expected = emulated.counters.by_name()
    for name, count in expected.items():
        if not name.startswith(_OF_CACHES):
            assert counted[name] == count, name
