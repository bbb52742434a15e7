"""benchmarks.bars: rows are kept as they come, and say what failed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import bars, gpu_results
from benchmarks.bars import Row
from benchmarks.beside_cublas import Timed
from memlab.device.datasheets.loader import load_datasheet
from memlab.device.gpu import nvml
from memlab.device.measurement import Verification
from memlab.errors import MemlabError

H200 = load_datasheet("h200")
PASSED = Verification("passed", 1e-7, 1e-5, 10, 10)
FAILED = Verification("failed", 0.5, 1e-5, 10, 10, worst="P[3, 4] is 1, expected 2")


@pytest.fixture
def on_an_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars.gpu_query, "query_properties", lambda index: H200)
    monkeypatch.setattr(bars, "head", lambda name: name)
    monkeypatch.setattr(bars, "conditions", lambda properties: "NVRTC 13.0")


@pytest.mark.usefixtures("on_an_h200")
def test_an_interrupted_run_leaves_the_rows_it_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "h200-bars.csv"

    def interrupted(*_: object) -> Iterator[Row]:
        yield Row("warp-tiled", "width=2048", "passed", ratio="1.012")
        assert path.read_text().splitlines()[1].startswith("warp-tiled,width=2048,passed,")
        raise KeyboardInterrupt

    monkeypatch.setattr(bars, "measured", interrupted)

    with pytest.raises(KeyboardInterrupt):
        bars.main([str(tmp_path)])

    head, row = path.read_text().splitlines()
    assert dict(zip(head.split(","), row.split(","), strict=True))["ratio"] == "1.012"


@pytest.mark.usefixtures("on_an_h200")
def test_a_wrong_kernel_is_named_with_its_worst_element(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = Timed(343.6e-6, 1.755e9), FAILED, Timed(343.6e-6, 1.98e9)
    monkeypatch.setattr(bars, "time_beside_cublas", lambda *_: times)
    monkeypatch.setattr(bars, "PRODUCTS", (("warp-tiled", {"width": 2048}),))

    assert bars.main(["--only", "products"]) == 1

    row = capsys.readouterr().out.splitlines()[-1]
    # 2 x 2048^3 = 17.18 GFLOP in 343.6 us are 50.0 TFLOP/s, as fast as the bar.
    for text in ("failed", "50 TFLOP/s", "1755", "1980", "1.000", "P[3, 4] is 1, expected 2"):
        assert text in row


@pytest.mark.usefixtures("on_an_h200")
def test_a_kernel_that_faults_does_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def first_faults(*_: object) -> tuple[Timed, Verification, Timed]:
        if next(calls) == 0:
            raise MemlabError("illegal address in warp-tiled")
        return Timed(1e-3, None), PASSED, Timed(1e-3, None)

    calls = iter(range(2))
    monkeypatch.setattr(bars, "time_beside_cublas", first_faults)
    monkeypatch.setattr(bars, "PRODUCTS", 2 * (("warp-tiled", {"width": 2048}),))

    assert bars.main(["--only", "products"]) == 1

    *_, faulted, good = capsys.readouterr().out.splitlines()
    assert "error" in faulted
    assert faulted.endswith("illegal address in warp-tiled")
    assert "passed" in good


def test_conditions_name_the_compiler_the_clocks_and_the_power_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = nvml.Gpu(
        0,
        "NVIDIA H200",
        uuid="GPU-9c7f",
        compute_capability=(9, 0),
        maximum_sm_clock_hz=1_980_000_000,
        memory_clock_hz=3_201_000_000,
        power_limit_w=700.0,
    )
    monkeypatch.setattr(gpu_results.nvml, "gpus", lambda: (gpu,))
    monkeypatch.setattr(gpu_results.nvrtc, "package_version", lambda: "13.0.88")

    assert gpu_results.conditions(replace(H200, uuid="GPU-9c7f")) == (
        "NVRTC 13.0.88; SM clock at most 1980 MHz; memory clock 3201 MHz; power limit 700 W"
    )
