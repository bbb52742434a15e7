"""Divergence, barriers, calls and warps, against what each thread would do alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx import kernel, run

from memlab.device.emulator.machine.memory import KernelFault
from memlab.device.emulator.program.program import load_program
from memlab.device.emulator.ptx.parser import PtxError, parse_ptx

THREADS = 96

START = """
.reg .pred %p<9>; .reg .b32 %r<32>; .reg .b64 %a<9>; .reg .f32 %f<9>;
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;
ld.param.u64 %a1, [in]; ld.param.u64 %a2, [out]; mul.wide.u32 %a3, %r4, 4;
add.u64 %a1, %a1, %a3; add.u64 %a2, %a2, %a3; ld.global.u32 %r0, [%a1];
"""
STORE = "\nst.global.u32 [%a2], %r9;\n"


def each_thread(
    body: str, values: object = None, functions: str = "", blocks: int = 2
) -> list[int]:
    """Run code that turns `%r0` into `%r9` in each thread; `%r1` is its index in the block."""
    total = THREADS * blocks
    given_values = np.arange(total, dtype="u4") if values is None else np.resize(values, total)
    arrays = {"in": given_values.astype("u4"), "out": np.full(total, 0xAAAA_AAAA, "u4")}
    text = kernel(START + body, ".u64 in, .u64 out", functions)
    done = run(text, arrays, grid=(blocks, 1, 1), block=(THREADS, 1, 1))
    result: list[int] = done["out"].tolist()
    return result


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=32, max_size=32))
def test_nested_branches_and_loops_of_different_length(values: list[int]) -> None:
    body = """
    mov.u32 %r9, 0; and.b32 %r5, %r0, 15;
    outer:
      setp.eq.u32 %p1, %r5, 0; @%p1 bra finish;
      and.b32 %r6, %r5, 1; setp.eq.u32 %p2, %r6, 0; @%p2 bra even;
      mov.u32 %r7, %r5;
      inner: add.u32 %r9, %r9, %r7; sub.u32 %r7, %r7, 1; setp.ne.u32 %p3, %r7, 0; @%p3 bra inner;
      bra.uni next;
    even:
      setp.gt.u32 %p4, %r5, 8; @%p4 xor.b32 %r9, %r9, 0x55; @!%p4 mul.lo.u32 %r9, %r9, 3;
    next:
      sub.u32 %r5, %r5, 1; bra outer;
    finish:
    """

    def alone(value: int) -> int:
        total, left = 0, value & 15
        while left:
            if left & 1:
                total += sum(range(1, left + 1))
            elif left > 8:
                total ^= 0x55
            else:
                total *= 3
            left -= 1
        return total % 2**32

    got = each_thread(body + STORE + "ret;", np.array(values))
    assert got == [alone(each) for each in np.resize(values, 2 * THREADS).tolist()]


def test_barriers_do_not_wait_for_exited_threads() -> None:
    # Odd threads leave; the others exchange values over a barrier, also over partial warps.
    body = """
    .shared .align 4 .b32 cells[96]; mov.u32 %r9, 1; and.b32 %r5, %r1, 1;
    setp.ne.u32 %p1, %r5, 0; @%p1 exit;
    mov.u32 %r6, cells; mad.lo.u32 %r6, %r1, 4, %r6; st.shared.u32 [%r6], %r0;
    bar.sync 0;
    mov.u32 %r7, 94; sub.u32 %r7, %r7, %r1; mov.u32 %r6, cells; mad.lo.u32 %r6, %r7, 4, %r6;
    ld.shared.u32 %r9, [%r6];
    """
    got = each_thread(body + STORE + "ret;")
    for index, value in enumerate(got):
        block, thread = divmod(index, THREADS)
        expected = block * THREADS + 94 - thread if thread % 2 == 0 else 0xAAAA_AAAA
        assert value == expected, index


def test_barrier_in_a_loop() -> None:
    # A tree sum: at each step only part of the threads works between the barriers.
    body = """
    .shared .align 4 .b32 cells[128]; mov.u32 %r10, cells; mad.lo.u32 %r6, %r1, 4, %r10;
    st.shared.u32 [%r6], %r0; add.u32 %r7, %r6, 128;
    setp.lt.u32 %p2, %r1, 32; @%p2 st.shared.u32 [%r6+384], 0;
    mov.u32 %r5, 64;
    step: bar.sync 0; setp.ge.u32 %p1, %r1, %r5; @%p1 bra skip;
    mad.lo.u32 %r7, %r5, 4, %r6; ld.shared.u32 %r8, [%r7]; ld.shared.u32 %r11, [%r6];
    add.u32 %r8, %r8, %r11; st.shared.u32 [%r6], %r8;
    skip: shr.u32 %r5, %r5, 1; setp.ne.u32 %p1, %r5, 0; @%p1 bra step;
    bar.sync 0; ld.shared.u32 %r9, [cells];
    """
    got = each_thread(body + STORE + "ret;")
    assert got[:THREADS] == [sum(range(THREADS))] * THREADS
    assert got[THREADS:] == [sum(range(THREADS, 2 * THREADS))] * THREADS


@pytest.mark.parametrize("name", ["bar", "barrier.cta"])
def test_votes_of_a_block_at_a_barrier(name: str) -> None:
    body = f"""
    setp.lt.u32 %p1, %r0, 100; {name}.red.popc.u32 %r5, 0, %p1;
    {name}.red.and.pred %p2, 0, %p1; {name}.red.or.pred %p3, 0, !%p1;
    selp.u32 %r6, 1000, 0, %p2; selp.u32 %r7, 10000, 0, %p3;
    add.u32 %r9, %r5, %r6; add.u32 %r9, %r9, %r7;
    """
    got = each_thread(body + STORE + "ret;")
    assert got[:THREADS] == [96 + 1000] * THREADS
    assert got[THREADS:] == [4 + 10000] * THREADS


def test_guarded_stores_exits_and_jumps_by_index() -> None:
    body = """
    .reg .b32 %case; mov.u32 %r9, 7; rem.u32 %case, %r0, 5;
    setp.eq.u32 %p1, %case, 4; @%p1 st.global.u32 [%a2], 44; @%p1 ret;
    table: .branchtargets zero, one, two, two;
    brx.idx %case, table;
    zero: mov.u32 %r9, 10; bra done;
    one: add.u32 %r9, %r9, 11;
    two: add.u32 %r9, %r9, 22;
    done:
    """
    got = each_thread(body + STORE + "ret;")
    assert got == [(10, 40, 29, 29, 44)[index % 5] for index in range(2 * THREADS)]


FACTORIAL = """
.func (.param .b32 result) step(.param .b32 value)
{ .reg .b32 %r<4>; .reg .pred %p<2>; ld.param.u32 %r1, [value]; setp.gt.u32 %p1, %r1, 99;
  @%p1 bra big; add.u32 %r1, %r1, 1; st.param.b32 [result], %r1; ret;
  big: mul.lo.u32 %r1, %r1, 2; st.param.b32 [result], %r1; ret; }
