"""Ranges of blocks that take the same decisions, worked out by hand for short programs."""

from __future__ import annotations

import numpy as np
import pytest
from ptx import kernel, run

from memlab.device.emulator.program.program import load_program
from memlab.device.emulator.ptx.parser import parse_ptx
from memlab.device.emulator.sampling.affine_values import AffineValues

# %r1 is x, the index of the block among 1000; %r3 is the thread's index among 32.
START = """
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<32>; .reg .b64 %a<16>; .reg .f32 %f<9>;
.shared .align 8 .b8 kept[256];
mov.u32 %r1, %ctaid.x; mov.u32 %r3, %tid.x; ld.param.u64 %a1, [out];
setp.lt.u32 %p5, %r3, 5; mov.u32 %r30, kept; shl.b32 %r31, %r3, 2; add.u32 %r31, %r31, %r30;
"""
END = "@%p1 bra done; done: ret;"
BLOCKS = 1000


def followed(code: str, *chunks: tuple[int, ...]) -> AffineValues:
    """Run some blocks under `AffineValues`; a branch depends on %p1."""
    text = kernel(START + code + END, ".u64 out")
    values = AffineValues(load_program(parse_ptx(text), "k"))
    for chunk in chunks:
        blocks = [(x, 0, 0) for x in chunk]
        arrays = {"out": np.zeros(1 << 16, "u4")}
        run(text, arrays, grid=(BLOCKS, 1, 1), blocks=blocks, observers=[values])
    return values


def same_decisions(code: str, block: int) -> tuple[int, int]:
    """The first block of the range around a block, and the one behind its last."""
    ((x, _, _),) = followed(code, (block,)).boxes
    return x.start, x.stop


WHOLE = (0, BLOCKS)
COMPARISONS = [
    ("lt", 100, (0, 300)),
    ("lt", 300, (300, 1000)),
    ("lo", 299, (0, 300)),
    ("le", 300, (0, 301)),
    ("ls", 301, (301, 1000)),
    ("gt", 300, (0, 301)),
    ("hi", 500, (301, 1000)),
    ("ge", 299, (0, 300)),
    ("hs", 300, (300, 1000)),
    ("eq", 100, (0, 300)),
    ("eq", 300, (300, 301)),
    ("ne", 500, (301, 1000)),
]


@pytest.mark.parametrize(("comparison", "block", "expected"), COMPARISONS)
def test_a_comparison_cuts_the_range_where_its_result_changes(
    comparison: str, block: int, expected: tuple[int, int]
) -> None:
    assert same_decisions(f"setp.{comparison}.u32 %p1, %r1, 300;", block) == expected
    swapped = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "lo": "hi", "hi": "lo"}
    swapped |= {"ls": "hs", "hs": "ls"}
    other = swapped.get(comparison, comparison)
    code = f"mov.u32 %r5, 300; setp.{other}.u32 %p1, %r5, %r1;"
    assert same_decisions(code, block) == expected


