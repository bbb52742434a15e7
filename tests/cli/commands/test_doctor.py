"""`memlab doctor`: the table, the JSON and the exit code."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from memlab import querying
from memlab.cli.app import main
from memlab.device.doctor.probes import MachineState

NO_GPU = MachineState(
    nvrtc=(13, 5),
    nvrtc_architectures=((7, 5), (12, 1)),
    emulator=True,
    errors={"driver": "no NVIDIA driver is loaded"},
)


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Ask the doctor about a machine; gives the exit code."""
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs.sqlite3"))

    def ask(state: MachineState, *words: str) -> int:
        monkeypatch.setattr(querying, "probe_machine", lambda: state)
        return main(["doctor", *words])

    return ask


def test_no_gpu_is_no_error_and_the_way_on_is_named(doctor, capsys) -> None:
    assert doctor(NO_GPU) == 0

    out, err = capsys.readouterr()
    assert not err
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "✗  driver" in out
    assert "✓  emulator" in out
    assert out.splitlines()[-1].startswith("No GPU to run on, but emulated devices work")


def test_nothing_can_run_without_the_compiler(doctor, capsys) -> None:
    gone = replace(NO_GPU, nvrtc=None, emulator=False, errors={"nvrtc": "NVRTC is not there"})

    assert doctor(gone) == 3
    assert "pip install nvidia-cuda-nvrtc cuda-bindings" in capsys.readouterr().out


def test_json_has_findings_and_facts(doctor, capsys) -> None:
    assert doctor(NO_GPU, "--json") == 0

    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["emulator_works"] is True
    assert document["gpu_works"] is False
    assert document["facts"]["nvrtc"] == [13, 5]
    by_subject = {item["subject"]: item for item in document["findings"]}
    assert by_subject["driver"]["state"] == "fails"
    assert by_subject["driver"]["advice"]


def test_a_store_that_cannot_be_used_is_a_note(doctor, capsys, tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("no store, but a long enough text to be read as one")

    assert doctor(NO_GPU, "--store", str(tmp_path / "notes.txt")) == 0
    assert "!  store" in capsys.readouterr().out