.func (.param .b32 result) both(.param .align 4 .b8 pair[8])
{ .reg .b32 %r<6>; ld.param.u32 %r1, [pair]; ld.param.u32 %r2, [pair+4];
  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1;
    call (b), step, (a); ld.param.b32 %r3, [b]; }
  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r2;
    call (b), step, (a); ld.param.b32 %r4, [b]; }
  sub.u32 %r3, %r3, %r4; st.param.b32 [result], %r3; ret; }
"""


def test_calls_are_inlined() -> None:
    body = """
    { .param .align 4 .b8 a[8]; .param .b32 b; st.param.b32 [a], %r0; st.param.b32 [a+4], %r1;
      call.uni (b), both, (a); ld.param.b32 %r9, [b]; }
    """

    def step(value: int) -> int:
        return value * 2 if value > 99 else value + 1

    got = each_thread(body + STORE + "ret;", functions=FACTORIAL)
    expected = [(step(i) - step(i % THREADS)) % 2**32 for i in range(2 * THREADS)]
    assert got == expected


def test_a_call_of_a_function_without_a_body_is_refused() -> None:
    text = kernel(".loc 1 3 1\ncall elsewhere, (); ret;", functions=".extern .func elsewhere();")
    with pytest.raises(
        PtxError, match=r"cannot call elsewhere, which has no body .*line 3: printf"
    ):
        load_program(parse_ptx(text), "k", ["", "", "printf();"])


def test_a_kernel_that_launches_kernels_is_refused() -> None:
    name = "__cudaCDP2GetParameterBufferV2"  # as nvcc calls the runtime of the device
    text = kernel(f".loc 1 1 1\ncall {name}, (); ret;", functions=f".extern .func {name}();")
    with pytest.raises(PtxError, match=r"launches kernels.*: launch them from the host"):
        load_program(parse_ptx(text), "k", ["child<<<1, 1>>>();"])


def test_trap_stops_the_kernel_and_names_the_thread() -> None:
    body = ".loc 1 2 1\nsetp.eq.u32 %p1, %r4, 130; @%p1 trap; ret;"
    text = kernel(START + body, ".u64 in, .u64 out")
    arrays = {"in": np.zeros(192, "u4"), "out": np.zeros(192, "u4")}
    with pytest.raises(KernelFault) as error:
        run(text, arrays, grid=(2, 1, 1), block=(96, 1, 1), source=["", "assert(i < n);"])
    assert "by block (1, 0, 0) thread (34, 0, 0), line 2: assert(i < n);" in str(error.value)


def test_a_timed_wait_ends() -> None:
    body = """
    .reg .b64 %t<4>; mov.u64 %t1, %clock64;
    wait: mov.u64 %t2, %clock64; sub.u64 %t2, %t2, %t1; setp.lt.u64 %p1, %t2, 1000; @%p1 bra wait;
    mov.u32 %r9, 1;
    """
    assert set(each_thread(body + STORE + "ret;")) == {1}


def test_a_clock_of_two_halves_is_read_whole() -> None:
    body = """.reg .pred %p<3>; .reg .b32 %r<4>;
    again: mov.u32 %r1, %clock_hi; mov.u32 %r2, %clock; mov.u32 %r3, %clock_hi;
    setp.ne.u32 %p1, %r1, %r3; @%p1 bra again; ret;"""
    run(kernel(body, ".u64 unused"), {"unused": np.zeros(1)})


def test_special_registers() -> None:
    names = ["%tid.x", "%tid.y", "%tid.z", "%ctaid.x", "%ctaid.y", "%laneid", "%warpid", "%ntid.y"]
    names += ["%nctaid.x", "%lanemask_lt", "WARP_SZ"]
    body = [".reg .b32 %r<3>; .reg .b64 %a<4>; ld.param.u64 %a1, [out];"]
    body.append("mov.u32 %r1, %tid.z; mov.u32 %r2, %ntid.y; mul.lo.u32 %r1, %r1, %r2;")
    body.append("mov.u32 %r2, %tid.y; add.u32 %r1, %r1, %r2; mov.u32 %r2, %ntid.x;")
    body.append("mul.lo.u32 %r1, %r1, %r2; mov.u32 %r2, %tid.x; add.u32 %r1, %r1, %r2;")
    body.append("mov.u32 %r2, %ctaid.y; mad.lo.u32 %r1, %r2, 40, %r1;")
    body.append("mul.wide.u32 %a2, %r1, 44; add.u64 %a1, %a1, %a2;")
    for number, name in enumerate(names):
        body.append(f"mov.u32 %r1, {name}; st.global.u32 [%a1+{4 * number}], %r1;")
    text = kernel("\n".join([*body, "ret;"]), ".u64 out")
    done = run(text, {"out": np.zeros((80, 11), "u4")}, grid=(1, 2, 1), block=(5, 4, 2))
    for index, row in enumerate(done["out"].tolist()):
        block, thread = divmod(index, 40)
        lane = thread % 32
        place = [thread % 5, thread // 5 % 4, thread // 20]
        assert row == [*place, 0, block, lane, thread // 32, 4, 1, 2**lane - 1, 32]


def shuffled(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The PTX ISA's own pseudocode of `shfl.sync`, for one lane."""
    segment, clamp, b = c >> 8 & 31, c & 31, b & 31
    highest = lane & segment | clamp & ~segment & 31
    lowest = lane & segment
    source = {
        "up": lane - b,
        "down": lane + b,
        "bfly": lane ^ b,
        "idx": lowest | b & ~segment & 31,
    }[mode]
    valid = source >= highest if mode == "up" else source <= highest
    return (source if valid else lane), valid


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 16, 4])
def test_shuffles_of_every_width(mode: str, width: int) -> None:
    c = 32 - width << 8 | (0 if mode == "up" else 31)
    body = f"""
    add.u32 %r5, %r1, 3; and.b32 %r5, %r5, 31;
    shfl.sync.{mode}.b32 %r9|%p1, %r0, %r5, {c}, -1; @%p1 or.b32 %r9, %r9, 0x10000;
    """
    got = each_thread(body + STORE + "ret;")
    for index, value in enumerate(got):
        lane, warp = index % 32, index - index % 32
        source, valid = shuffled(mode, lane, index % THREADS + 3 & 31, c)
        assert value == warp + source + 0x10000 * valid


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_values_shuffled_from_inactive_lanes_are_nan(mode: str) -> None:
    """Three of four lanes shuffle, in two groups with a mask each."""
    masks = 0x7777, 0x7777_0000
    c = 0 if mode == "up" else 31
    body = f"""
    mov.u32 %r9, 0; and.b32 %r5, %r1, 3; setp.eq.u32 %p1, %r5, 3; @%p1 bra join;
    and.b32 %r6, %r1, 16; setp.eq.u32 %p2, %r6, 0; selp.u32 %r6, {masks[0]}, {masks[1]}, %p2;
    shfl.sync.{mode}.b32 %r9, %r0, 7, {c}, %r6;
    join:
    """
    for index, value in enumerate(each_thread(body + STORE + "ret;")):
        lane, warp = index % 32, index - index % 32
        source, _ = shuffled(mode, lane, 7, c)
        given = source == lane or masks[lane >= 16] >> source & 1
        expected = 0 if lane % 4 == 3 else warp + source if given else 0xFFFF_FFFF
        assert value == expected


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=32, max_size=32), st.integers(1, 2**16 - 1))
def test_members_vote_match_and_reduce_among_themselves(values: list[int], chosen: int) -> None:
    # The chosen lanes form one group, the others another one, each with its own mask.
    mask = chosen | chosen << 16
    rest = ~mask & 0xFFFF_FFFF
    instructions = {
        "redux.sync.add.u32 %r9, %r0, %r6;": lambda own, me: sum(own) % 2**32,
        "redux.sync.min.s32 %r9, %r0, %r6;": lambda own, me: min(
            own, key=lambda each: each - (each >> 31 << 32)
        ),
        "redux.sync.max.u32 %r9, %r0, %r6;": lambda own, me: max(own),
        "setp.gt.u32 %p1, %r0, 99; vote.sync.any.pred %p2, %p1, %r6; selp.u32 %r9, 1, 0, %p2;": (
            lambda own, me: int(any(each > 99 for each in own))
        ),
        "setp.gt.u32 %p1, %r0, 99; vote.sync.all.pred %p2, !%p1, %r6; selp.u32 %r9, 1, 0, %p2;": (
            lambda own, me: int(all(each <= 99 for each in own))
        ),
    }
    for line, function in instructions.items():
        body = f"""
        mov.u32 %r7, %lanemask_eq; and.b32 %r7, %r7, {mask}; setp.ne.u32 %p3, %r7, 0;
        selp.u32 %r6, {mask}, {rest}, %p3; {line}
        """
        got = each_thread(body + STORE + "ret;", np.array(values))
        for index, value in enumerate(got):
            members = mask if mask >> index % 32 & 1 else rest
            own = [values[lane] for lane in range(32) if members >> lane & 1]
            assert value == function(own, values[index % 32]), line


