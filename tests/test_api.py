"""The functions of `import memlab` end to end, with the store in a temporary file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paths import DATA

import memlab
from memlab import drawing, querying
from memlab.cli.app import main
from memlab.device import devices
from memlab.device.datasheets import loader
from memlab.device.properties import device_summary
from memlab.errors import MemlabWarning, UsageError
from memlab.roofline.documents.peaks import peaks_from_document
from memlab.roofline.documents.runs import run_document
from memlab.roofline.run import Run, RunIdentity
from memlab.roofline.store.run_filter import RunFilter
from memlab.roofline.store.store import Store

# As the description of `memlab run --json` lists them, for other tools to rely on.
KEYS = {
    "device": "name kind compute_capability",
    "launch": "grid block dynamic_shared_bytes",
    "resources": "registers_per_thread static_shared_bytes local_bytes_per_thread",
    "occupancy": "theoretical blocks_per_sm limiter",
    "coverage": "blocks_emulated blocks_total",
    "counters": "global_load_requests global_load_sectors global_store_requests "
    "global_store_sectors shared_load_instructions shared_load_wavefronts "
    "shared_store_instructions shared_store_wavefronts shared_excessive_wavefronts "
    "local_load_sectors local_store_sectors l2_read_sectors l2_write_sectors dram_read_bytes "
    "dram_write_bytes flop_fp32 flop_fp64 thread_instructions",
    "time": "median_s provenance",
    "roofline": "flop_per_s intensity_flop_per_byte bound ceiling_flop_per_s fraction_of_ceiling",
    "verification": "status relative_error checked",
}
TILED: dict[str, Any] = {"width": 32, "tile": 8}
TOP_LEVEL = {*KEYS, "schema_version", "kernel", "parameters", "advice"}
INTENSITIES = {"requested", "l1", "l2", "dram", "compulsory"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "runs.sqlite3"


@pytest.fixture
def short_ladder(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (("naive", {"width": 32}), ("tiled", {"width": 32, "tile": 8}))
    monkeypatch.setattr(drawing, "DEFAULT_LADDER", steps)


def test_a_run_becomes_the_document_that_other_tools_read() -> None:
    run = memlab.run("tiled", device="h200", width=64, tile=16)
    document = json.loads(json.dumps(run_document(run)))

    assert document.keys() >= TOP_LEVEL
    for name, keys in KEYS.items():
        assert document[name].keys() >= set(keys.split()), name
    assert document["roofline"]["intensity_flop_per_byte"].keys() == INTENSITIES
    assert document["kernel"] == "tiled"
    assert document["device"]["name"] == "NVIDIA H200"
    assert document["device"]["kind"] == "emulated"
    assert document["device"]["compute_capability"] == "9.0"
    assert document["launch"] == {
        "grid": [4, 4, 1],
        "block": [16, 16, 1],
        "dynamic_shared_bytes": 0,
        "cluster": [1, 1, 1],
    }
    assert document["resources"]["static_shared_bytes"] == 2 * 16 * 16 * 4
    assert document["coverage"] == {
        "blocks_emulated": 16,
        "blocks_total": 16,
        "estimated": False,
        "timed_out": False,
        "not_counted": "",
        "relative_standard_error": None,
    }
    assert document["time"]["provenance"] == "modelled"
    assert document["verification"]["checked"] == 64 * 64
    assert document["verification"]["status"] == "passed"


def test_figures_of_a_run_are_in_base_units() -> None:
    document = run_document(memlab.run("tiled", device="h200", width=64, tile=16))
    counters, placed = document["counters"], document["roofline"]

    assert counters["flop_fp32"] == 2 * 64**3
    code_bytes = counters["dram_read_bytes"] - 2 * 64 * 64 * 4 - 2304  # of any launch on an H200
    assert code_bytes % 128 == 0
    assert 16 * 64 <= code_bytes <= 16 * 512  # an instruction has 16 bytes
    assert placed["flop_per_s"] == pytest.approx(2 * 64**3 / document["time"]["median_s"])
    intensities = placed["intensity_flop_per_byte"]
    assert intensities["compulsory"] == pytest.approx(2 * 64**3 / (3 * 64 * 64 * 4))
    # 2 loads of 4 bytes for 16 FMAs, and a store of 4 bytes for 64.
    assert intensities["requested"] == pytest.approx(2 / (8 / 16 + 4 / 64))


def test_a_run_is_kept_only_where_asked(store: Path) -> None:
    assert memlab.run("naive", device="t4", store=store, width=8).id is None
    assert not store.exists()

    kept = memlab.run("naive", device="t4", store=store, keep=True, width=8)

    assert kept.id == 1
    assert Store(store).runs(RunFilter(device="t4")) == [kept]


def test_a_store_that_cannot_be_used_stops_a_run_before_it_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        memlab.run("tiled", width=100_000, device="h200", keep=True, store=tmp_path)


@pytest.mark.usefixtures("short_ladder")
def test_without_runs_the_ladder_is_run_and_kept(store: Path) -> None:
    gathered = drawing.record_roofline(device="a100", store=store)

    assert [run.measurement.kernel for run in gathered.runs] == ["naive", "tiled"]
    assert {run.measurement.device.key for run in gathered.runs} == {"a100"}
    assert memlab.roofline(device="a100", store=store).runs == gathered.runs
    assert len(gathered.frame()) == 2
    assert "tiled" in gathered.csv()


@pytest.mark.usefixtures("short_ladder")
def test_runs_of_another_device_do_not_stand_in(store: Path) -> None:
    memlab.run("naive", device="t4", store=store, keep=True, width=8)

    gathered = drawing.record_roofline(device="l4", store=store)

    assert {run.measurement.device.key for run in gathered.runs} == {"l4"}


@pytest.mark.usefixtures("short_ladder")
def test_an_interrupted_ladder_leaves_nothing_behind(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(what: str, done: float | None) -> None:
        told.append(what)
        if told.count("compiling") == 2:
            raise KeyboardInterrupt

    told: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        drawing.record_roofline(device="h200", store=store, progress=interrupt)

    assert Store(store).runs() == []


def test_a_roofline_draws_the_runs_that_it_is_given(store: Path) -> None:
    small = memlab.run("naive", device="t4", width=8)
    tiled = memlab.run("tiled", device="t4", width=32, tile=8)

    for drawn in (memlab.roofline(small, tiled, store=store), memlab.roofline([small, tiled])):
        assert drawn.runs == (small, tiled)
        assert drawn.properties == memlab.devicequery("t4")
        assert drawn.fresh is None
    assert not store.exists()


def test_a_roofline_is_of_one_device(store: Path) -> None:
    on_t4, on_l4 = (memlab.run("naive", device=device, width=8) for device in ("t4", "l4"))

    with pytest.raises(UsageError, match=r"one device, got a run of l4 .* together with t4"):
        memlab.roofline(on_t4, on_l4)
    with pytest.raises(UsageError, match=r"one device, got a run of t4 .* together with a100"):
        memlab.roofline(on_t4, device="a100")
    with pytest.raises(UsageError, match="roofline takes runs, got an object of type int"):
        memlab.roofline(on_t4, 3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="roofline takes runs, got an object of type str"):
        memlab.roofline("t4", device="l4")  # type: ignore[arg-type]


def test_without_stored_runs_python_runs_nothing(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memlab.run("naive", device="t4", store=store, keep=True, width=8)
    monkeypatch.setattr(drawing, "run_prepared", lambda *_: pytest.fail("a kernel ran"))

    with pytest.raises(UsageError, match=r"no runs of h200 in .*: draw some with memlab\.roofline"):
        memlab.roofline(device="h200", store=store)
    with pytest.warns(DeprecationWarning, match=r"write memlab\.roofline\(device='t4'\)"):
        old = memlab.roofline("t4", store=store)  # type: ignore[arg-type]
    assert old.runs == memlab.roofline(device="t4", store=store).runs
    assert memlab.runs(device="t4", store=store) == list(old.runs)
    assert memlab.runs(kernel="tiled", store=store) == []


def test_what_a_run_asks_for_besides_and_cannot_have_is_a_warning() -> None:
    with pytest.warns(MemlabWarning) as warned:
        run = memlab.run("tiled", device="h200", width=16, counters="ncu", cublas=True)

    assert [str(warning.message).partition(":")[0] for warning in warned] == [
        "no hardware counters",
        "no cuBLAS",
    ]
    assert {warning.filename for warning in warned} == {__file__}
    assert run.measurement.counters_ncu is None
    with pytest.raises(UsageError, match="counters must be 'emulated' or 'ncu', got 'nvprof'"):
        memlab.run("tiled", counters="nvprof")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="there is no tool 'memchek': did you mean 'memcheck'"):
        memlab.check("tiled", width=16, tools=("memchek",))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "result"),
    [
        ("run tiled --width 32 --tile 8 --no-store", lambda: memlab.run("tiled", **TILED)),
        ("analyze tiled --width 32 --tile 8", lambda: memlab.analyze("tiled", **TILED)),
        ("check tiled --width 32 --tile 8", lambda: memlab.check("tiled", **TILED)),
        ("trace tiled --width 32 --tile 8", lambda: memlab.trace("tiled", **TILED)),
        ("occupancy tiled --width 32 --tile 8", lambda: memlab.occupancy("tiled", **TILED)),
        ("devicequery", memlab.devicequery),
        ("explain wavefront", lambda: memlab.explain("wavefront")),
        ("explain", memlab.explain),
        ("kernels", memlab.kernels),
        ("doctor", memlab.doctor),
        ("runs", memlab.runs),
    ],
)
def test_a_report_is_that_of_the_terminal(
    command: str,
    result: Callable[[], object],
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    monkeypatch.setenv("MEMLAB_STORE", str(store))
    memlab.run("naive", keep=True, width=8)

    assert main(command.split()) == 0
    assert memlab.report(result()) == capsys.readouterr().out


def test_a_term_that_is_no_text_is_refused() -> None:
    with pytest.raises(UsageError, match="a term is a text, got an object of type int"):
        memlab.explain(3)  # type: ignore[arg-type]


def test_the_command_lines_name_of_the_traced_thread_is_corrected() -> None:
    with pytest.raises(UsageError, match="use block_index and thread_index"):
        memlab.trace("tiled", device="h200", width=4, tile=2, block=(0, 1), thread=(1, 1))


def test_what_has_no_report_is_named() -> None:
    with pytest.raises(UsageError, match="no report of an object of type float"):
        memlab.report(1.5)


def test_the_report_of_runs_that_are_not_stored_has_no_number(make_run: Callable[..., Run]) -> None:
    report = memlab.report([replace(make_run(), id=None), replace(make_run(), id=12)])

    heading, first, *_ = report.splitlines()
    assert heading.split()[0] == "id"
    assert "None" not in report
    assert first.split()[0] == make_run().created_at[:10]
    assert " 12 " not in first


def test_a_result_is_one_line(make_run: Callable[..., Run]) -> None:
    run = memlab.run("tiled", device="h200", **TILED)
    peaks = peaks_from_document(json.loads((DATA / "h200-peaks.json").read_text()))

    assert repr(make_run()) == (
        "<Run tiled width=2048 tile=16 on h200 (emulated): ~2.25 ms, "
        "81% of the L1 / shared ceiling, passed>"
    )
    labelled = replace(make_run(), id=3, identity=RunIdentity(label="before"))
    assert repr(labelled).startswith("<Run 3 'before': tiled width=2048 ")
    assert repr(replace(make_run(), id=3)).startswith("<Run 3: tiled width=2048 ")
    assert repr(run.measurement).startswith(
        "<Measurement tiled width=32 tile=8 on h200 (emulated): "
    )
    assert repr(peaks).startswith("<Peaks NVIDIA H200 (cuda:0): ")
    assert repr(memlab.roofline(run)) == "<Roofline NVIDIA H200: 1 run>"
    assert repr(memlab.devicequery("h200")) == (
        "<DeviceProperties NVIDIA H200, sm_90, 132 SMs, 139.8 GiB, 4.81 TB/s>"
    )
    strange = make_run(kernel="a\nb\x1b[31m" + 200 * "c", parameters={"args": 500 * "x"})
    assert len(repr(strange)) < 200
    assert repr(strange).isprintable()
    assert memlab.report(strange).count("\x1b") == 0


def test_a_notebook_gets_frames_and_properties() -> None:
    runs = [memlab.run("tiled", device="t4", width=32, tile=tile) for tile in (8, 16)]

    assert len(memlab.frame(*runs)) == 2
    assert memlab.devicequery("rtx3070").compute_capability == (8, 6)
    with pytest.raises(UsageError, match="did you mean 'h200'"):
        memlab.devicequery("h20")


def test_a_date_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(UsageError, match="SOURCE_DATE_EPOCH must be seconds since 1970"):
        memlab.run("tiled", width=8, device="h200")


def test_a_trace_follows_the_run_of_its_seed() -> None:
    first, again, other = (
        memlab.trace("scattered", n=256, device="h200", seed=seed) for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


def test_a_roofline_draws_the_runs_of_its_own_gpu_alone(
    store: Path, monkeypatch: pytest.MonkeyPatch, make_run: Callable[..., Run]
) -> None:
    """What `CUDA_VISIBLE_DEVICES` shows as the first may be another each time."""
    properties = replace(loader.load_datasheet("h200"), uuid="GPU-b", driver_release="580.1")
    this = device_summary(properties, "cuda", "cuda:0")
    assert (this.uuid, this.driver) == ("GPU-b", "580.1")
    opened = SimpleNamespace(kind="cuda", key="cuda:0", properties=properties)
    monkeypatch.setattr(drawing, "open_device", lambda *_: opened)
    old, other, same = (replace(this, uuid=uuid) for uuid in (None, "GPU-a", "GPU-b"))
    moved = replace(same, key="cuda:1")  # the same GPU, as another command was shown it
    Store(store).add_all([make_run(device=device) for device in (old, other, same, moved)])

    assert [run.id for run in memlab.roofline(store=store).runs] == [1, 3, 4]


def test_each_gpu_is_meant_where_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMLAB_DEVICE", raising=False)
    monkeypatch.setattr(devices, "usable_gpu_names", lambda: ["cuda:0", "cuda:1"])

    assert devices.selected_devices() == ["cuda:0", "cuda:1"]
    assert list(querying.properties_by_device("a100")) == ["a100"]
    monkeypatch.setenv("MEMLAB_DEVICE", "l4")
    assert list(querying.properties_by_device()) == ["l4"]
    monkeypatch.delenv("MEMLAB_DEVICE")
    monkeypatch.setattr(devices, "usable_gpu_names", list)
    assert list(querying.properties_by_device()) == ["h200"]
    assert querying.device_attributes("h200") == {}


def test_the_kernels_are_a_mapping_of_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("memlab.toml").write_text('[kernels.mine]\nsource = "k.cu"\n')

    kernels = memlab.kernels()

    assert next(iter(kernels)) == "naive"
    assert list(kernels)[-1] == "mine"
    assert list(kernels) == list(kernels.names) == [name for name, _ in kernels.items()]
    assert len(kernels) == len(kernels.catalog) + 1
    assert "mine" in kernels
    assert kernels["mine"] is kernels.user["mine"]
    assert [each.name for each in kernels["tiled"].parameters][:2] == ["width", "m"]
    assert kernels.get("tilde") is None
    with pytest.raises(KeyError, match="unknown kernel 'tilde': did you mean 'tiled'"):
        kernels["tilde"]
    with pytest.raises(KeyError, match=r"found by their names, got 0: use list\(kernels\)"):
        kernels[0]
