"""Where the sectors of each memory instruction are served."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets import loader
from memlab.device.devices import launch_limits
from memlab.device.emulation.device import emulate
from memlab.device.emulation.execution import Execution
from memlab.kernels.catalog import find_kernel

H200 = replace(loader.load_datasheet("h200"), dram_launch_bytes=None)
"""An H200 whose launches read nothing but what their threads access."""


@pytest.mark.parametrize("name", ["blur", "filter-local", "permuted"])
def test_every_access_has_shares_that_add_up(name: str) -> None:
    launch = find_kernel(name).prepare({"n": 8192} if name != "blur" else {}, launch_limits(H200))
    compiled = compile_launch(launch, H200.compute_capability)

    emulation = emulate(launch, compiled, H200, seed=1)

    steps = Execution.of(launch, compiled, 1).program.steps
    spaces = ("global", "generic", "local")
    accesses = {i for i, s in enumerate(steps) if s.row.space in spaces and s.row.kind == "load"}
    accesses |= {i for i, s in enumerate(steps) if s.row.space in spaces and s.row.kind == "store"}
    assert set(emulation.levels) == accesses
    for index, level in emulation.levels.items():
        assert level.l1 + level.l2 + level.dram == pytest.approx(1)
        if steps[index].row.kind == "store":
            assert level.l1 == 0
    counters = emulation.counters
    if name == "permuted":  # no instruction but one loads
        (load,) = (level for i, level in emulation.levels.items() if steps[i].row.kind == "load")
        from_l2 = counters.l2_read_sectors / counters.global_load_sectors
        assert load.l2 + load.dram == pytest.approx(from_l2)
        assert load.dram * counters.global_load_sectors * 32 == counters.dram_read_bytes
