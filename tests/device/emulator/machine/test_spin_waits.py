"""Threads that wait for what others write: they end, and a poll in vain is counted once."""

from typing import ClassVar

import numpy as np
import pytest
from ptx import kernel, run

from memlab.device.emulator.machine.observer import ExecutionPolicy

DECLARED = ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<32>; .reg .b64 %a<9>;\n"

# Block 0 comes first to its loop, and block 1 only then to the store that ends it.
FLAG = """
ld.param.u64 %a1, [flag]; ld.param.u64 %a2, [out]; mov.u32 %r1, %ctaid.x; mov.u32 %r5, 0;
setp.ne.u32 %p1, %r1, 0; @%p1 bra write;
loop: {poll} @%p2 bra loop;
st.global.u32 [%a2], %r5; ret;
write: st.volatile.global.u32 [%a1], 7; ret;
"""


@pytest.mark.parametrize(
    ("before", "poll"),
    [
        (0, "ld.volatile.global.u32 %r5, [%a1]; setp.eq.u32 %p2, %r5, 0;"),
        (3, "ld.acquire.gpu.u32 %r5, [%a1]; setp.ne.u32 %p2, %r5, 7;"),
        (255, "ld.volatile.global.s8 %r5, [%a1]; setp.eq.s32 %p2, %r5, -1;"),
        (0, "ld.relaxed.gpu.global.u16 %h1, [%a1]; cvt.u32.u16 %r5, %h1; setp.eq.u32 %p2, %r5, 0;"),
        (0, "ld.volatile.global.v2.u32 {%r6, %r5}, [%a1+-4]; setp.eq.u32 %p2, %r5, 0;"),
        (0, "nanosleep.u32 20; ld.volatile.global.u32 %r5, [%a1]; setp.eq.u32 %p2, %r5, 0;"),
        (0, "atom.global.cas.b32 %r5, [%a1], 7, 9; setp.ne.u32 %p2, %r5, 7;"),
        (0, "atom.global.or.b32 %r5, [%a1], 0; setp.eq.u32 %p2, %r5, 0;"),
    ],
)
def test_a_poll_that_reads_the_same_value_is_counted_once(before: int, poll: str) -> None:
    text = kernel(DECLARED + FLAG.format(poll=poll), ".u64 flag, .u64 out")
    arrays = {"pad": np.zeros(128, "u4"), "flag": np.zeros(4, "u4"), "out": np.zeros(1, "u4")}
    arrays["flag"][1] = before
    text = text.replace("[flag];", "[flag]; add.u64 %a1, %a1, 4;")
    done = run(text, arrays, grid=(2, 1, 1), block=(1, 1, 1), order=("flag", "out"))
    assert done["out"][0] == 7
    opcode = next(word for word in poll.split() if word.startswith(("ld", "atom")))
    assert done.counted(opcode)["warps"] == 2, "one in vain, one that finds it"


@pytest.mark.parametrize(
    "poll",
    [
        "atom.global.exch.b32 %r5, [%a1], 8; setp.ne.u32 %p2, %r5, 8;",  # ends by what it did
        "add.u32 %r6, %r6, 1; ld.volatile.global.u32 %r5, [%a1]; setp.lt.u32 %p2, %r6, 9999;",
        "ld.volatile.global.u32 %r4, [%a1]; mov.u32 %r5, %clock; setp.lt.u32 %p2, %r5, 99999;",
    ],
)
def test_a_polling_loop_with_its_own_end_terminates(poll: str) -> None:
    body = FLAG.format(poll=poll).replace("write: st.volatile.global.u32 [%a1], 7;", "write:")
    arrays = {"flag": np.zeros(1, "u4"), "out": np.zeros(1, "u4")}
    text = kernel(DECLARED + body, ".u64 flag, .u64 out")
    run(text, arrays, grid=(2, 1, 1), block=(1, 1, 1))


class Trial(ExecutionPolicy):
    """Runs blocks that may wait for blocks that do not run."""

    is_trial: ClassVar[bool] = True


