"""Which loaded values go into a shuffle, and what that orders."""

import numpy as np
from ptx import kernel

from memlab.device.emulator.checks.lane_exchanges import LaneExchanges, find_exchanged_loads
from memlab.device.emulator.program.program import load_program
from memlab.device.emulator.ptx.parser import parse_ptx

LOADS = """.reg .b32 %x<9>; .reg .pred %p; .shared .align 4 .b8 s[64];
ld.shared.u32 %x1, [s];
ld.shared.u32 %x2, [s+4];
ld.shared.u32 %x3, [%x1];
add.u32 %x4, %x3, 1;
shfl.sync.bfly.b32 %x5, %x4, 1, 31, -1;
setp.ne.u32 %p, %x5, %x2;
vote.sync.any.pred %p, %p, -1;
activemask.b32 %x6; ret;"""


def test_values_and_addresses_of_loads_go_into_exchanges() -> None:
    program = load_program(parse_ptx(kernel(LOADS)), "k")
    assert find_exchanged_loads(program.steps) == {4: frozenset({0, 2}), 6: frozenset({0, 1, 2})}


def test_an_exchange_orders_what_was_read_before_its_last_execution() -> None:
    exchanges = LaneExchanges({4: frozenset({0})}, 9, 64)
    exchanges.times[4][:] = 10, -1
    exchanges.partners[4][:8] = 0x0F

    def order(lane: int, other: int, step: int, time: int, block: int = 0) -> bool:
        one = [np.array([value]) for value in (lane, lane, block << 10 | other, step, time)]
        return bool(exchanges.order(*one)[0])

    assert order(1, 2, 0, 10)
    assert not order(1, 2, 0, 11)  # read after it
    assert not order(1, 2, 1, 10)  # another load
    assert not order(1, 5, 0, 10)  # it took no part
    assert not order(33, 34, 0, 10)  # the warp has executed none
    assert not order(1, 34, 0, 10)  # another warp
    assert not order(1, 2, 0, 10, block=1)
