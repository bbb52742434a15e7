"""Shuffles, votes and reductions that lanes of a warp carry out in different arms of a branch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx import Launched, kernel, run

from memlab.device.compiler.compile import compile_kernel
from memlab.device.compiler.translation_unit import TranslationUnit

N = 20
UPPER = 32 - N

# One block of 32 threads with y[i] = i + 1 and n = 20; what y held afterwards was measured on an
# NVIDIA H200, with CUDA 13.0. Where a thread computed before it came, its value is worked out.
MEASURED = {
    "idx": (
        "if (i < n) v = __shfl_sync(0xffffffffu, v, i + 1);"
        "else v = __shfl_sync(0xffffffffu, v, 3) * 2;",
        [*range(2, 22), *[8] * UPPER],
    ),
    "xor": (
        "if (i < n) v = __shfl_xor_sync(0xffffffffu, v, 16);"
        "else v = __shfl_xor_sync(0xffffffffu, v, 16) * 2;",
        [*range(17, 33), 1, 2, 3, 4, *range(10, 33, 2)],
    ),
    "one arm is longer": (
        "if (i < n) { v = sqrtf(v * v * v); v = __shfl_sync(0xffffffffu, v, i + 1); }"
        "else v = __shfl_sync(0xffffffffu, v, 3) * 2;",
        [*((i + 2) ** 1.5 for i in range(N - 1)), 21, *[16] * UPPER],
    ),
}


def on_a_warp(body: str) -> list[float]:
    source = f"""extern "C" __global__ void k(float* y, int n) {{
      int i = threadIdx.x;
      float v = y[i];
      {body}
      y[i] = v;
    }}"""
    ptx = compile_kernel(TranslationUnit(source, "k.cu", (9, 0)), "k").ptx
    before = np.arange(1, 33, dtype="f4")
    after: list[float] = run(ptx, {"k_param_0": before}, {"k_param_1": N})["k_param_0"].tolist()
    return after


@pytest.mark.parametrize("case", MEASURED)
def test_diverged_arms_exchange_values_as_measured_on_a_gpu(case: str) -> None:
    body, expected = MEASURED[case]
    assert on_a_warp(body) == pytest.approx(expected, rel=1e-6)


START = """
.reg .pred %p<9>; .reg .b32 %r<32>; .reg .b64 %a<9>;
mov.u32 %r1, %tid.x; ld.param.u64 %a1, [in]; ld.param.u64 %a2, [out]; ld.param.u64 %a5, [arm];
mul.wide.u32 %a3, %r1, 4; add.u64 %a1, %a1, %a3; add.u64 %a2, %a2, %a3; add.u64 %a5, %a5, %a3;
ld.global.u32 %r0, [%a1]; ld.global.u32 %r2, [%a5]; mov.u32 %r9, 0xAAAAAAAA;
"""


def in_arms(arms: list[str], arm: list[int], values: list[int]) -> Launched:
    """Each lane runs the arm that it is given, which turns %r0 into %r9."""
    code = "".join(
        f"test{n}: setp.ne.u32 %p1, %r2, {n}; @%p1 bra test{n + 1}; {each}; bra join;\n"
        for n, each in enumerate(arms)
    )
    body = f"{START}{code}test{len(arms)}:\njoin: st.global.u32 [%a2], %r9; ret;"
    given_arrays = {"in": values, "out": [0] * len(arm), "arm": arm}
    arrays = {name: np.array(each, "u4") for name, each in given_arrays.items()}
    text = kernel(body, ".u64 in, .u64 out, .u64 arm")
    return run(text, arrays, block=(len(arm), 1, 1))


ARM = st.lists(st.integers(0, 2), min_size=64, max_size=64)
VALUES = st.lists(st.integers(0, 5), min_size=64, max_size=64)


@settings(max_examples=12, deadline=None)
@given(ARM, VALUES, st.sampled_from([0, 1, 2]))
def test_diverged_arms_synchronize_as_if_there_were_no_branch(
    arm: list[int], values: list[int], instruction: int
) -> None:
    form, function = [
        ("redux.sync.add.u32 {r}, {r}, -1", lambda warp, lane: sum(warp)),
        ("shfl.sync.bfly.b32 {r}, {r}, 5, 31, -1", lambda warp, lane: warp[lane ^ 5]),
        (
            "match.any.sync.b32 {r}, {r}, -1",
            lambda warp, lane: sum((each == warp[lane]) << n for n, each in enumerate(warp)),
        ),
    ][instruction]
    # Each arm has a register of its own, which the result overwrites.
    arms = [
        f"mov.u32 %r{n}, %r0; {form.format(r=f'%r{n}')}; mov.u32 %r9, %r{n}" for n in (10, 11, 12)
    ]
    done = in_arms(arms, arm, values)
    warps = [values[:32], values[32:]]
    assert done["out"].tolist() == [function(warps[i // 32], i % 32) for i in range(64)]
    # A warp issues the instruction once an arm that any of its lanes takes.
    opcode = form.split()[0]
    steps = [s for s, e in enumerate(done.program.steps) if e.instruction.opcode == opcode]
    assert sum(done.tally.lanes[each] for each in steps) == 64
    assert sum(done.tally.warps[each] for each in steps) == len({*arm[:32]}) + len({*arm[32:]})


def test_two_arms_synchronize_before_the_third_joins() -> None:
    """Lanes 0 to 15 in two arms reduce among themselves; then all of the warp do."""
    few = "redux.sync.add.u32 %r8, %r0, 0xffff; redux.sync.add.u32 %r9, %r8, -1"
    arms = ["redux.sync.add.u32 %r9, %r0, -1", few, few]
    values = list(range(32))
    done = in_arms(arms, [1] * 5 + [2] * 11 + [0] * 16, values)
    assert done["out"].tolist() == [sum(range(16)) * 16 + sum(range(16, 32))] * 32


def test_exited_and_diverged_lanes_take_no_part() -> None:
    """A vote is over those who come; what a shuffle reads from others is undefined."""
    values = list(range(1, 33))
    half = [0] * 16 + [1] * 16
    vote = "vote.sync.ballot.b32 %r9, 1, -1"
    for other in ("exit", "bar.sync 0", "redux.sync.or.b32 %r8, %r0, -1"):
        done = in_arms(["shfl.sync.bfly.b32 %r9, %r0, 16, 31, -1", other], half, values)
        assert done["out"].tolist()[:16] == [0xFFFF_FFFF] * 16
        assert in_arms([vote, other], half, values)["out"].tolist()[:16] == [0xFFFF] * 16
    # Another mask is another instruction: these lanes do not come.
    masks = ["vote.sync.ballot.b32 %r9, 1, -1", "vote.sync.ballot.b32 %r9, 1, 0xffff0000"]
    assert in_arms(masks, half, values)["out"].tolist() == [0xFFFF] * 16 + [0xFFFF_0000] * 16


def test_arms_synchronize_while_another_warp_spins() -> None:
    """The second warp spins until the first has added up what its two arms hold."""
    arm = "redux.sync.add.u32 %r9, %r0, -1; st.shared.u32 [flag], %r9"
    spin = "spin: ld.volatile.shared.u32 %r9, [flag]; setp.eq.u32 %p2, %r9, 0; @%p2 bra spin"
    arms = [f".shared .b32 flag; {spin}", arm, arm]
    done = in_arms(arms, [1] * 7 + [2] * 25 + [0] * 32, [3] * 64)
    assert done["out"].tolist() == [96] * 64