ARITHMETIC = {
    "mad.lo.s32 %r5, %r1, 3, %r1; setp.lt.s32 %p1, %r5, 1200;": (100, (0, 300)),
    "mul.lo.s32 %r5, %r1, %r3; setp.lt.s32 %p1, %r5, 3100;": (50, (0, 100)),
    "mul.lo.s32 %r5, %r3, %r1; setp.lt.s32 %p1, %r5, 3100;": (50, (0, 100)),
    "mul.lo.s32 %r5, %r1, %r1; setp.lt.s32 %p1, %r5, 3100;": (50, (50, 51)),
    "neg.s32 %r5, %r1; setp.gt.s32 %p1, %r5, -300;": (100, (0, 300)),
    "not.b32 %r5, %r1; setp.gt.s32 %p1, %r5, -300;": (100, (0, 299)),
    "sub.s32 %r5, 400, %r1; sub.s32 %r5, %r5, %r1; setp.gt.s32 %p1, %r5, 0;": (100, (0, 200)),
    # The comparison is unsigned: 50 - 100 wraps around, and so do all blocks before 100.
    "sub.u32 %r5, %r1, 100; setp.lt.u32 %p1, %r5, 7;": (50, (0, 100)),
    "min.s32 %r5, %r1, 300; setp.lt.s32 %p1, %r5, 150;": (100, (0, 150)),
    "min.u32 %r5, %r1, 300; setp.lt.u32 %p1, %r5, 150;": (500, (300, 1000)),
    "max.s32 %r5, %r1, 300; setp.lt.s32 %p1, %r5, 600;": (500, (300, 600)),
    "max.s32 %r5, %r1, 300; setp.lt.s32 %p1, %r5, 600;  ": (100, (0, 300)),
    # Shifts: to the left exact, by a changing number or by 0 of nothing unknown.
    "shl.b32 %r5, %r1, 2; setp.lt.u32 %p1, %r5, 1200;": (100, (0, 300)),
    "mov.u32 %r6, 1; shl.b32 %r5, %r6, %r1; setp.lt.u32 %p1, %r5, 1200;": (5, (5, 6)),
    "shl.b32 %r5, %r1, %r1; setp.lt.u32 %p1, %r5, 1200;": (5, (5, 6)),
    "mov.u32 %r6, 4096; shr.u32 %r5, %r6, %r1; setp.lt.u32 %p1, %r5, 2;": (5, (5, 6)),
    "shr.u32 %r5, %r1, %r1; setp.lt.u32 %p1, %r5, 2;": (5, (5, 6)),
    "shr.u32 %r5, %r1, 4; setp.lt.u32 %p1, %r5, 2;": (100, (96, 112)),
    "shl.b32 %r5, %r1, 0; setp.lt.u32 %p1, %r5, 300;": (100, (0, 300)),
    "shr.u32 %r5, %r1, 0; setp.lt.u32 %p1, %r5, 300;": (100, (0, 300)),
    # -300 >> 4 is -19, and so is -304 >> 4 to -289 >> 4.
    "sub.s32 %r4, %r1, 400; shr.s32 %r5, %r4, 4; setp.lt.s32 %p1, %r5, 0;": (100, (96, 112)),
    # (16 x - 400) >> 4 is x - 25, whatever its sign.
    "mad.lo.s32 %r4, %r1, 16, -400; shr.s32 %r5, %r4, 4; setp.lt.s32 %p1, %r5, 5;": (10, (0, 30)),
    # A division rounds to 0, so the value must keep its sign.
    "mad.lo.s32 %r4, %r1, 16, -400; div.s32 %r5, %r4, 16; setp.lt.s32 %p1, %r5, 5;": (10, (0, 25)),
    "mad.lo.s32 %r4, %r1, 16, -400; div.s32 %r5, %r4, 16; setp.lt.s32 %p1, %r5, 9;": (30, (25, 34)),
    "mad.lo.s32 %r4, %r1, 16, -400; div.s32 %r5, %r4, 16; setp.lt.s32 %p1, %r5, 9; ": (
        25,
        (25, 34),
    ),
    "sub.s32 %r4, %r1, 400; div.s32 %r5, %r4, 1; setp.lt.s32 %p1, %r5, 5;": (100, (0, 400)),
    "div.s32 %r5, %r1, 16; setp.lt.s32 %p1, %r5, 5;": (0, (0, 16)),
    # -95 for the first five threads, 105 for the others.
    "selp.b32 %r6, -100, 100, %p5; add.s32 %r4, %r1, %r6; div.s32 %r5, %r4, 16;"
    "setp.lt.s32 %p1, %r5, 99;": (5, (5, 6)),
    "selp.b32 %r6, -16, 16, %p5; shl.b32 %r4, %r1, 4; div.s32 %r5, %r4, %r6;"
    "setp.lt.s32 %p1, %r5, 5000;": (100, (100, 101)),
    "sub.s32 %r4, %r1, 400; div.s32 %r5, %r4, 16; setp.lt.s32 %p1, %r5, 5;": (100, (100, 101)),
    "div.u32 %r5, %r1, 16; setp.lt.u32 %p1, %r5, 100;": (111, (96, 112)),
    "rem.u32 %r5, %r1, 16; setp.lt.u32 %p1, %r5, 8;": (100, (96, 104)),
    "mad.lo.u32 %r4, %r1, 16, 5; rem.u32 %r5, %r4, 16; setp.lt.u32 %p1, %r5, 8;": (100, WHOLE),
    "div.s32 %r5, %r1, -16; setp.lt.s32 %p1, %r5, 100;": (100, (100, 101)),
    "mov.u32 %r4, 5000; div.u32 %r5, %r4, %r1; setp.lt.u32 %p1, %r5, 80;": (100, (100, 101)),
    "add.u32 %r4, %r1, 1; div.u32 %r5, %r1, %r4; setp.lt.u32 %p1, %r5, 8;": (100, (100, 101)),
    # A mask of bits that the stride leaves alone, and of others.
    "mul.lo.u32 %r4, %r1, 12; and.b32 %r5, %r4, 3; setp.eq.u32 %p1, %r5, 0;": (100, WHOLE),
    "mul.lo.u32 %r4, %r1, 12; and.b32 %r5, 3, %r4; setp.eq.u32 %p1, %r5, 0;": (100, WHOLE),
    "mul.lo.u32 %r4, %r1, 12; and.b32 %r5, %r4, 4; setp.eq.u32 %p1, %r5, 0;": (100, (100, 101)),
    "mul.lo.u32 %r4, %r1, 12; and.b32 %r5, %r4, 7; setp.eq.u32 %p1, %r5, 0;": (100, (100, 101)),
    "shl.b32 %r4, %r1, 4; and.b32 %r5, %r4, -16; setp.lt.u32 %p1, %r5, 4800;": (100, (0, 300)),
    "shl.b32 %r4, %r1, 4; and.b32 %r5, %r4, -32; setp.lt.u32 %p1, %r5, 4800;": (100, (100, 101)),
    "and.b32 %r5, %r1, %r1; setp.lt.u32 %p1, %r5, 300;": (100, (100, 101)),
    "mul.wide.u32 %a2, %r1, 16; and.b64 %a3, %a2, -16; setp.lt.u64 %p1, %a3, 4800;": (
        100,
        (0, 300),
    ),
    # The mask is -16 for the first five threads only.
    "selp.b32 %r6, -16, 240, %p5; shl.b32 %r4, %r1, 4; and.b32 %r5, %r4, %r6;"
    "setp.lt.u32 %p1, %r5, 4800;": (100, (100, 101)),
    # The stride is 16 for the first five threads, 0 for the others, whose lowest bits differ.
    "selp.b32 %r6, %r1, 0, %p5; mad.lo.u32 %r4, %r6, 16, %r3; and.b32 %r5, %r4, 15;"
    "setp.lt.u32 %p1, %r5, 4;": (100, WHOLE),
    # An `or` is an addition where no bit is set in both sources.
    "and.b32 %r6, %r3, 15; shl.b32 %r4, %r1, 4; or.b32 %r5, %r4, %r6;setp.lt.u32 %p1, %r5, 4800;": (
        100,
        (0, 300),
    ),
    "and.b32 %r6, %r3, 15; shl.b32 %r4, %r1, 4; or.b32 %r5, %r6, %r4;"
    "setp.lt.u32 %p1, %r5, 4800; ": (100, (0, 300)),
    "shl.b32 %r4, %r1, 4; or.b32 %r5, %r4, 16; setp.lt.u32 %p1, %r5, 4800;": (100, (100, 101)),
    "mad.lo.u32 %r4, %r1, 16, 4; or.b32 %r5, %r4, 4; setp.lt.u32 %p1, %r5, 4800;": (
        100,
        (100, 101),
    ),
    "or.b32 %r5, %r1, %r1; setp.lt.u32 %p1, %r5, 300;": (100, (100, 101)),
    "and.pred %p2, %p5, %p5; selp.b32 %r5, %r1, 7, %p2; setp.lt.u32 %p1, %r5, 300;": (
        500,
        (300, 1000),
    ),
    # The stride of x - x is known to be 0.
    "sub.u32 %r6, %r1, %r1; add.u32 %r6, %r6, 4; shr.u32 %r5, %r1, %r6;setp.lt.u32 %p1, %r5, 2;": (
        100,
        (96, 112),
    ),
    # The threads that do it have no stride.
    "selp.b32 %r4, 0, %r1, %p5; mov.u32 %r5, 9; @%p5 or.b32 %r5, %r4, 64;"
    "setp.lt.u32 %p1, %r5, 300;": (100, WHOLE),
    "selp.b32 %r4, 0, %r1, %p5; mov.u32 %r5, 9; @%p5 and.b32 %r5, %r4, 64;"
    "setp.lt.u32 %p1, %r5, 300;": (100, WHOLE),
    # Results that are tested for their sign alone.
    "sub.s32 %r4, %r1, 100; or.b32 %r5, %r4, %r3; setp.lt.s32 %p1, %r5, 0;": (50, (0, 100)),
    # x + 2³¹ - 100 has its highest bit from block 100 on.
    "add.s32 %r4, %r1, 2147483548; or.b32 %r5, %r4, %r3; setp.lt.s32 %p1, %r5, 0;": (50, (0, 100)),
    "add.s32 %r4, %r1, 2147483548; or.b32 %r5, %r4, %r3; setp.lt.s32 %p1, %r5, 0; ": (
        500,
        (100, 1000),
    ),
    "cvt.s64.s32 %a2, %r1; add.s64 %a2, %a2, -100; xor.b64 %a3, %a2, %a2;"
    "setp.ge.s64 %p1, %a3, 0;": (50, (0, 100)),
    "sub.s32 %r4, %r1, 100; and.b32 %r5, %r3, %r4; setp.gt.s32 %p1, %r5, -1;": (500, (100, 1000)),
    "sub.s32 %r4, %r1, 100; xor.b32 %r5, %r4, %r3; setp.gt.s32 %p1, %r5, 0;": (50, (50, 51)),
    # Selections.
    "setp.lt.u32 %p2, %r1, 300; selp.b32 %r5, %r1, 7, %p2; setp.lt.u32 %p1, %r5, 50;": (
        100,
        (50, 300),
    ),
    "setp.lt.u32 %p2, %r1, 300; selp.b32 %r5, %r1, 7, %p2; setp.lt.u32 %p1, %r5, 50; ": (
        500,
        (300, 1000),
    ),
    "sub.u32 %r6, 1000, %r1; selp.b32 %r5, %r1, %r6, %p5; setp.lt.u32 %p1, %r5, 950;": (
        100,
        (51, 950),
    ),
    # Writes of some lanes keep the strides of the others.
    "mov.u32 %r5, %r1; @%p5 mov.u32 %r5, 7; setp.lt.u32 %p1, %r5, 300;": (100, (0, 300)),
    "mov.u32 %r5, 7; @%p5 mov.u32 %r5, %r1; setp.lt.u32 %p1, %r5, 300;": (500, (300, 1000)),
    "mov.u32 %r5, %r1; @%p5 add.u32 %r5, %r1, 9; setp.lt.u32 %p1, %r5, 300;": (100, (0, 291)),
    # In a loop the first five threads always copy x, and the others in the last iteration only.
    "mov.u32 %r5, 7; mov.u32 %r8, 0;"
    "again: setp.ge.u32 %p2, %r8, 5; or.pred %p2, %p2, %p5; @%p2 mov.u32 %r5, %r1;"
    "add.u32 %r8, %r8, 1; setp.lt.u32 %p3, %r8, 6; @%p3 bra again;"
    "@%p5 mov.u32 %r5, 7; setp.lt.u32 %p1, %r5, 300;": (100, (0, 300)),
    # Nothing is known about these.
    "mov.u32 %r5, %clock; setp.lt.u32 %p1, %r5, 100000;": (100, (100, 101)),
    "sub.u32 %r5, %r3, %clock; setp.lt.u32 %p1, %r5, 100000;": (100, (100, 101)),
    "mul.hi.u32 %r5, %r1, 4; setp.lt.u32 %p1, %r5, 3;": (100, (100, 101)),
    "add.cc.u32 %r5, %r1, 4; setp.lt.u32 %p1, %r5, 3;": (100, (100, 101)),
    "popc.b32 %r5, %r1; setp.lt.u32 %p1, %r5, 3;": (100, (100, 101)),
    "cvt.rn.f32.u32 %f1, %r1; setp.lt.f32 %p1, %f1, 0f43960000;": (100, (100, 101)),
    "mov.b64 %a2, {%r1, %r1}; setp.lt.u64 %p1, %a2, 3;": (100, (100, 101)),
}


