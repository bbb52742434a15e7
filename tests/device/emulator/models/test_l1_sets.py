"""Which lines an L1 replaces, against those of an H200: `benchmarks/replaced_lines.cu`."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from replayed_steps import step

from memlab.device.emulator.models import cache_code
from memlab.device.emulator.models.cache_replay import (
    LineAccesses,
    replay_accesses,
    schedule_blocks,
)
from memlab.device.emulator.models.caches import CacheGeometry
from memlab.device.emulator.models.empty_caches import EmptyCaches

LINE, WHOLE = 128, 15
TABLE = Path(__file__).parents[4] / "docs" / "results" / "h200-replaced-lines.csv"
CARVEOUTS_KIB = {"6": 32, "13": 64, "27": 100, "42": 164, "57": 196, "71": 228}
"""What shared memory takes of 256 KiB, by what was asked for."""
KINDS = {
    "ld": step("load"),
    "ld.nc": step("load"),
    "st": step("store"),
    "st.cg": step("store"),
    "cp.async.ca": step("load"),
    "ld.cs": step("load", evict_first=True),
    "ld.L1::evict_first": step("load", evict_first=True),
    "st.cs": step("store", evict_first=True),
    "ld.cg": step("load", bypass_l1=True),
    "ld.relaxed.gpu": step("load", bypass_l1=True),
    "ld.volatile": step("load", bypass_l1=True),
    "cp.async.cg": step("load", bypass_l1=True),
    "red.add": step("reduce"),
    "atom.add": step("atomic"),
}
"""Each access as the replay sees it."""


def rows(experiments: str) -> Iterator[dict[str, str]]:
    with TABLE.open(newline="") as file:
        yield from (row for row in csv.DictReader(file) if row["experiment"] in experiments.split())


def hits_of(
    lines: NDArray[np.int64], sectors: NDArray[np.int64], kinds: list[str], l1_kib: int
) -> NDArray[np.bool_]:
    """Whether each access of one warp finds all its sectors in the L1."""
    count = len(lines)
    given = LineAccesses(
        block=np.zeros(count, np.int64),
        time=np.arange(count),
        index=np.arange(count, dtype=np.int32),
        place=lines * 16 + sectors,
        ends=np.array([count]),
        factor=1,
    )
    geometry = CacheGeometry(1, 1, l1_kib * 1024, 2**12 * LINE, 32)
    steps = [KINDS[kind] for kind in kinds]
    replayed = replay_accesses(given, schedule_blocks(given.ends, geometry), steps, geometry)
    hits = replayed.first_wave.l1_hits
    found: NDArray[np.bool_] = hits == [mask.bit_count() for mask in sectors.tolist()]
    return found


def load_lines(
    lines: NDArray[np.int64], l1_kib: int, is_used_again: bool = False
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Whether each load, of one sector, finds it in the L1, and the lines that are there then."""
    caches, missed = EmptyCaches(), np.zeros(len(lines), np.bool_)
    cache = caches.add_l1s(1, l1_kib * 1024, 1)
    sectors, windows = lines * 4, np.arange(len(lines))
    again = np.full(len(lines), is_used_again)
    addresses = [array.ctypes.data for array in (cache, windows, sectors, again)]
    cache_code.function("find_l1_misses", 6)(*addresses, len(lines), missed.ctypes.data)
    return ~missed, caches.lines[0]["number"].ravel()


def sets_of(lines: NDArray[np.int64]) -> NDArray[np.int64]:
    sets = np.empty_like(lines)
    cache_code.function("find_sets", 3)(lines.ctypes.data, len(lines), sets.ctypes.data)
    return sets


def lines_of_one_set() -> NDArray[np.int64]:
    return np.flatnonzero(sets_of(np.arange(1 << 15)) == 100)[:8]


def test_lines_that_replace_each_other_are_of_one_set() -> None:
    groups = [np.array(row["accesses"].split(), np.int64) for row in rows("lines")]

    assert len(groups) > 12
    assert all(len(set(sets_of(lines))) == 1 for lines in groups)
    assert len({sets_of(lines)[0] for lines in groups}) > 12
    assert sorted(sets_of(512 * 77 + np.arange(512))) == list(range(512))


@pytest.mark.parametrize("again", [False, True])
def test_lines_that_are_used_again_replace_those_that_were(again: bool) -> None:
    """Two lines of a set that were found again stay, while three others replace each other.

    Unless these are used several times before the next one comes, as by several lanes and loads.
    """
    lines = lines_of_one_set()
    hits, _ = load_lines(
        np.concatenate([np.tile(lines[:2], 3), np.tile(lines[2:5], 4)]), 228, again
    )

    assert hits[6:].tolist() == [False] * 3 + [again] * 9


@pytest.mark.parametrize("access", KINDS)
def test_lines_of_a_set_replace_each_other_as_in_hardware(access: str) -> None:
    """One access in three is of the kind. Of the hints, an H200's rule is known in part."""
    of_set, agree, complete = lines_of_one_set(), [], []
    for row in rows("set"):
        if row["access"] != access:
            continue
        sectored = row["sectors"] == "1"
        letters = row["accesses"][:: 2 if sectored else 1]
        lines = of_set[[ord(each.lower()) - ord("a") for each in letters]]
        masks = [1 << int(each) for each in row["accesses"][1::2]] if sectored else [WHOLE] * 40
        kinds = ["ld" if each.isupper() else access for each in letters]
        found = hits_of(lines, np.array(masks), kinds, 240)
        plain = np.array([kind == "ld" for kind in kinds])
        same = (found == (np.array(list(row["hits"])) == "1"))[plain]
        agree += same.tolist()
        complete.append(same.all())

    exact = access in ("ld", "ld.nc", "st", "st.cg", "cp.async.ca", "cp.async.cg")
    assert np.mean(agree) >= (1 if exact else 0.95)
    assert np.mean(complete) >= (1 if exact else 0.4)


@pytest.mark.parametrize("experiment", ["again", "random", "rounds", "full"])
def test_all_sets_together_keep_as_many_lines_as_in_hardware(experiment: str) -> None:
    """With L1s of 28 to 224 KiB; in shares of the lines that are read."""
    differences = []
    for row in rows(experiment):
        lines, reads, others = (int(row[name]) for name in ("lines", "reads", "others"))
        passes = [int(hits) for hits in row["hits"].split()]
        adjacent, elsewhere = 8192 + np.arange(lines), (1 << 20) + np.arange(others)
        if experiment == "random":
            adjacent = np.random.default_rng(3).choice(1 << 22, lines, replace=False)
        parts = [adjacent] * len(passes)
        if experiment == "rounds":
            parts = [adjacent + number // reads * lines for number in range(len(passes))]
        if experiment == "full":
            parts = [*[adjacent] * reads, elsewhere]
        l1_kib = 256 - CARVEOUTS_KIB[row["carveout_percent"]]
        hits, held = load_lines(np.concatenate(parts), l1_kib)
        if experiment == "full":
            parts = [adjacent, elsewhere]
            counts = [np.isin(part, held).sum() for part in parts]
        else:
            counts = list(hits.reshape(len(parts), -1).sum(axis=1))
        sizes = [len(part) for part in parts]
        differences += ((np.array(counts) - passes) / sizes).tolist()

    assert np.abs(differences).mean() < 0.035
    assert abs(np.mean(differences)) < 0.015
