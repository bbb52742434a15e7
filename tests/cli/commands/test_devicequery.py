import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from paths import DATA
from typer.testing import CliRunner

from memlab import querying
from memlab.cli.app import main
from memlab.cli.commands.devicequery import devicequery
from memlab.device.datasheets import loader
from memlab.device.properties import DeviceProperties
from memlab.roofline.reports.device import device_query_lines, memory_lab_lines

H200 = loader.load_datasheet("h200")
TWO = {
    "cuda:0": replace(H200, peer_access={"cuda:1": True}),
    "cuda:1": replace(H200, name="Other", peer_access={"cuda:0": False}, total_memory_bytes=2**30),
}
LISTING = DATA / "rtx3070-devicequery.txt"


@pytest.fixture
def query(monkeypatch):
    """Run the command with the datasheets as the only devices, or with two H200s besides."""
    gpus = {}

    def properties_by_device(name):
        if name:
            return {name: gpus.get(name) or loader.load_datasheet(name)}
        return gpus or {"h200": H200}

    def device_attributes(key):
        return {"WARP_SIZE": 32, "TCC_DRIVER": None} if key in gpus else {}

    for fake in (properties_by_device, device_attributes):
        monkeypatch.setattr(querying, fake.__name__, fake)
    monkeypatch.setattr(querying, "devicequery", lambda name: loader.load_datasheet(name or "h200"))
    monkeypatch.setattr(querying, "available_device_names", lambda: list(loader.datasheet_names()))
    app = typer.Typer()
    app.command()(devicequery)

    def run(*arguments, columns=80, two=False):
        gpus.update(TWO if two else {})
        result = CliRunner(env={"COLUMNS": str(columns)}).invoke(
            app, arguments, catch_exceptions=False
        )
        assert result.exit_code == 0
        return result.stdout

    return run


def test_the_listing_is_cudas_line_by_line(query):
    expected = LISTING.read_text().splitlines()
    said, blank, *listing = query("--device", "rtx3070").splitlines()
    assert listing[: len(expected)] == expected
    assert said == "Not a GPU: this is the datasheet of the NVIDIA GeForce RTX 3070."
    assert not blank


def test_without_a_gpu_it_is_said_first(query, monkeypatch):
    monkeypatch.delenv("MEMLAB_DEVICE", raising=False)
    first = "No GPU can be used here: this is the datasheet of the NVIDIA H200.\n\n"
    assert query().startswith(f"{first}CUDA Device Query")
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    assert query().startswith("Not a GPU: this is the datasheet of the NVIDIA H200.\n\n")
    assert query(two=True).startswith("CUDA Device Query")