def test_lanes_that_do_not_take_part_are_left_out() -> None:
    body = """
    mov.u32 %r9, 0; and.b32 %r5, %r1, 3; setp.eq.u32 %p1, %r5, 0; @!%p1 bra join;
    activemask.b32 %r9; elect.sync %r6|%p2, 0x11111111; @%p2 add.u32 %r9, %r9, 1;
    join:
    """
    got = each_thread(body + STORE + "ret;")
    expected = [0x1111_1111 + (i % 32 == 0) if i % 4 == 0 else 0 for i in range(2 * THREADS)]
    assert got == expected


def test_counts_of_lanes_and_warps() -> None:
    body = "setp.lt.u32 %p1, %r1, 40; @%p1 add.u32 %r5, %r0, 1; @!%p1 bra out; not.b32 %r6, %r0;"
    text = kernel(START + body + "out: ret;", ".u64 in, .u64 out")
    arrays = {"in": np.zeros(192, "u4"), "out": np.zeros(192, "u4")}
    done = run(text, arrays, grid=(2, 1, 1), block=(THREADS, 1, 1))
    assert done.counted("setp.lt.u32")["lanes"] == 192
    assert done.counted("add.u32")["lanes"] == 80
    assert done.counted("not.b32") | {"lanes": 80, "warps": 4} == done.counted("not.b32")
    assert done.counted("ret")["warps"] == 6