def test_a_trial_run_ends_where_all_lanes_wait_in_vain() -> None:
    """Block 1, which would set the flag, does not run."""
    poll = "ld.volatile.global.u32 %r5, [%a1]; setp.eq.u32 %p2, %r5, 0;"
    text = kernel(DECLARED + FLAG.format(poll=poll), ".u64 flag, .u64 out")
    arrays = {"flag": np.zeros(1, "u4"), "out": np.full(1, 3, "u4")}
    assert run(text, arrays, blocks=[(0, 0, 0)], observers=[Trial()])["out"][0] == 3


ONE_WAY_OUT = "loop: {ask} setp.eq.u32 %p2, %r5, 0; @%p2 bra loop;"
TWO_WAYS_OUT = """loop: {ask} setp.gt.u32 %p2, %r5, 1; @%p2 bra done;
setp.eq.u32 %p3, %r5, 0; @%p3 bra loop;"""


@pytest.mark.parametrize("block", [1, 64])
@pytest.mark.parametrize(("loop", "most"), [(ONE_WAY_OUT, 2), (TWO_WAYS_OUT, 11)])
@pytest.mark.parametrize(
    "ask", ["ld.volatile.global.u32 %r5, [%a2];", "atom.or.b32 %r5, [%a2], 0;"]
)
def test_blocks_in_a_chain_wait_for_their_predecessor(
    block: int, loop: str, most: int, ask: str
) -> None:
    """Each thread waits for the same one of the block before, and adds to what that one wrote."""
    body = f"""
    ld.param.u64 %a1, [state]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r4, %r2, %r3, %r1; mul.wide.u32 %a3, %r4, 4; add.u64 %a1, %a1, %a3;
    mul.wide.u32 %a4, %r3, 4; sub.u64 %a2, %a1, %a4; mov.u32 %r5, 0;
    setp.eq.u32 %p1, %r2, 0; @%p1 bra done;
    {loop.format(ask=ask)}
    done: add.u32 %r5, %r5, 1; st.volatile.global.u32 [%a1], %r5;
    """
    blocks = 40
    done = run(
        kernel(DECLARED + body, ".u64 state"),
        {"state": np.zeros(blocks * block, "u4")},
        grid=(blocks, 1, 1),
        block=(block, 1, 1),
    )
    assert (done["state"].reshape(blocks, block) == np.arange(1, blocks + 1)[:, None]).all()
    opcode, waiting = ask.partition(" ")[0], (blocks - 1) * -(-block // 32)
    polls = done.counted(opcode)["requests"]
    assert waiting <= polls <= most * waiting


@pytest.mark.parametrize("observers", [[], [Trial()]], ids=["launch", "trial"])
def test_blocks_take_turns(observers: list[Trial]) -> None:
    """A trial goes on as long as one block does, though all others wait again and again."""
    body = """
    ld.param.u64 %a1, [turn]; mov.u32 %r1, %ctaid.x;
    loop: ld.volatile.global.u32 %r2, [%a1]; setp.ne.u32 %p1, %r2, %r1; @%p1 bra loop;
    add.u32 %r2, %r2, 1; st.volatile.global.u32 [%a1], %r2;
    """
    blocks = 20
    done = run(
        kernel(DECLARED + body, ".u64 turn"),
        {"turn": np.zeros(1, "u4")},
        grid=(blocks, 1, 1),
        block=(1, 1, 1),
        observers=observers,
    )
    assert done["turn"][0] == blocks


def test_a_spin_lock_passes_from_thread_to_thread() -> None:
    """Each thread in turn adds to a number that the lock alone protects."""
    body = """
    ld.param.u64 %a1, [lock]; ld.param.u64 %a2, [sum]; mov.u32 %r9, 0;
    again: atom.acquire.gpu.global.exch.b32 %r1, [%a1], 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra next;
    ld.volatile.global.u32 %r2, [%a2]; add.u32 %r2, %r2, 3; st.volatile.global.u32 [%a2], %r2;
    st.release.gpu.global.u32 [%a1], 0; mov.u32 %r9, 1;
    next: setp.eq.u32 %p2, %r9, 0; @%p2 bra again;
    """
    text = kernel(DECLARED + body, ".u64 lock, .u64 sum")
    arrays = {"lock": np.zeros(1, "u4"), "sum": np.zeros(1, "u4")}
    assert run(text, arrays, grid=(4, 1, 1), block=(48, 1, 1))["sum"][0] == 3 * 4 * 48