@pytest.mark.parametrize("code", ARITHMETIC)
def test_ranges_hold_the_blocks_for_which_the_arithmetic_decides_alike(code: str) -> None:
    block, expected = ARITHMETIC[code]
    assert same_decisions(code, block) == expected


WIDENED = "setp.lt.u64 %p1, %a2, 1152921504606846976;"  # holds for every value
WIDTHS = {
    # x << 23 has 32 bits for 512 blocks.
    f"cvt.u64.u32 %a2, %r4; {WIDENED}": {500: (0, 512), 600: (512, 1000)},
    "cvt.s64.s32 %a2, %r4; setp.lt.s64 %p1, %a2, 8589934592;": {100: (0, 256), 300: (256, 768)},
    f"mul.wide.u32 %a2, %r4, 3; {WIDENED}": {500: (0, 512)},
    f"mov.u32 %r5, 3; mul.wide.u32 %a2, %r5, %r4; {WIDENED}": {500: (0, 512)},
    f"mad.wide.u32 %a2, %r4, 3, %a1; {WIDENED}": {600: (512, 1000)},
    f"mov.u32 %r5, 3; mad.wide.u32 %a2, %r5, %r4, %a1; {WIDENED}": {600: (512, 1000)},
    "mov.u32 %r5, 2147483648; setp.lt.u32 %p1, %r5, %r4;": {500: (257, 512)},
    f"shr.u32 %r5, %r4, 4; cvt.u64.u32 %a2, %r5; {WIDENED}": {500: (0, 512)},
    # A conversion to the same width keeps all bits.
    "cvt.s32.u32 %r5, %r4; and.b32 %r6, %r5, 7; setp.eq.u32 %p1, %r6, 0;": {500: WHOLE},
    # The low half is 0 whatever wraps around above it.
    "cvt.u16.u32 %h1, %r4; setp.eq.u16 %p1, %h1, 0;": {500: WHOLE},
    "mul.lo.u32 %r5, %r4, 512; setp.eq.u32 %p1, %r5, 0;": {500: WHOLE},
    # This is -x << 23, which is 0 for the block 512 and wraps around behind it.
    "mul.lo.u32 %r5, %r4, 511; setp.lt.u32 %p1, %r5, 4286578688;": {100: (2, 513)},
}


