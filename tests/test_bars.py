"""benchmarks.bars: rows are kept as they come, and say what failed."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import bars, beside_cublas, gpu_results
from benchmarks.bars import Row
from benchmarks.beside_cublas import Turn, Turns, summary
from memlab.device.datasheets.loader import load_datasheet
from memlab.device.gpu import nvml
from memlab.device.gpu.timing import Sample, Samples
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
    own, library = Turn(343.6e-6, 1.755e9, 690.4), Turn(343.6e-6, 1.98e9, 512.0)
    turns = Turns([own], [library])
    monkeypatch.setattr(bars, "time_beside_cublas", lambda *_: (turns, FAILED))
    monkeypatch.setattr(bars, "PRODUCTS", (("warp-tiled", {"width": 2048}),))

    assert bars.main(["--only", "products"]) == 1

    row = capsys.readouterr().out.splitlines()[-1]
    # 2 x 2048^3 = 17.18 GFLOP in 343.6 us are 50.0 TFLOP/s, as fast as the bar.
    for text in ("failed", "50 TFLOP/s", "1755", "1980", "1.000", "P[3, 4] is 1, expected 2"):
        assert text in row
    assert row.split()[-8:-6] == ["690", "512"]  # watts, before the last column's words


@pytest.mark.usefixtures("on_an_h200")
def test_a_kernel_that_faults_does_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def first_faults(*_: object) -> tuple[Turns, Verification]:
        if next(calls) == 0:
            raise MemlabError("illegal address in warp-tiled")
        return Turns([Turn(1e-3)], [Turn(1e-3)]), PASSED

    calls = iter(range(2))
    monkeypatch.setattr(bars, "time_beside_cublas", first_faults)
    monkeypatch.setattr(bars, "PRODUCTS", 2 * (("warp-tiled", {"width": 2048}),))

    assert bars.main(["--only", "products"]) == 1

    *_, faulted, good = capsys.readouterr().out.splitlines()
    assert "error" in faulted
    assert faulted.endswith("illegal address in warp-tiled")
    assert "passed" in good


def test_the_ratio_is_the_median_of_the_pairs_and_not_of_the_times() -> None:
    # The GPU slows down from pair to pair; the kernel is 2% faster in each, and 1% in one.
    library = [Turn(1.5**pair) for pair in range(9)]
    own = [Turn(turn.seconds / (1.01 if pair == 4 else 1.02)) for pair, turn in enumerate(library)]
    own[8] = Turn(own[8].seconds / 10)  # an outlier, which the interval leaves out

    ratio = Turns(own, library).ratio

    assert ratio == pytest.approx((1.02, 1.02, 1.02))
    assert min(b.seconds / a.seconds for a, b in zip(own, library, strict=True)) < 1.015


def test_few_pairs_have_the_interval_of_all_their_ratios() -> None:
    ratio = Turns([Turn(1.0), Turn(1.0)], [Turn(0.9), Turn(1.2)]).ratio

    assert ratio == pytest.approx((1.05, 0.9, 1.2))


def test_a_summary_is_the_median_of_what_was_read() -> None:
    turns = [Turn(1.0, 1.9e9, None), Turn(3.0, None, 650.0), Turn(2.0, 1.5e9, 690.0)]

    assert summary(turns) == Turn(2.0, 1.7e9, 670.0)


def test_turns_alternate_and_measure_their_power(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of the two is first changes from pair to pair; joules over seconds are watts."""
    order: list[str] = []
    joules = iter(range(0, 10_000, 70))
    clock = iter(x / 10 for x in range(1000))

    class Session:
        timeout_s = 1.0

        def __init__(self, *_: object) -> None: ...

        def __enter__(self) -> "Session":
            return self

        def __exit__(self, *_: object) -> None: ...

        def time(self, launch: object, settings: object, what: str) -> Samples:
            order.append(what)
            return Samples((Sample(1.0 if what == "cuBLAS" else 0.5, 1.5e9),))

    ready = SimpleNamespace(memory={}, run_once=lambda: None)
    monkeypatch.setattr(beside_cublas, "GpuSession", Session)
    monkeypatch.setattr(beside_cublas, "prepare_on_gpu", lambda *_: ready)
    monkeypatch.setattr(beside_cublas, "hand_over_outputs", lambda *_: None)
    monkeypatch.setattr(beside_cublas.cublas, "prepare_gemm", lambda *_: nullcontext(lambda: None))
    device = SimpleNamespace(pci_bus_id=lambda: "0000:01:00.0")
    monkeypatch.setattr(beside_cublas, "pycuda_device", lambda _: device)
    monkeypatch.setattr(beside_cublas, "energy_reader", lambda *_: lambda: float(next(joules)))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    launch, settings = SimpleNamespace(kernel="warp-tiled"), beside_cublas.TURN

    turns = beside_cublas.run_beside_cublas(None, launch, None, 0, {}, settings)  # type: ignore[arg-type]

    assert order[:6] == ["warp-tiled", "cuBLAS", "cuBLAS", "warp-tiled", "warp-tiled", "cuBLAS"]
    assert {turn.seconds for turn in turns.own} == {0.5}
    assert turns.ratio.median == 2.0
    assert turns.library[0].power_w == pytest.approx(700.0)  # 70 J in 0.1 s


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
