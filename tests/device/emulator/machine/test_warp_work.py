"""The work of warps, noted by block."""

import numpy as np

from memlab.device.emulator.machine.tally import WarpWork, is_unequal
from memlab.device.emulator.machine.threads import Grid


def test_work_is_noted_in_the_order_of_launch():
    work = WarpWork(Grid((2, 2, 2), (64, 1, 1), 0, b""))
    work.note(np.array([[1, 1, 0], [0, 1, 0], [1, 0, 1]]), np.array([7, 8, 5, 6, 11, 12, 99]))
    work.note(np.array([[0, 0, 0], [1, 0, 0], [0, 1, 1]]), np.array([1, 2, 3, 4, 13, 14]))
    assert work.of_whole_grid() is None
    work.note(np.array([[1, 1, 1], [0, 0, 1]]), np.array([15, 16, 9, 10]))
    assert work.of_whole_grid().tolist() == np.arange(1, 17).reshape(8, 2).tolist()


def test_a_few_idle_blocks_are_equal_work_and_a_long_one_is_not():
    work = np.full((100, 4), 50)
    assert not is_unequal(work)
    work[97:] = 5
    assert not is_unequal(work)
    work[40] = 500
    assert is_unequal(work)


def test_warps_that_differ_alike_in_all_blocks_are_equal_work():
    assert not is_unequal(np.array([[10, 90]] * 8))
    assert is_unequal(np.array([[10, 90], [90, 10]]))