@pytest.mark.parametrize("code", WIDTHS)
def test_ranges_end_where_a_value_that_is_widened_wraps_around(code: str) -> None:
    found = {
        block: same_decisions(f"shl.b32 %r4, %r1, 23; {code}", block) for block in WIDTHS[code]
    }
    assert found == WIDTHS[code]


MEMORY = {
    # A value in shared memory that changes from block to block, and others.
    "st.shared.u32 [%r31], %r1; ld.shared.u32 %r5, [%r31]; setp.lt.u32 %p1, %r5, 300;": (100, 101),
    "st.shared.u32 [%r31], %r3; ld.shared.u32 %r5, [%r31]; setp.lt.u32 %p1, %r5, 9;": WHOLE,
    "mov.u32 %r6, 300; st.shared.u32 [%r31], %r6; ld.shared.u32 %r5, [%r31];"
    "setp.lt.u32 %p1, %r1, %r5;": (0, 300),
    "st.u32 [%a1], %r1; setp.eq.u32 %p1, %r1, 1000;": WHOLE,
    "st.shared.v2.u32 [kept], {%r3, %r1}; ld.shared.u32 %r5, [kept];setp.lt.u32 %p1, %r5, 300;": (
        100,
        101,
    ),
    "st.shared.u32 [%r31], %r3; and.b32 %r6, %r1, 1; shl.b32 %r6, %r6, 2;"
    "add.u32 %r6, %r6, %r30; ld.shared.u32 %r5, [%r6]; setp.lt.u32 %p1, %r5, 9;": (100, 101),
    "st.shared.u32 [%r31], %r3; shl.b32 %r6, %r1, 2; min.u32 %r6, %r6, 4;"
    "add.u32 %r6, %r6, %r30; ld.shared.u32 %r5, [%r6]; setp.lt.u32 %p1, %r5, 9;": (1, 1000),
    "atom.shared.add.u32 %r5, [kept], %r1; setp.lt.u32 %p1, %r5, 9;": (100, 101),
    # Generic addresses may be of shared memory.
    "cvta.shared.u64 %a2, %a3; mov.u64 %a3, kept; cvta.shared.u64 %a2, %a3;"
    "st.u32 [%a2], %r1; ld.u32 %r5, [%a2]; setp.lt.u32 %p1, %r5, 300;": (100, 101),
    # What is stored in global memory decides nothing.
    "st.shared.u32 [%r31], %r3; ld.shared.u32 %r5, [%r31]; st.global.u32 [%a1], %r1;"
    "setp.lt.u32 %p1, %r5, 9;": WHOLE,
}


