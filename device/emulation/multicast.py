"""What copies to several blocks of a cluster bring to further blocks than the first one."""

from __future__ import annotations

from memlab.device.emulator.isa.asynchronous.bulk_copies import is_multicast
from memlab.device.emulator.machine.tally import Tally
from memlab.device.emulator.program.program import Program


def sectors_to_others(program: Program, tally: Tally) -> int:
    """Sectors that multicast copies deliver, less those that they read from the L2.

    A copy reads its box once and sends it to each receiver: an H100 counts what arrives, so twice
    the sectors where two blocks receive a box (l1tex__m_xbar2l1tex_read_sectors of `wgmma-cluster`,
    tests/data/h100-hopper-counters.csv).

    Args:
        program: The program.
        tally: Its counts.
    """
    others = 0.0
    for write, step in enumerate(program.steps):
        if tally.lanes[write] and step.row.kind == "store" and is_multicast(step.row):
            receivers = tally.receivers[write] / tally.lanes[write]
            others += tally.sectors[write - 1] * (receivers - 1)  # read by the instruction before
    return round(others)
