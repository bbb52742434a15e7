"""benchmarks.bars: rows are kept as they come, and say what failed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from benchmarks import bars, beside_library, gpu_results
from benchmarks.bars import Row
from benchmarks.beside_library import Turn, Turns, summary
from benchmarks.pytorch_attention import pytorch_attention
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
    turns = Turns([own], [library], "cuBLAS")
    monkeypatch.setattr(bars, "time_beside", lambda *_: (turns, FAILED))
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
        return Turns([Turn(1e-3)], [Turn(1e-3)], "cuBLAS"), PASSED

    calls = iter(range(2))
    monkeypatch.setattr(bars, "time_beside", first_faults)
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

    ratio = Turns(own, library, "cuBLAS").ratio

    assert ratio == pytest.approx((1.02, 1.02, 1.02))
    assert min(b.seconds / a.seconds for a, b in zip(own, library, strict=True)) < 1.015


def test_few_pairs_have_the_interval_of_all_their_ratios() -> None:
    ratio = Turns([Turn(1.0), Turn(1.0)], [Turn(0.9), Turn(1.2)], "cuBLAS").ratio

    assert ratio == pytest.approx((1.05, 0.9, 1.2))


def test_a_summary_is_the_median_of_what_was_read() -> None:
    turns = [Turn(1.0, 1.9e9, None), Turn(3.0, None, 650.0), Turn(2.0, 1.5e9, 690.0)]

    assert summary(turns) == Turn(2.0, 1.7e9, 670.0)


SECONDS = {"attention": 0.5, "slow": 3.0, "fast": 1.0}


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A GPU that takes `SECONDS` for a launch, and 700 W; what takes turns on it, as it comes."""
    names: list[str] = []
    joules = iter(range(0, 10_000, 70))
    clock = iter(x / 10 for x in range(1000))

    class Session:
        timeout_s = 1.0

        def __init__(self, *_: object) -> None: ...

        def __enter__(self) -> "Session":
            return self

        def __exit__(self, *_: object) -> None: ...

        def time(self, launch: object, settings: object, what: str) -> Samples:
            names.append(what)
            return Samples((Sample(SECONDS[what], 1.5e9),))

    ready = SimpleNamespace(memory={}, run_once=lambda: None)
    monkeypatch.setattr(beside_library, "GpuSession", Session)
    monkeypatch.setattr(beside_library, "prepare_on_gpu", lambda *_: ready)
    monkeypatch.setattr(beside_library, "hand_over_outputs", lambda *_: None)
    device = SimpleNamespace(pci_bus_id=lambda: "0000:01:00.0")
    monkeypatch.setattr(beside_library, "pycuda_device", lambda _: device)
    monkeypatch.setattr(beside_library, "energy_reader", lambda *_: lambda: float(next(joules)))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    return names


def in_turns(*implementations: str) -> Turns:
    """The turns of a kernel and a library with these implementations."""
    functions = dict.fromkeys(implementations, lambda: None)
    launch, settings = SimpleNamespace(kernel="attention"), beside_library.TURN
    return beside_library.run_beside(
        None,  # type: ignore[arg-type]
        lambda *_: nullcontext(functions),
        launch,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        0,
        {},
        settings,
    )


def test_turns_alternate_and_measure_their_power(order: list[str]) -> None:
    """Which of the two is first changes from pair to pair; joules over seconds are watts."""
    turns = in_turns("fast")

    assert order[:6] == ["attention", "fast", "fast", "attention", "attention", "fast"]
    assert {turn.seconds for turn in turns.own} == {0.5}
    assert turns.ratio.median == 2.0
    assert turns.library[0].power_w == pytest.approx(700.0)  # 70 J in 0.1 s


def test_the_fastest_implementation_takes_the_turns(order: list[str]) -> None:
    turns = in_turns("slow", "fast")

    assert order[:4] == ["slow", "fast", "attention", "fast"]
    assert "slow" not in order[2:]
    assert turns.name == "fast"
    assert turns.ratio.median == 2.0


@pytest.mark.usefixtures("on_an_h200")
def test_attention_stands_beside_pytorch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = Turns([Turn(2e-3)], [Turn(1.9e-3)], "CUDNN_ATTENTION")
    libraries = []

    def taken(library: object, *_: object) -> tuple[Turns, Verification]:
        libraries.append(library)
        return turns, PASSED

    monkeypatch.setattr(bars, "time_beside", taken)

    assert bars.main(["--only", "attention"]) == 0

    rows = capsys.readouterr().out.splitlines()[3:]
    assert libraries == 4 * [pytorch_attention]  # head sizes 64 and 128, causal or not
    assert all("CUDNN_ATTENTION" in row and "0.950" in row for row in rows)


def test_what_pytorch_attends_to_are_the_arrays_of_the_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A backend that refuses the sizes is left out."""
    shown: list[dict[str, Any]] = []
    calls: list[tuple[str, bool]] = []
    now: list[str] = []

    def as_tensor(array: Any, device: str) -> Any:
        shown.append(array.__cuda_array_interface__)
        return SimpleNamespace(view=lambda kind: (array.address, kind))

    @contextmanager
    def sdpa_kernel(backend: str) -> Iterator[None]:
        now[:] = [backend]
        yield

    def attend(*tensors: object, is_causal: bool) -> None:
        assert tensors == ((16, "bf16"), (32, "bf16"), (48, "bf16"))
        if now == ["flash"]:
            raise RuntimeError("no kernel")
        calls.append((now[0], is_causal))

    torch = ModuleType("torch")
    functional = SimpleNamespace(scaled_dot_product_attention=attend)
    vars(torch).update(as_tensor=as_tensor, bfloat16="bf16", nn=SimpleNamespace())
    vars(torch)["nn"].functional = functional
    attention = ModuleType("torch.nn.attention")
    backends = SimpleNamespace(CUDNN_ATTENTION="cudnn", FLASH_ATTENTION="flash")
    vars(attention).update(SDPBackend=backends, sdpa_kernel=sdpa_kernel)
    for module in (torch, ModuleType("torch.nn"), attention):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    sizes: dict[str, int | str] = {"tokens": 256, "heads": 3, "head_size": 64, "causal": "yes"}
    launch = bars.prepared("attention-wgmma", sizes, H200)

    with pytorch_attention(launch, {"Q": 16, "K": 32, "V": 48, "O": 64}) as found:
        found["CUDNN_ATTENTION"]()

    assert [one["data"] for one in shown] == [(16, False), (32, False), (48, False)]
    assert {one["shape"] for one in shown} == {(1, 3, 256, 64)}
    assert [*found] == ["CUDNN_ATTENTION"]
    assert calls == [("cudnn", True)] * 2


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
