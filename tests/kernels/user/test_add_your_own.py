"""The kernel of docs/add-your-own-kernel.md works as the page says, block by block."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paths import REPOSITORY

from memlab.device.devices import launch_limits, open_device
from memlab.kernels.kernel import Kernel
from memlab.kernels.launch import Launch
from memlab.roofline.analysis import bus_utilization

PAGE = REPOSITORY / "docs" / "add-your-own-kernel.md"
SOURCE, MODULE, ENTRY, LINE = re.findall(r"```\w+\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
EMULATED = open_device("h200")


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    module: dict[str, Any] = {}
    exec(MODULE, module)
    (made,) = eval(f"({ENTRY})", {"Kernel": Kernel, "reversing": SimpleNamespace(**module)})
    assert isinstance(made, Kernel)
    file = tmp_path / made.source_file
    file.write_text(SOURCE)
    return replace(made, source_file=str(file))  # an absolute path leads out of the package


def launch(kernel: Kernel, **values: int) -> Launch:
    return kernel.prepare(values, launch_limits(EMULATED.properties))


def test_line_of_the_test_passes(kernel: Kernel) -> None:
    ((name, cases),) = eval(f"{{{LINE}}}").items()

    assert name == kernel.name
    for sizes in cases:
        assert EMULATED.run(launch(kernel, **sizes), seed=0).verification.status == "passed"


def test_answer_is_the_one_given(kernel: Kernel) -> None:
    counters = EMULATED.run(launch(kernel, n=4096), seed=0).counters

    assert counters.global_load_sectors == 4 * counters.global_load_requests
    assert bus_utilization.load_utilisation(counters) == bus_utilization.BusUtilisation(1.0, 1.0)
