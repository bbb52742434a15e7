"""Arms that a compiler moved out of the way meet the others at their join all the same."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx import kernel, run

from memlab.device.compiler.compile import compile_kernel
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.emulator.program.code_layout import find_block_order
from memlab.device.emulator.program.program import load_program
from memlab.device.emulator.ptx.parser import parse_ptx

START = """
.reg .pred %p<3>; .reg .b32 %r<9>; .reg .b32 %n<64>; .reg .b64 %a<4>;
mov.u32 %r1, %tid.x; ld.param.u64 %a1, [in]; ld.param.u64 %a2, [out]; mul.wide.u32 %a3, %r1, 4;
add.u64 %a1, %a1, %a3; add.u64 %a2, %a2, %a3; ld.global.u32 %r0, [%a1]; mov.u32 %r5, 7;
"""
END = "st.global.u32 [%a2], %r5;\n"
# Whoever has not come yet is seen by those who have.
MEET = "activemask.b32 %r6; mad.lo.u32 %r5, %r5, 31, %r6;\n"


@dataclass(frozen=True)
class Arm:
    """What some lanes do: in the place of the program where it stands, or moved to its end."""

    bit: int
    moved: bool
    body: tuple[Arm | Loop, ...]
    leaves: bool  # the loop that it is in, if any


@dataclass(frozen=True)
class Loop:
    bit: int
    body: tuple[Arm | Loop, ...]


def parts(inner: st.SearchStrategy[Arm | Loop]) -> st.SearchStrategy[Arm | Loop]:
    bodies, bits = st.lists(inner, max_size=2).map(tuple), st.integers(0, 7)
    return st.one_of(
        st.builds(Arm, bits, st.booleans(), bodies, st.booleans()), st.builds(Loop, bits, bodies)
    )


LEAVES = st.builds(Arm, st.integers(0, 7), st.booleans(), st.just(()), st.booleans())
PROGRAMS = st.lists(st.recursive(LEAVES, parts, max_leaves=6), min_size=1, max_size=3)


def text(program: list[Arm | Loop], may_move: bool) -> str:
    """The program; where arms may not move, all lie in front of their joins."""
    names, behind = itertools.count(), [""]

    def of(body: tuple[Arm | Loop, ...], leave: str) -> str:
        return MEET + "".join(part(each, leave) for each in body)

    def part(each: Arm | Loop, leave: str) -> str:
        name = next(names)
        decide = f"shr.u32 %r7, %r0, {each.bit}; and.b32 %r7, %r7, 1;"
        if isinstance(each, Loop):
            inside = of(each.body, f"leave{name}")
            return (
                f"{decide} add.u32 %n{name}, %r7, 1;\nloop{name}: {inside}"
                f"sub.u32 %n{name}, %n{name}, 1; setp.ne.u32 %p1, %n{name}, 0; "
                f"@%p1 bra loop{name};\nleave{name}: {MEET}"
            )
        onward = leave if each.leaves and leave else f"join{name}"
        inside = f"{of(each.body, leave)} bra.uni {onward};\n"
        decide += "setp.ne.u32 %p1, %r7, 0;"
        if each.moved and may_move:
            behind[0] += f"arm{name}: {inside}"
            return f"{decide} @%p1 bra arm{name};\njoin{name}: {MEET}"
        return f"{decide} @!%p1 bra join{name};\n{inside}join{name}: {MEET}"

    main = of(tuple(program), "") + END + "ret;\n"
    return START + main + behind[0]


def results(body: str) -> list[int]:
    values = np.random.default_rng(1).integers(0, 256, 64).astype("u4")
    arrays = {"in": values, "out": np.zeros(64, "u4")}
    done = run(kernel(body, ".u64 in, .u64 out"), arrays, grid=(1, 1, 1), block=(64, 1, 1))
    found: list[int] = done["out"].tolist()
    return found


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(PROGRAMS)
def test_moved_arms_do_not_change_results(program: list[Arm | Loop]) -> None:
    assert results(text(program, may_move=True)) == results(text(program, may_move=False))


UNLIKELY = """extern "C" __global__ void k(const float* a, float* b) {
  int t = threadIdx.x;
  float x = a[t];
  if (t == 5) EXPECTED {
    b[64] = x;
    x = a[t + 1];
    __threadfence();
  }
  b[t] = x + __shfl_xor_sync(0xffffffffu, x, 1);
}"""


@pytest.mark.parametrize("expected", ["", "[[unlikely]]"])
def test_lanes_reconverge_after_a_moved_arm_before_a_shuffle(expected: str) -> None:
    source = UNLIKELY.replace("EXPECTED", expected)
    ptx = compile_kernel(TranslationUnit(source, "k.cu", (9, 0), options=("--std=c++20",)), "k").ptx
    program, before = load_program(parse_ptx(ptx), "k"), np.arange(65, dtype="f4") ** 2
    a, b = program.parameters
    after = run(ptx, {a: before, b: np.zeros(65, "f4")}, block=(64, 1, 1))[b]

    taken = before[:64].copy()
    taken[5] = before[6]
    assert after[:64].tolist() == (taken + taken[np.arange(64) ^ 1]).tolist()
    assert (find_block_order(program.steps) is None) == (not expected)
