"""Sweeps on real GPUs: one worker a GPU, and the energy of launches."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

import memlab
from memlab.device.devices import usable_gpu_names
from memlab.roofline.store.store import Store

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs.sqlite3"))
    return tmp_path


def test_each_gpu_has_a_worker_and_says_where_a_point_ran() -> None:
    pytest.importorskip("distributed")
    count = len(usable_gpu_names())

    swept = memlab.sweep(
        "tiled", tile=[8, 16, 32], width=[512, 1024], workers=count, keep=True, samples=10
    )

    assert len(swept.done) == 6
    frame = swept.frame()
    assert len(set(frame["gpu_uuid"])) == count
    assert frame["clock_hz"].min() > 1e8
    assert frame[["host", "driver"]].notna().all(axis=None)
    assert len(Store().ids()) == 6
    with pytest.raises(memlab.UsageError, match="one a GPU"):
        memlab.sweep("tiled", workers=count + 1)


@pytest.mark.alone
def test_more_work_takes_more_energy() -> None:
    pytest.importorskip("pynvml")
    swept = memlab.sweep("tiled", width=[1024, 2048, 4096], objective="energy", samples=3)

    joules = [row.energy_j for row in sorted(swept.rows, key=lambda row: int(row.values["width"]))]
    assert all(joules)
    assert all(4 < more / less < 16 for less, more in pairwise(map(float, filter(None, joules))))
