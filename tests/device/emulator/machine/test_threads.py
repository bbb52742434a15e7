"""Threads of a chunk, and their special registers."""

import numpy as np

from memlab.device.emulator.isa.special_registers import THREAD_REGISTERS, is_special
from memlab.device.emulator.machine.threads import Grid, Threads, block_coordinates


def test_every_register_that_the_table_names_has_a_value() -> None:
    grid = Grid((2, 1, 1), (33, 1, 1), 0, b"")
    threads = Threads(grid, np.array([(0, 0, 0), (1, 0, 0)]))
    of_threads = threads.thread_registers(THREAD_REGISTERS)
    of_blocks = threads.block_registers(THREAD_REGISTERS)

    assert sorted([*grid.registers, *of_threads, *of_blocks]) == sorted(THREAD_REGISTERS)
    assert {len(values) for values in of_threads.values()} == {64}
    assert {len(values) for values in of_blocks.values()} == {2}
    assert is_special("%clock64")
    assert not is_special("%r1")


def test_blocks_lie_in_launch_order_with_x_fastest() -> None:
    assert block_coordinates(np.array([0, 1, 3, 6]), (3, 2, 2)).tolist() == [
        [0, 0, 0],
        [1, 0, 0],
        [0, 1, 0],
        [0, 0, 1],
    ]
