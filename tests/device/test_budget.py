"""The limits of emulating a launch: the memory that is left, and the memory that is needed."""

from __future__ import annotations

import math
import resource
from pathlib import Path

import pytest

from memlab.device import budget
from memlab.device.budget import Budget, EmulationMemoryError
from memlab.errors import UsageError


def test_what_just_fits_is_allowed() -> None:
    limited = Budget(memory_bytes=2**20)
    limited.check(2**20, "arrays")
    with pytest.raises(EmulationMemoryError, match=r"1048576 are allowed: .* --memory-limit 2MiB"):
        limited.check(2**20 + 1, "arrays")


def test_a_limit_of_no_memory_is_refused() -> None:
    assert Budget(memory_bytes=1).allowed_bytes() == 1
    with pytest.raises(UsageError, match="more than 0 bytes, got 0"):
        Budget(memory_bytes=0)


def test_without_a_limit_some_free_memory_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "available_memory_bytes", lambda: budget.RESERVED_BYTES + 7)
    assert Budget().allowed_bytes() == 7
    monkeypatch.setattr(budget, "available_memory_bytes", lambda: 7)
    assert Budget().allowed_bytes() == 0


@pytest.mark.parametrize(
    ("most", "statistics", "free"),
    [
        ("1000", "file 300\ninactive_file 100\n", 500),  # page cache can be freed
        ("1000", "file 300\n", 400),
        ("max", "inactive_file 100\n", math.inf),
        (None, "inactive_file 100\n", math.inf),  # no control groups
    ],
)
def test_a_containers_limit_bounds_the_free_memory(
    most: str | None,
    statistics: str,
    free: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if most is not None:
        (tmp_path / "memory.max").write_text(f"{most}\n")
    (tmp_path / "memory.current").write_text("600\n")
    (tmp_path / "memory.stat").write_text(statistics)
    monkeypatch.setattr(budget, "Path", lambda _: tmp_path)
    assert budget._cgroup_available_bytes() == free


def test_memory_that_the_process_holds_counts_in_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = tmp_path / "statm"
    pages.write_text("3 2 1\n")
    monkeypatch.setattr(budget, "Path", lambda _: pages)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10**6, 10**6))
    assert budget._process_available_bytes() == 10**6 - 3 * resource.getpagesize()
