"""The memory order of instructions, and which loads are guesses of a compare-and-swap."""

import pytest
from ptx import kernel

from memlab.device.emulator.checks.memory_order import (
    BLOCK_SCOPE,
    DEVICE_SCOPE,
    STRONG,
    VOLATILE,
    WEAK,
    is_fence,
    memory_orders,
    scope_of,
)
from memlab.device.emulator.program.program import DecodedInstruction, load_program
from memlab.device.emulator.ptx.parser import parse_ptx


def steps(body: str) -> list[DecodedInstruction]:
    head = ".reg .b64 %a<20>; .reg .b32 %x<20>; .reg .pred %p<3>; .shared .align 4 .b8 s[64];"
    return list(load_program(parse_ptx(kernel(head + body + " ret;", ".u64 a")), "k").steps)


@pytest.mark.parametrize(
    ("instruction", "level", "scope"),
    [
        ("ld.global.u32 %x1, [%a1]", WEAK, None),
        ("st.weak.global.u32 [%a1], %x1", WEAK, None),
        ("ld.volatile.global.u32 %x1, [%a1]", VOLATILE, None),
        ("ld.relaxed.gpu.global.u32 %x1, [%a1]", STRONG, None),
        ("ld.acquire.gpu.global.u32 %x1, [%a1]", STRONG, None),
        ("st.release.gpu.global.u32 [%a1], %x1", STRONG, DEVICE_SCOPE),
        ("st.release.cta.global.u32 [%a1], %x1", STRONG, BLOCK_SCOPE),
        ("red.global.add.u32 [%a1], %x1", STRONG, None),
        ("atom.global.add.u32 %x2, [%a1], %x1", STRONG, None),
        ("atom.acq_rel.sys.global.add.u32 %x2, [%a1], %x1", STRONG, DEVICE_SCOPE),
        ("red.release.cta.global.add.u32 [%a1], %x1", STRONG, BLOCK_SCOPE),
    ],
)
def test_qualifiers_say_the_order(instruction: str, level: int, scope: int | None) -> None:
    order = memory_orders(steps(f"{instruction};"))[0]
    assert (order.level, order.release_scope) == (level, scope)


@pytest.mark.parametrize(
    ("instruction", "scope", "element_bytes"),
    [
        ("ld.global.u32 %x1, [%a1]", DEVICE_SCOPE, 0),
        ("ld.volatile.global.u8 %x1, [%a1]", DEVICE_SCOPE, 1),
        ("ld.relaxed.cta.global.v2.u32 {%x1, %x2}, [%a1]", BLOCK_SCOPE, 4),
        ("red.global.cta.add.u64 [%a1], %a2", BLOCK_SCOPE, 8),
        ("atom.global.cta.cas.b32 %x1, [%a1], %x2, %x3", BLOCK_SCOPE, 0),
    ],
)
def test_qualifiers_say_scope_and_size(instruction: str, scope: int, element_bytes: int) -> None:
    order = memory_orders(steps(f"{instruction};"))[0]
    assert (order.scope, order.element_bytes) == (scope, element_bytes)


@pytest.mark.parametrize(
    ("instruction", "fence", "scope"),
    [
        ("membar.gl", True, DEVICE_SCOPE),
        ("membar.cta", True, BLOCK_SCOPE),
        ("fence.sc.cta", True, BLOCK_SCOPE),
        ("fence.acq_rel.gpu", True, DEVICE_SCOPE),
        ("bar.sync 0", False, DEVICE_SCOPE),
    ],
)
def test_fences_have_a_scope(instruction: str, fence: bool, scope: int) -> None:
    step = steps(f"{instruction};")[0]
    assert (is_fence(step), scope_of(step)) == (fence, scope)


def guesses(body: str) -> list[bool]:
    """Of each load from memory, whether it is a guess."""
    every = steps(body)
    return [
        order.level == STRONG
        for step, order in zip(every, memory_orders(every), strict=True)
        if step.row.kind == "load" and step.row.space != "param"
    ]


CAS = "atom.global.cas.b32 %x5, {}, {}, 1;"
POINTER = "ld.param.u64 %a0, [a]; add.s64 %a1, %a0, 8;"


@pytest.mark.parametrize(
    ("load", "cas", "guess"),
    [
        ("%x1, [%a1]", ("[%a1]", "%x1"), True),
        ("%x1, [%a1]", ("[%a0+8]", "%x1"), True),  # a sum
        ("%x1, [%a1+4]", ("[%a0+12]", "%x1"), True),
        ("%x1, [%a1]", ("[%a0]", "%x1"), False),
        ("%x1, [%a1]", ("[%a1]", "%x2"), False),
        ("%x1, [%a1]", ("[%a1]", "0"), False),
    ],
)
def test_a_guess_is_loaded_from_the_place_that_is_swapped(
    load: str, cas: tuple[str, str], guess: bool
) -> None:
    assert guesses(f"{POINTER} ld.global.u32 {load}; {CAS.format(*cas)}") == [guess]


def test_sums_of_several_registers_are_the_same_in_any_order() -> None:
    body = """ld.param.u64 %a0, [a]; mov.u32 %x0, %tid.x; mul.wide.u32 %a2, %x0, 4;
      add.s64 %a3, %a0, %a2; cvta.to.global.u64 %a4, %a3; add.s64 %a5, %a2, %a0;
      ld.global.u32 %x1, [%a4]; """
    assert guesses(body + CAS.format("[%a5]", "%x1")) == [True]
    assert guesses(body + CAS.format("[%a2]", "%x1")) == [False]


def test_a_register_that_is_written_twice_is_no_sum() -> None:
    body = "ld.param.u64 %a0, [a]; mov.u64 %a2, 4; {0} add.s64 %a1, %a0, %a2; {1}"
    body += "ld.global.u32 %x1, [%a1]; add.s64 %a3, %a0, %a2; "
    for again, guess in (
        (("", ""), True),
        (("mov.u64 %a2, 8;", ""), False),
        (("", "mov.u64 %a1, 8;"), False),
    ):
        assert guesses(body.format(*again) + CAS.format("[%a3]", "%x1")) == [guess]


def test_variables_are_places_too() -> None:
    body = "mov.u64 %a0, 8; ld.shared.u32 %x1, [s+4]; atom.shared.cas.b32 %x5, {}, %x1, 1;"
    assert guesses(body.format("[s+4]")) == [True]
    assert guesses(body.format("[s]")) == [False]
    assert guesses(body.format("[8]")) == [False]
    offset = "add.s64 %a1, {}, 4; ld.shared.u32 %x1, [%a1]; atom.shared.cas.b32 %x5, [{}], %x1, 1;"
    assert guesses(offset.format("s", "s+4")) == [True]
    assert guesses(offset.format("s+8", "s+12")) == [True]
    assert guesses(offset.format("s+8", "s+4")) == [False]


def test_a_guess_may_be_copied_before_it_is_compared() -> None:
    body = (
        POINTER
        + """ld.global.u32 %x1, [%a1]; mov.u32 %x2, %x1;
      L: mov.u32 %x3, %x2; mov.u32 %x2, %x3; atom.global.cas.b32 %x5, [%a1], %x3, 1;
      mov.u32 %x4, %x5; ld.global.u32 %x4, [%a1]; bra L; """
    )
    assert guesses(body) == [True, False]


def test_a_sum_of_itself_has_an_end() -> None:
    body = "add.s64 %a1, %a2, 4; add.s64 %a2, %a1, 4; ld.global.u32 %x1, [%a1];"
    assert guesses(body + CAS.format("[%a1]", "%x1")) == [True]