@pytest.mark.parametrize("code", MEMORY)
def test_values_that_go_through_memory_must_be_equal(code: str) -> None:
    assert same_decisions(code, 100) == MEMORY[code]


def test_strides_of_all_addresses_are_recorded() -> None:
    """Blocks 12 bytes apart in a load, 64 bytes in a store: a bitwise or of both."""
    code = """
    setp.eq.u32 %p1, %r1, 1000;
    mul.wide.u32 %a2, %r1, 12; add.u64 %a2, %a2, %a1; ld.global.u32 %r5, [%a2];
    mul.wide.u32 %a3, %r1, 64; cvta.to.global.u64 %a4, %a1; add.u64 %a4, %a4, %a3;
    """
    store = "isspacep.global %p2, %a4; @%p2 st.global.u32 [%a4], %r5;"
    values = followed(code, (100,), (500, 700))
    assert values.strides.tolist() == [12, 0, 0]
    values = followed(code + store, (100,), (500, 700))
    assert values.strides.tolist() == [12 | 64, 0, 0]
    assert [x for x, _, _ in values.boxes] == 3 * [range(BLOCKS)]


def test_ranges_of_several_chunks_are_in_the_order_of_the_blocks() -> None:
    values = followed("setp.lt.u32 %p1, %r1, 300;", (500,), (100, 700))
    assert [(x.start, x.stop) for x, _, _ in values.boxes] == [(300, 1000), (0, 300), (300, 1000)]


def test_a_block_whose_addresses_have_several_strides_stands_alone() -> None:
    code = """
    setp.eq.u32 %p1, %r1, 1000; shl.b32 %r6, %r1, 3; selp.b32 %r5, %r1, %r6, %p5;
    mul.wide.u32 %a2, %r5, 4; add.u64 %a2, %a2, %a1; st.global.u32 [%a2], %r5;
    """
    values = followed(code, (100,))
    assert [x for x, _, _ in values.boxes] == [range(100, 101)]
    assert values.strides.tolist() == [4 | 32, 0, 0]
