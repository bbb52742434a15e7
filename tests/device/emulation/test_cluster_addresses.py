"""Addresses of shared memory in clusters, as an H200 had them: `data/h200-cluster-*.csv`."""

from __future__ import annotations

import csv
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from paths import DATA

import memlab
from memlab.device.emulator.machine.memory import KernelFault

CUDA = (DATA / "h200-clusters.cu").read_text()


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open() as file:
        return list(csv.DictReader(file))


def launch(entry: str, blocks: int, args: list[Any], **more: Any) -> np.ndarray[Any, Any]:
    cluster = {"cluster": blocks} if blocks else {}
    source = memlab.source(CUDA, entry)
    run = memlab.run(
        source, grid=blocks or 1, block=32, args=args, device="h200", **cluster, **more
    )
    return run.outputs["out"]


@pytest.mark.parametrize("blocks", [0, 2, 4])
def test_addresses_have_the_rank_of_the_block(blocks: int) -> None:
    args = [memlab.out(64 * max(blocks, 1), np.uint64), np.zeros(1, np.uint64)]
    out = launch("addresses", blocks, args, shared=1024).reshape(-1, 64)
    measured = [row for row in rows("h200-cluster-addresses.csv") if int(row["cluster"]) == blocks]
    assert len(measured) == 43 * max(blocks, 1)
    for row in measured:
        value = int(out[int(row["rank"]), int(row["number"])])
        is_address = row["what"].startswith(("mov", "cvta", "mapa", "generic", "dynamic"))
        found = value >> 24 & 0xFF if is_address else value
        assert found == int(row["value"]), row


ACCESSES = [
    (name, list(group))
    for name, group in groupby(rows("h200-cluster-accesses.csv"), key=lambda row: row["access"])
]


@pytest.mark.parametrize(
    ("access", "measured"),
    [
        pytest.param(name, group, id=name, marks=[pytest.mark.slow] * (number % 3 != 1))
        for number, (name, group) in enumerate(ACCESSES)
    ],
)
def test_accesses_go_to_the_block_that_the_address_names(
    access: str, measured: list[dict[str, str]]
) -> None:
    for row in measured:
        form, variant, rank, blocks = (
            int(row[name]) for name in ("form", "variant", "rank", "cluster")
        )
        given = np.arange(0xF000, 0xF100, dtype=np.uint32)
        args = [memlab.out(99, np.uint32), given, form, variant, rank]
        if row["loaded"] == "fault":
            with pytest.raises(KernelFault):
                launch("accesses", blocks, args)
            continue
        loaded, *words = launch("accesses", blocks, args).tolist()
        assert loaded == int(row["loaded"], 16), row
        changed = [
            f"{block}:{place}={value:x}"
            for block in range(max(blocks, 1))
            for place, value in enumerate(words[48 * block : 48 * block + 48])
            if value != 0x1000 * (block + 1) + place
        ]
        assert " ".join(changed) == row["changed"], row
        if row["arrived"]:
            assert " ".join(map(str, words[96 : 96 + blocks])) == row["arrived"], row
