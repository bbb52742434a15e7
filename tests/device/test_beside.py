"""What runs beside something else."""

import threading
import time
from contextlib import suppress

import pytest

from memlab.device.beside import beside


def test_both_run_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=30)
    with beside(meeting.wait) as other:
        own = meeting.wait()
    assert {own, other.result()} == {0, 1}


def test_what_it_raises_is_raised_where_its_result_is_asked_for() -> None:
    with beside(lambda: 1 // 0) as other:
        pass
    with pytest.raises(ZeroDivisionError):
        other.result()


def test_it_has_ended_when_the_block_fails() -> None:
    found: list[int] = []
    with suppress(KeyError), beside(lambda: time.sleep(0.1)) as other:
        found.append({}[0])
    assert other.done()
    assert not found
