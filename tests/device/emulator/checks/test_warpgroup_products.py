"""Registers of products of warpgroups: planted mistakes beside their mended twins."""

import numpy as np
import pytest
from ptx import check, kernel, numbered

FENCE = "wgmma.fence.sync.aligned;"
COMMIT = "wgmma.commit_group.sync.aligned;"
WAIT = "wgmma.wait_group.sync.aligned 0;"
WAIT_1 = "wgmma.wait_group.sync.aligned 1;"
D, E = "{%d0, %d1, %d2, %d3}", "{%e0, %e1, %e2, %e3}"
A = "{%a0, %a1, %a2, %a3}"
PRODUCT, OTHER, FROM_A = (
    f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {d}, {a}, %x, 1, 1, 1{end};"
    for d, a, end in ((D, "%x", ", 0, 0"), (E, "%x", ", 0, 0"), (D, A, ", 0"))
)
WIDER = (
    "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
    "{%d0, %d1, %d2, %d3, %e0, %e1, %e2, %e3}, %x, %x, 1, 1, 1, 0, 0;"
)
USE, USE_E = "st.global.f32 [%p], %d0;", "st.global.f32 [%p], %e0;"
LOAD_D, LOAD_A = "ld.global.f32 %d1, [%p];", "ld.global.b32 %a1, [%p];"
ADD_D, ADD_A = "add.f32 %d1, %d1, %d1;", "add.u32 %a1, %a1, 1;"
COPY, USE_COPY = "mov.f32 %c0, %d0;", "st.global.f32 [%p], %c0;"
LOOP = "mov.u32 %n, 0; again:"
AGAIN = "add.u32 %n, %n, 1; setp.lt.u32 %more, %n, 3; @%more bra again;"

WRONG = {
    "no wait": ([FENCE, PRODUCT, COMMIT, USE, WAIT], "missing wait", 4),
    "a wait for older groups": ([FENCE, PRODUCT, COMMIT, WAIT_1, USE], "missing wait", 5),
    "no commit": ([FENCE, PRODUCT, WAIT, USE], "missing wait", 4),
    "of the last of two": (
        [FENCE, PRODUCT, COMMIT, OTHER, COMMIT, WAIT_1, USE_E],
        "missing wait",
        7,
    ),
    "a sum of one": ([FENCE, PRODUCT, COMMIT, ADD_D, WAIT, USE], "missing wait", 4),
    "a load into one": ([FENCE, PRODUCT, COMMIT, LOAD_D, WAIT, USE], "missing wait", 4),
    "a new value": ([FENCE, PRODUCT, COMMIT, "mov.f32 %d0, 0f00000000;", WAIT], "missing wait", 4),
    "of a copy": ([FENCE, PRODUCT, COMMIT, COPY, USE_COPY, WAIT], "missing wait", 5),
    "a factor that changes": ([FENCE, FROM_A, COMMIT, ADD_A, WAIT, USE], "missing wait", 4),
    "another shape": ([FENCE, PRODUCT, WIDER, COMMIT, WAIT, USE], "missing wait", 3),
    "in the next turn": ([FENCE, LOOP, ADD_D, PRODUCT, COMMIT, AGAIN, WAIT], "missing wait", 3),
    "no fence": ([PRODUCT, COMMIT, WAIT, USE], "missing fence", 1),
    "a load after it": ([FENCE, LOAD_D, PRODUCT, COMMIT, WAIT, USE], "missing fence", 3),
    "a factor loaded after it": ([FENCE, LOAD_A, FROM_A, COMMIT, WAIT, USE], "missing fence", 3),
}
RIGHT = {
    "one": [FENCE, PRODUCT, COMMIT, WAIT, USE],
    "of the first of two": [FENCE, PRODUCT, COMMIT, OTHER, COMMIT, WAIT_1, USE],
    "a sum behind the wait": [FENCE, PRODUCT, COMMIT, WAIT, ADD_D, USE],
    "a load before the fence": [LOAD_D, LOAD_A, FENCE, FROM_A, COMMIT, WAIT, USE],
    "a fence behind a load": [FENCE, PRODUCT, COMMIT, WAIT, LOAD_D, FENCE, PRODUCT, COMMIT, WAIT],
    "a copy used behind the wait": [FENCE, PRODUCT, COMMIT, COPY, WAIT, USE_COPY],
    "one accumulator": [FENCE, PRODUCT, PRODUCT, COMMIT, FROM_A, COMMIT, WAIT, USE],
    "a factor that changes later": [FENCE, FROM_A, COMMIT, WAIT, ADD_A, USE],
    "a factor that is read": [FENCE, FROM_A, COMMIT, "st.global.b32 [%p], %a0;", WAIT, USE],
    "another shape behind the wait": [FENCE, PRODUCT, COMMIT, WAIT, WIDER, COMMIT, WAIT, USE],
    "turns": [LOOP, FENCE, PRODUCT, COMMIT, WAIT_1, AGAIN, WAIT, ADD_D, USE],
}


def mistakes(lines: list[str]) -> list[tuple[str, int, int]]:
    """What synccheck finds: the kind, the line and how many threads."""
    declarations = (
        ".shared .align 128 .b8 m[4096]; .reg .b64 %p, %x; .reg .f32 %d<4>, %e<4>, %c0;"
        ".reg .b32 %a<4>, %n, %t; .reg .pred %more; ld.param.u64 %p, [out];"
        "mov.u64 %x, 8 + (8 << 16) + (16 << 32);"
    ).replace("8 + (8 << 16) + (16 << 32)", str(8 << 16 | 16 << 32))
    zeros = "".join(f"mov.f32 %{n}{i}, 0f00000000;" for n in "de" for i in range(4))
    zeros += "".join(f"mov.b32 %a{i}, 0;" for i in range(4))
    body = "\n".join([f".loc 1 100 1\n{declarations}{zeros}", numbered("\n".join(lines)), "ret;"])
    text = kernel(body, ".u64 out", target="sm_90a")
    found = check(text, {"out": np.zeros(1, np.float32)}, block=128, tools=["synccheck"])
    return [(mistake.kind, mistake.at[0], mistake.count) for mistake in found.mistakes]


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_found_once(name: str) -> None:
    lines, kind, line = WRONG[name]
    # A path leads to the mistake from the second turn on; the first one is counted too.
    times = 3 if name == "in the next turn" else 1
    assert mistakes(lines) == [(kind, line, 128 * times)]


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs_are_silent(name: str) -> None:
    assert mistakes(RIGHT[name]) == []


def test_what_is_not_executed_is_no_mistake() -> None:
    skipped = ["setp.eq.u32 %more, 0, 0; @%more bra past;", USE, "past:"]
    assert mistakes([FENCE, PRODUCT, COMMIT, *skipped, WAIT, USE]) == []
