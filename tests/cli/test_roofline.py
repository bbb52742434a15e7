"""`memlab roofline` end to end: the picture, its data, and what stands in the way."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from memlab import lab
from memlab.cli.app import main
from memlab.roofline.store import Store

SIGNATURES = {"png": b"\x89PNG\r\n", "svg": b"<?xml", "pdf": b"%PDF-"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, a store in it, and a ladder of two short steps."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "store.sqlite3"))
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    steps = (("naive", {"width": 32}), ("tiled", {"width": 32, "tile": 8}))
    monkeypatch.setattr(lab, "LADDER", steps)
    return tmp_path


def test_the_main_job_draws_the_ladder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline"]) == 0

    out, err = capsys.readouterr()
    assert not out
    assert err == "memlab: wrote roofline.png and roofline.csv\n"
    assert {path.name for path in folder.iterdir()} == {
        "roofline.png",
        "roofline.csv",
        "store.sqlite3",
    }
    assert len((folder / "roofline.png").read_bytes()) > 20_000
    with (folder / "roofline.csv").open() as file:
        text = " ".join(" ".join(row) for row in csv.reader(file))
    assert "naive" in text
    assert "tiled" in text
    assert len(Store().runs()) == 2


@pytest.mark.parametrize("extension", SIGNATURES)
def test_the_extension_chooses_the_format(extension: str, folder: Path) -> None:
    assert main(["roofline", "-q", "-o", f"picture.{extension}"]) == 0

    written = (folder / f"picture.{extension}").read_bytes()
    assert written.startswith(SIGNATURES[extension])
    assert (folder / "picture.csv").stat().st_size > 0


def test_recorded_runs_are_drawn_instead_of_the_ladder(folder: Path) -> None:
    assert main(["run", "tiled", "--width", "40", "--tile", "4", "-q"]) == 0
    assert main(["roofline", "-q"]) == 0

    assert len(Store().runs()) == 1
    assert "naive" not in (folder / "roofline.csv").read_text()


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        ("-o there.png", "there.png exists: add --force", 2),
        ("-o data.png", "data.csv exists: add --force", 2),
        ("-o picture.gif", "use .png, .svg or .pdf", 2),
        ("-o nowhere/picture.png", "the folder nowhere does not exist", 2),
        ("-d h20", "did you mean 'h200'", 2),
        ("--store there.png", "is not a memlab store", 2),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    words: str, message: str, code: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("there.png", "data.csv"):
        (folder / name).write_text("mine, not memlab's")

    assert main(["roofline", *words.split()]) == code

    out, err = capsys.readouterr()
    assert not out
    assert message in err
    assert err.count("\n") == 1
    assert {path.name for path in folder.iterdir()} == {"there.png", "data.csv"}


def test_force_overwrites_both(folder: Path) -> None:
    for name in ("roofline.png", "roofline.csv"):
        (folder / name).write_text("old")

    assert main(["roofline", "-q", "--force"]) == 0

    assert (folder / "roofline.png").read_bytes().startswith(SIGNATURES["png"])
    assert (folder / "roofline.csv").read_text() != "old"