def test_a_datasheet_of_ones_own_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = Path(loader.__file__).with_name("a100.toml").read_text()
    Path("my.toml").write_text(text.replace('name = "NVIDIA A100', 'name = "My A100', 1))

    assert main(["devicequery", "--device", "my.toml"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Not a GPU: this is the datasheet of the My A100")
    assert "SXM4-40GB.\n\nCUDA Device Query" in out
    assert main(["devicequery", "--device", "mine.toml"]) == 2
    assert "mine.toml" in capsys.readouterr().err


def test_what_is_not_known_reads_as_cuda_writes_it_and_nothing_else():
    """A device of which only the name is known: no zero, no None, no guess."""
    unknown = DeviceProperties(name="?", compute_capability=(9, 0))
    known = {"Device 0:", "Capability Major", "Warp size"}
    query = list(device_query_lines({"cuda:0": unknown}))
    lines = [*query[4:-3], *list(memory_lab_lines(unknown))[1:]]
    for line in lines:
        if line.strip() != "Compute Mode:" and not any(word in line for word in known):
            assert "N/A" in line
    assert "None" not in "\n".join(lines)


def test_the_memory_lab_needs_more_and_says_where_it_comes_from(query):
    output = query()
    for line in (
        "Opt-in shared memory per block:                232448 bytes [datasheet]",
        "Reserved shared memory per block:              1024 bytes [datasheet]",
        "Total number of registers per multiprocessor:  65536 [datasheet]",
        "Maximum number of blocks per multiprocessor:   32 [datasheet]",
        "Peak memory bandwidth:                         4814.3 GB/s [datasheet]",
        "Peak FP32:                                     66.91 TFLOP/s at 1980 MHz [datasheet]",
        "Peak TF32 tensor:                              494.7 TFLOP/s at 1830 MHz [datasheet]",
        "Ridge point FP32:                              13.9 FLOP/B [datasheet]",
    ):
        assert "  " + line + "\n" in output
    textbook = query("-d", "pmpp")
    assert "access ratio needed: " in textbook
    assert " 48 FLOP per access" in textbook
    assert "Assumed, not known: compute_capability," in textbook


def test_json_has_every_figure_in_base_units_with_its_source(query):
    document = json.loads(query("--json", "--device", "a100"))
    assert document["schema_version"] == 1
    assert document["compute_capability"] == "8.0"
    memory = document["figures"]["total_memory_bytes"]
    assert memory["value"] == 42298834944
    assert memory["provenance"] == "datasheet"
    assert "deviceQuery" in memory["source"]
    peak = document["peak_flop_per_s"]["fp32"]
    assert peak["value"] == pytest.approx(19.5e12, rel=0.001)
    assert peak["clock_hz"] == 1.41e9
    assert document["ridge_flop_per_byte"]["tf32"]["value"] == pytest.approx(100.3, rel=0.001)
    textbook = json.loads(query("--json", "--device", "pmpp"))
    assert textbook["required_compute_to_global_access_ratio"]["value"] == 48
    assert textbook["peak_flop_per_s"]["fp64"] is None


def test_the_list_has_every_device_in_80_columns(query):
    lines = query("--list").splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(loader.datasheet_names())
    assert max(len(line.rstrip()) for line in lines) <= 80
    narrow = query("--list", columns=40).splitlines()
    assert [line.split()[0] for line in narrow] == [line.split()[0] for line in lines]
    assert max(len(line.rstrip()) for line in narrow) <= 40
    keys = [device["key"] for device in json.loads(query("--list", "--json"))["devices"]]
    assert keys == list(loader.datasheet_names())


def test_peers_of_a_gpu_are_counted_and_listed() -> None:
    peers = {"cuda:0": True, "cuda:2": False}
    lines = list(device_query_lines({"cuda:1": replace(H200, peer_access=peers)}))

    assert "Detected 3 CUDA Capable device(s)" in lines
    assert 'Device 1: "NVIDIA H200"' in lines
    assert "> Peer access from NVIDIA H200 (GPU1) -> (GPU0) : Yes" in lines
    assert "> Peer access from NVIDIA H200 (GPU1) -> (GPU2) : No" in lines
    assert lines[-2].endswith("NumDevs = 3")


def test_every_gpu_is_shown_where_none_is_named(query) -> None:
    lines = query(two=True).splitlines()

    assert "Detected 2 CUDA Capable device(s)" in lines
    blocks = [number for number, line in enumerate(lines) if line.startswith("Device ")]
    assert [lines[number] for number in blocks] == ['Device 0: "NVIDIA H200"', 'Device 1: "Other"']
    memory = [line for line in lines if "Total amount of global memory" in line]
    assert [line.split()[-2] for line in memory] == ["(150109880320", "(1073741824"]
    first_peer = lines.index("> Peer access from NVIDIA H200 (GPU0) -> Other (GPU1) : Yes")
    assert first_peer > blocks[1]
    assert lines[first_peer + 1] == "> Peer access from Other (GPU1) -> NVIDIA H200 (GPU0) : No"
    assert lines[first_peer + 3].endswith("NumDevs = 2")
    assert [line for line in lines if line.startswith("For the study of memory")] == [
        "For the study of memory of cuda:0:",
        "For the study of memory of cuda:1:",
    ]
    document = json.loads(query("--json"))
    assert [device["key"] for device in document["devices"]] == ["cuda:0", "cuda:1"]
    assert document["devices"][1]["attributes"] == {"WARP_SIZE": 32, "TCC_DRIVER": None}


def test_one_gpu_that_is_named_is_shown_alone(query) -> None:
    shown = query("--device", "cuda:1", "--all", two=True)

    assert 'Device 1: "Other"' in shown
    assert "Device 0" not in shown
    attributes = shown[shown.index("Every attribute") :].splitlines()[1:]
    assert [line.split() for line in attributes] == [["WARP_SIZE", "32"], ["TCC_DRIVER", "N/A"]]
    document = json.loads(query("--device", "cuda:1", "--json"))
    assert document["name"] == "Other"
    assert document["attributes"] == {"WARP_SIZE": 32, "TCC_DRIVER": None}
