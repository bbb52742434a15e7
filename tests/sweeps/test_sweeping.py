"""`memlab.sweep`: points, their ranking, failures, the store, and what interrupts it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memlab
from memlab.named_runs import find_runs
from memlab.roofline.store.store import Store
from memlab.sweeps.sweeping import SweepInterrupted

SOURCE = """\
extern "C" __global__ void scale(const float* x, float* y, int n) {
  __shared__ float s[TILE];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  s[threadIdx.x % TILE] = 2.0f;
  __syncthreads();
  if (i < n + OFFSET) y[i] = s[threadIdx.x % TILE] * x[i];
}
"""
SCALE: dict[str, Any] = {
    "symbols": {"N": ["1K", 4096], "B": [64, 128, 2048]},
    "defines": {"TILE": [8, 16], "OFFSET": 0},
    "grid": "ceil(N/B)",
    "block": "B",
    "args": ["f32[N]", "out:f32[N]", "N"],
    "restrict": "B*TILE <= 2048 or B > 1024",
    "device": "h200",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs.sqlite3"))
    (tmp_path / "scale.cu").write_text(SOURCE)
    return tmp_path


def test_each_point_is_the_run_of_its_values_and_the_best_comes_first() -> None:
    swept = memlab.sweep("tiled", tile=[8, 16], width="32:64:x2", device=["h200", "a100"])

    assert len(swept.done) == len(swept.rows) == 8
    assert {tuple(row.values.items()) for row in swept.rows} == {
        (("kernel", "tiled"), ("device", device), ("tile", tile), ("width", width))
        for device in ("h200", "a100")
        for tile in (8, 16)
        for width in (32, 64)
    }
    times = [row.value for row in swept.rows if row.value is not None]
    assert times == sorted(times)
    fast = memlab.sweep("tiled", tile=16, width=[32, 64], device="h200", objective="flop_per_s")
    assert [row.values["width"] for row in fast.rows] == [64, 32]
    for row in swept.rows[:2]:
        alone = memlab.run(
            "tiled", tile=row.values["tile"], width=row.values["width"], device=row.values["device"]
        )
        assert row.run is not None
        assert row.run.measurement == alone.measurement
    frame = swept.frame()
    assert list(frame["rank"]) == list(range(1, 9))
    assert set(frame["device"]) == {"h200", "a100"}
    assert Store().runs() == []


def test_symbols_macros_and_restrictions_make_the_points_of_a_user_kernel() -> None:
    swept = memlab.sweep(
        "scale.cu:scale", **SCALE, objective="warp_instructions", reference=lambda x, y, n: 2 * x
    )

    assert {(row.values["N"], row.values["B"], row.values["TILE"]) for row in swept.done} == {
        (n, b, t) for n in (1024, 4096) for b in (64, 128) for t in (8, 16)
    }
    assert swept.excluded == 0
    impossible = [row for row in swept.rows if row.status == "impossible"]
    assert len(impossible) == 4
    assert all("2048 threads per block" in row.reason for row in impossible)
    counts = [row.value for row in swept.done]
    assert counts == sorted(counts, key=float)
    assert swept.best is not None
    assert swept.best.run is not None
    assert swept.best.value == swept.best.run.measurement.counters.warp_instructions
    fewer = memlab.sweep("scale.cu:scale", **{**SCALE, "restrict": ["B < 100", "TILE*B == 512"]})
    assert (fewer.excluded, len(fewer.rows)) == (10, 2)


def test_faults_and_wrong_outputs_keep_their_reason_and_do_not_stop_the_rest() -> None:
    swept = memlab.sweep(
        "scale.cu:scale",
        symbols={"N": [1024]},
        defines={"TILE": [1, 8], "OFFSET": [0, 512]},
        grid=8,
        block=256,
        args=["f32[N]", "out:f32[N]", "N"],
        device="h200",
        reference=lambda x, y, n: 2 * x if len(x) else x,
        restrict="TILE > 1 or OFFSET == 0",
    )
    assert [row.status for row in swept.rows] == ["done", "done", "fault"]
    assert "y" in swept.rows[2].reason
    wrong = memlab.sweep(
        "scale.cu:scale", **{**SCALE, "symbols": {"N": 1024, "B": 64}}, reference=lambda x, y, n: x
    )
    assert {row.status for row in wrong.rows} == {"wrong"}
    assert "relative error" in wrong.rows[0].reason
    assert wrong.best is None


def test_a_kernel_without_a_parameter_runs_once() -> None:
    swept = memlab.sweep("aligned", "strided", stride=[2, 4], device="h200")

    assert [(row.values["kernel"], row.values.get("stride")) for row in swept.rows] in (
        [("aligned", None), ("strided", 2), ("strided", 4)],
        [("aligned", None), ("strided", 4), ("strided", 2)],
    )


def test_stored_points_are_not_run_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = memlab.sweep("scale.cu:scale", **SCALE, keep=True)
    ids = [run.id for run in Store().runs()]
    assert len(ids) == len(first.done) == 8
    assert {run.identity.sweep for run in Store().runs()} == {"sweep-1"} == {first.name}

    wider = {**SCALE, "symbols": {"N": ["1K", "2K", "4K"], "B": [64, 128, 2048]}}
    second = memlab.sweep("scale.cu:scale", **wider, keep=True, name="wider")
    assert sum(row.reused for row in second.rows) == 12
    assert len(Store().ids()) == 12
    assert {run.id for run in find_runs("wider")} == {run.id for run in Store().runs()}

    for changed in ({"seed": 1}, {"device": "a100"}, {"timeout_s": 30}):
        assert not any(
            row.reused
            for row in memlab.sweep("scale.cu:scale", **{**SCALE, **changed}, keep=True).done
        )
    (folder / "scale.cu").write_text(SOURCE + "\n// changed")
    assert not any(row.reused for row in memlab.sweep("scale.cu:scale", **SCALE, keep=True).done)
    again = memlab.sweep("scale.cu:scale", **SCALE, keep=True, again=True)
    assert not any(row.reused for row in again.rows)


def test_files_that_a_launch_names_tell_points_apart(folder: Path) -> None:
    (folder / "scale.cu").write_text('#include "factor.h"\n' + SOURCE.replace("2.0f", "FACTOR"))
    (folder / "reference.py").write_text("def twice(x, y, n):\n    return 2 * x\n")
    np.save(folder / "x.npy", np.ones(64, np.float32))
    launch: dict[str, Any] = {
        **SCALE,
        "symbols": {"N": 64, "B": 32},
        "args": ["f32[]=@x.npy", "out:f32[N]", "N"],
        "reference": "reference.py:twice",
        "keep": True,
    }

    def statuses() -> list[tuple[str, bool]]:
        rows = memlab.sweep("scale.cu:scale", **launch).rows
        return sorted({(row.status, row.reused) for row in rows})

    (folder / "factor.h").write_text("#define FACTOR 2.0f\n")
    assert statuses() == [("done", False)]
    assert statuses() == [("done", True)]
    (folder / "factor.h").write_text("#define FACTOR 3.0f\n")
    assert statuses() == [("wrong", False)]
    (folder / "reference.py").write_text("def twice(x, y, n):\n    return 3 * x\n")
    assert statuses() == [("done", False)]
    np.save(folder / "x.npy", np.ones(65, np.float32)[:64].astype(np.float32) * 5)
    assert statuses() == [("done", False)]


def interrupt_after(points: int) -> Any:
    def progress(step: str, fraction: float | None) -> None:
        if step.startswith(f"{points} of"):
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("by_name", [True, False])
def test_an_interrupted_sweep_is_kept_and_resumed(by_name: bool) -> None:
    with pytest.raises(SweepInterrupted, match="3 of 12 points of sweep-1 are kept") as stopped:
        memlab.sweep("scale.cu:scale", **SCALE, keep=True, progress=interrupt_after(3))
    assert len(stopped.value.result.rows) == 3
    kept = Store().ids()

    if by_name:
        rest = memlab.sweep(resume=True, keep=True)
    else:
        rest = memlab.sweep("scale.cu:scale", **SCALE, keep=True, resume=True)

    whole = memlab.sweep("scale.cu:scale", **SCALE)
    assert rest.name == "sweep-1"
    assert [(row.values, row.status, row.value) for row in rest.rows] == [
        (row.values, row.status, row.value) for row in whole.rows
    ]
    runs = Store().runs()
    assert len(runs) == len(whole.done)
    assert [run.id for run in runs][: len(kept)] == kept


def test_ctrl_c_is_not_lost_where_python_ignores_its_exception() -> None:
    before = signal.getsignal(signal.SIGINT)

    def progress(step: str, fraction: float | None) -> None:
        if step.startswith("3 of"):
            with suppress(KeyboardInterrupt):  # as in a finalizer
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(SweepInterrupted) as stopped:
        memlab.sweep("scale.cu:scale", **SCALE, progress=progress)
    assert len(stopped.value.result.rows) <= 4
    assert signal.getsignal(signal.SIGINT) is before


def test_what_cannot_be_resumed_is_one_line() -> None:
    x = np.ones(64, np.float32)
    with pytest.raises(SweepInterrupted):
        memlab.sweep(
            "scale.cu:scale",
            **{
                **SCALE,
                "args": [x, memlab.out(64, "f32"), 64],
                "symbols": {"N": 64, "B": [32, 64]},
            },
            keep=True,
            progress=interrupt_after(1),
        )
    for arguments, said in (
        ({"keep": True}, "arrays or functions in memory"),
        ({"keep": True, "name": "other"}, r"no sweep 'other' to resume \(known: sweep-1\)"),
        ({}, "add keep=True"),
        ({"keep": True, "tile": 8}, "has its own points"),
    ):
        with pytest.raises(memlab.UsageError, match=said):
            memlab.sweep(resume=True, **arguments)  # type: ignore[arg-type]
    with pytest.raises(memlab.UsageError, match="'sweep-1' has other kernels, points or options"):
        memlab.sweep("tiled", keep=True, resume=True, name="sweep-1")


@pytest.mark.parametrize(
    ("kernels", "arguments", "said"),
    [
        ([], {}, "needs a kernel"),
        (["tilde"], {}, "did you mean 'tiled'"),
        (["tiled"], {"til": 8}, "no parameter 'til': did you mean 'tile'"),
        (["tiled"], {"tile": "8:4:2"}, "tile: the range '8:4:2' has no step"),
        (["tiled", "scale.cu:scale"], {}, "of the catalog or your own"),
        (["tiled"], {"restrict": "tlie < 3"}, "unknown parameter 'tlie': did you mean 'tile'"),
        (["tiled"], {"tile": [8, 16], "restrict": "tile < 3"}, "no point of 2 meets"),
        (
            ["scale.cu:scale"],
            {**SCALE, "restrict": "B > 4*N"},
            "no point of 12 meets .* 'B > 4\\*N'",
        ),
        (["scale.cu:scale"], {**SCALE, "restrict": "B > 0 or Q > 3"}, "unknown symbol 'Q'"),
        (["scale.cu:scale"], {**SCALE, "grid": "ceil(N/BB)"}, "--grid: .* unknown symbol 'BB'"),
        (["scale.cu:scale", "none.cu:scale"], SCALE, "cannot read none.cu"),
        (["tiled"], {"objective": "tim"}, "did you mean 'time'"),
        (["tiled"], {"objective": "requests"}, "did you mean .*_requests'"),
        (["tiled"], {"objective": "zz"}, "no objective 'zz': time, energy, "),
        (["tiled"], {"strategy": "nope"}, "no strategy 'nope': known: all, random, tpe"),
        (["tiled"], {"strategy": "rand"}, "did you mean 'random'"),
        (["tiled"], {"strategy": "random"}, "needs a limit"),
        (["tiled"], {"device": "h20"}, "no datasheet 'h20'"),
        (["tiled"], {"name": "a b", "keep": True}, "cannot name a sweep"),
        (["tiled"], {"workers": 1, "scheduler": "tcp://a:1"}, "choose one"),
    ],
)
def test_wrong_calls_are_one_line(kernels: list[str], arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(memlab.UsageError, match=said) as error:
        memlab.sweep(*kernels, **arguments)
    assert "\n" not in str(error.value)


def test_a_sweep_that_cannot_run_is_not_stored() -> None:
    for arguments in ({"restrict": "B > 4*N"}, {"grid": "QQ"}, {"restrict": "QQ > 1"}):
        with pytest.raises(memlab.UsageError):
            memlab.sweep("scale.cu:scale", **{**SCALE, **arguments}, keep=True)
    swept = memlab.sweep("tiled", tile=64, device="h200", keep=True)
    assert ([row.status for row in swept.rows], swept.name) == (["impossible"], "")
    with pytest.raises(memlab.UsageError, match="no sweep to resume"):
        memlab.sweep(resume=True, keep=True)


def test_a_restriction_concerns_the_kernels_that_have_its_parameters() -> None:
    swept = memlab.sweep("aligned", "strided", stride=[2, 4], restrict="stride < 4", device="h200")
    assert {(row.values["kernel"], row.values.get("stride")) for row in swept.done} == {
        ("aligned", None),
        ("strided", 2),
    }


def test_energy_needs_a_gpu() -> None:
    with pytest.raises(memlab.DeviceError, match=r"by NVML.*h200 is emulated"):
        memlab.sweep("tiled", device="h200", objective="energy")
