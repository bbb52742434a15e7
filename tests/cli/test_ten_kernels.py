"""Kernels that nobody tuned the emulator for, against NumPy and their addresses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from ten_kernels import KERNELS, Case

from memlab.cli.app import main

SIZES = (1, 1000, 40_003)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("make", KERNELS, ids=lambda make: make.__name__)
def test_a_kernel_is_verified_and_moves_what_its_addresses_say(
    make: Callable[[int], Case], n: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = make(n)

    code = main([*case.words(tmp_path), "--device", "h200", "--json", "--no-store"])

    printed = capsys.readouterr()
    assert (code, printed.err) == (0, "")
    run = json.loads(printed.out)
    assert run["verification"]["status"] == "passed"
    assert run["coverage"]["blocks_emulated"] == run["coverage"]["blocks_total"]
    counted = {
        f"{kind}_{unit}": run["counters"][f"global_{kind}_{unit}"]
        for kind in ("load", "store", "reduction")
        for unit in ("requests", "sectors")
    }
    assert counted == vars(case.traffic)
