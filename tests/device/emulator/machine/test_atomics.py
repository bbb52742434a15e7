"""Atomic operations of many lanes: as if the lanes came one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx import kernel, run

LANES, PLACES = 80, 8
FUNCTIONS: list[tuple[str, str, Callable[[Any, Any], Any]]] = [
    ("add.u32", "u4", np.add),
    ("min.s64", "i8", np.minimum),
    ("add.f32", "f4", np.add),
    ("add.noftz.f16", "f2", np.add),
    ("xor.b32", "u4", np.bitwise_xor),
    ("inc.u32", "u4", lambda old, top: np.where(old >= top, 0, old + 1).astype("u4")),
    ("exch.b64", "u8", lambda old, value: value),
]


def atomic(operation: str, space: str, bits: int, *sources: str) -> str:
    """Each lane whose place is not negative works on an element of `all`, and keeps the old one."""
    size = bits // 8
    values = "".join(
        f"ld.param.u64 %a2, [{name}]; mul.wide.u32 %a3, %r1, {size}; add.u64 %a2, %a2, %a3;"
        f"ld.global.b{bits} %{name}, [%a2];"
        for name in sources
    )
    registers = "".join(f".reg .b{bits} %{name};" for name in (*sources, "old", "cell"))
    # Shared memory is filled by the first lanes before, and emptied by them afterwards.
    own = "mov.u64 %a1, cells;" if space == "shared" else "mov.u64 %a1, %a4;"
    copies = [
        f"@%first ld.global.b{bits} %cell, [%a6]; @%first st.shared.b{bits} [%a7], %cell;",
        f"@%first ld.shared.b{bits} %cell, [%a7]; @%first st.global.b{bits} [%a6], %cell;",
    ]
    fill, empty = copies if space == "shared" else ("", "")
    return kernel(
        f"""
        .reg .pred %p<3>; .reg .pred %first; .reg .b32 %r<4>; .reg .b64 %a<9>; {registers}
        .shared .align 8 .b8 cells[{PLACES * size}];
        mov.u32 %r1, %tid.x; ld.param.u64 %a4, [all]; {own}
        setp.lt.u32 %first, %r1, {PLACES}; mul.wide.u32 %a3, %r1, {size}; add.u64 %a6, %a4, %a3;
        mov.u64 %a7, cells; add.u64 %a7, %a7, %a3;
        {fill} bar.sync 0;
        ld.param.u64 %a2, [where]; mul.wide.u32 %a3, %r1, 4; add.u64 %a2, %a2, %a3;
        ld.global.u32 %r2, [%a2]; setp.lt.s32 %p1, %r2, 0; @%p1 bra END;
        {values}
        mul.wide.u32 %a3, %r2, {size}; add.u64 %a1, %a1, %a3;
        atom.{space}.{operation} %old, [%a1], {", ".join(f"%{name}" for name in sources)};
        ld.param.u64 %a2, [found]; mul.wide.u32 %a3, %r1, {size}; add.u64 %a2, %a2, %a3;
        st.global.b{bits} [%a2], %old;
        END: bar.sync 0; {empty} ret;
        """,
        ", ".join(f".u64 {name}" for name in ("all", "where", "found", *sources)),
    )


@settings(deadline=None, max_examples=25)
@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(("operation", "dtype", "function"), FUNCTIONS)
@given(
    places=st.lists(st.integers(-1, PLACES - 1), min_size=LANES, max_size=LANES),
    reach=st.sampled_from([1, 2, 8]),
    seed=st.integers(0, 99),
)
def test_atomics_apply_in_lane_order(
    operation: str,
    dtype: str,
    function: Callable[[Any, Any], Any],
    space: str,
    places: list[int],
    reach: int,
    seed: int,
) -> None:
    where = np.fmod(places, reach).astype("i4")
    values = (np.random.default_rng(seed).random(LANES) * 1000).astype(dtype)
    elements = np.arange(PLACES).astype(dtype)
    expected, found = elements.copy(), np.zeros(LANES, dtype)
    for lane, place in enumerate(where):
        if place >= 0:
            found[lane] = expected[place]
            own = slice(place, place + 1)
            expected[own] = function(expected[own], values[lane : lane + 1])

    done = run(
        atomic(operation, space, 8 * values.itemsize, "value"),
        {"all": elements, "where": where, "found": np.zeros(LANES, dtype), "value": values},
        block=(LANES, 1, 1),
    )

    np.testing.assert_array_equal(done["found"], found)
    np.testing.assert_array_equal(done["all"], expected)


@settings(deadline=None, max_examples=50)
@given(
    places=st.lists(st.integers(-1, 5), min_size=LANES, max_size=LANES),
    compared=st.lists(st.integers(0, 3), min_size=LANES, max_size=LANES),
    stored=st.lists(st.integers(0, 3), min_size=LANES, max_size=LANES),
)
def test_compare_and_swap_applies_in_lane_order(
    places: list[int], compared: list[int], stored: list[int]
) -> None:
    elements = np.arange(PLACES, dtype="u4") % 4
    expected, found = elements.copy(), [0] * LANES
    for lane, (place, compare, new) in enumerate(zip(places, compared, stored, strict=True)):
        if place >= 0:
            found[lane] = expected[place]
            if expected[place] == compare:
                expected[place] = new

    done = run(
        atomic("cas.b32", "global", 32, "compared", "stored"),
        {
            "all": elements,
            "where": np.array(places, "i4"),
            "found": np.zeros(LANES, "u4"),
            "compared": np.array(compared, "u4"),
            "stored": np.array(stored, "u4"),
        },
        block=(LANES, 1, 1),
    )

    np.testing.assert_array_equal(done["found"], found)
    np.testing.assert_array_equal(done["all"], expected)
