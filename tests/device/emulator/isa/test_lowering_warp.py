"""The machine code of shuffles, votes, matches and reductions against NumPy."""

import itertools

import numpy as np
import pytest
from lowered_rows import Array, Case, CompiledRows, lane_dtype

from memlab.device.emulator.isa.table import TABLE
from tests.reference.table import reference

WARPS = 64
MASKS = (0xFFFF_FFFF, 0xFFFF_0000, 0)
EVERY_LANE = MASKS[0]
SHUFFLES = [opcode for opcode in TABLE if opcode.startswith("shfl")]
OTHERS = [
    opcode
    for opcode, row in TABLE.items()
    if row.kind == "warp" and opcode.startswith(("vote", "activemask", "match", "elect", "redux"))
]


def member_masks(rng: np.random.Generator) -> Array:
    """Member masks of warps, shape (warps, 32): full, alike, in groups, and without any order."""
    masks = rng.integers(0, 1 << 32, (WARPS, 32))
    masks[:8] = EVERY_LANE
    masks[8:24] = masks[8:24, :1]
    groups = rng.integers(0, 3, (24, 32))
    masks[24:48] = np.take_along_axis(masks[24:48], groups, axis=1)
    # Groups that name exactly themselves, as after a divergent branch, and one that names nobody.
    for warp in range(40, 48):
        for group in range(3):
            lanes = groups[warp - 24] == group
            masks[warp, lanes] = (np.uint64(1) << np.flatnonzero(lanes).astype(np.uint64)).sum()
    masks[48] = 0
    return masks.astype(np.uint32)


def active_lanes(rng: np.random.Generator) -> Array:
    """Which lanes execute an instruction, shape (warps, 32): all, some, a single one, none."""
    active = rng.random((WARPS, 32)) < rng.choice([0.1, 0.5, 0.9], (WARPS, 1))
    active[::3] = True
    active[1] = np.arange(32) == 17
    active[2] = False
    return active


def values(ptx_type: str, rng: np.random.Generator) -> Array:
    """Numbers of warps, shape (warps, 32): alike in many lanes, and the ends of the range."""
    dtype = lane_dtype(ptx_type)
    if dtype == np.bool_:
        return rng.random((WARPS, 32)) < rng.choice([0, 0.1, 0.5, 0.9, 1], (WARPS, 1))
    ends = np.iinfo(dtype)
    numbers = rng.integers(ends.min, ends.max, (WARPS, 32), dtype, endpoint=True)
    numbers[::4] = rng.choice(np.array([0, 1, ends.min, ends.max], dtype), (WARPS // 4, 32))
    numbers[1::4] = numbers[1::4, :1]
    numbers[5::8, 30] += 1
    return numbers


def assert_as_in_numpy(rows: CompiledRows, case: Case, sources: list[Array], active: Array) -> None:
    """Compare the lanes that execute the instruction."""
    found = rows.run(case, [source.reshape(-1) for source in sources], active.reshape(-1))
    lanes = list(sources)
    for place, number in case.known:
        lanes.insert(place, np.full(active.shape, number, lane_dtype(case.of[place])))
    expected = reference(case.opcode)(active, *lanes)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for result, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(result.reshape(-1, 32)[active], wanted[active])


@pytest.mark.parametrize("opcode", SHUFFLES)
def test_shuffles_by_registers(opcode: str) -> None:
    rng = np.random.default_rng(1)
    steps, bounds = rng.integers(0, 1 << 32, (2, WARPS, 32))
    # Widths of 32, 16, 8, 4 and 2 lanes, as `__shfl_sync` writes them; then any bits.
    widths = 1 << rng.integers(1, 6, (WARPS // 2, 1))
    bounds[: WARPS // 2] = (32 - widths) << 8 | (0 if ".up" in opcode else 31)
    sources = [values("b32", rng), steps.astype("u4"), bounds.astype("u4"), member_masks(rng)]
    rows = CompiledRows([Case(opcode), *(Case(opcode, ((3, mask),)) for mask in MASKS)])

    assert_as_in_numpy(rows, Case(opcode), sources, active_lanes(rng))
    for mask in MASKS:
        assert_as_in_numpy(rows, Case(opcode, ((3, mask),)), sources[:3], active_lanes(rng))


@pytest.mark.parametrize("opcode", SHUFFLES)
def test_shuffles_by_constants(opcode: str) -> None:
    rng = np.random.default_rng(2)
    steps, bounds = (0, 1, 5, 16, 33), (0x1F, 0x0, 0x181F, 0x1C03)
    known = [((1, step), (2, bound)) for step, bound in itertools.product(steps, bounds)]
    by_register = [Case(opcode, case) for case in known]
    by_constant = [Case(opcode, (*case, (3, mask))) for case in known for mask in MASKS[:2]]
    rows = CompiledRows(by_register + by_constant)
    for case in by_register:
        assert_as_in_numpy(rows, case, [values("b32", rng), member_masks(rng)], active_lanes(rng))
    for case in by_constant:
        assert_as_in_numpy(rows, case, [values("b32", rng)], active_lanes(rng))


@pytest.mark.parametrize("opcode", OTHERS)
def test_the_members_of_a_warp(opcode: str) -> None:
    rng = np.random.default_rng(3)
    *of, mask = TABLE[opcode].of or [""]
    sources = [values(kind, rng) for kind in of]
    by_constant = [Case(opcode, ((len(of), mask),)) for mask in MASKS] if mask else []
    rows = CompiledRows([Case(opcode), *by_constant])
    masks = [member_masks(rng)] if mask else []

    assert_as_in_numpy(rows, Case(opcode), sources + masks, active_lanes(rng))
    for case in by_constant:
        assert_as_in_numpy(rows, case, sources, active_lanes(rng))
