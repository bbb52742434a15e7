"""`memlab roofline` end to end: the picture, its data, and what stands in the way."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memlab import drawing
from memlab.cli.app import main
from memlab.device.measurement import Coverage, DeviceSummary, Verification
from memlab.roofline.documents.runs import run_document
from memlab.roofline.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memlab.roofline.run import Run

SIGNATURES = {"png": b"\x89PNG\r\n", "svg": b"<?xml", "pdf": b"%PDF-"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, a store in it, and a ladder of two short steps."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "store.sqlite3"))
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    steps = (("naive", {"width": 32}), ("tiled", {"width": 32, "tile": 8}))
    monkeypatch.setattr(drawing, "DEFAULT_LADDER", steps)
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
        ("-o there.png", "there.png exists: add --overwrite", 2),
        ("-o data.png", "data.csv exists: add --overwrite", 2),
        ("-o picture.gif", "use .png, .svg or .pdf", 2),
        ("-o picture", "format of picture from its extension: use .png, .svg or .pdf", 2),
        ("-o -", "format of - from its extension: use .png, .svg or .pdf", 2),
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


@pytest.mark.parametrize("wrong", [True, False])
def test_the_run_that_was_asked_for_is_judged(
    wrong: bool,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    make_run: Callable[..., Run],
) -> None:
    """Not another process's, which was stored a moment later."""
    failed = Verification("failed", 0.5, 1e-5, 9, 9)
    ours = make_run(verification=failed, coverage=Coverage(5, 16, timed_out=True))
    theirs = make_run(kernel="naive")
    if not wrong:
        ours, theirs = make_run(), make_run(kernel="naive", verification=failed)
    add_all = Store.add_all

    def and_others(store: Store, runs: Sequence[Run]) -> list[Run]:
        stored = add_all(store, runs)
        add_all(store, [theirs])
        return stored

    monkeypatch.setattr(Store, "add_all", and_others)
    monkeypatch.setattr(drawing, "run_prepared", lambda *_: ours)
    assert main(["roofline", "tiled"]) == int(wrong)

    err = capsys.readouterr().err
    assert ("verification failed" in err) == wrong
    assert ("stopped at the time limit: 5 of 16 blocks" in err) == wrong
    assert len(Store().runs()) == 2


@pytest.fixture
def store(folder: Path, make_run: Callable[..., Run]) -> Store:
    """Runs 1 to 4 of one device, and 5 of another."""
    store = Store()
    for kernel, label in (("naive", ""), ("tiled", "before"), ("tiled", "after"), ("tiled", "")):
        run = make_run(kernel=kernel)
        store.add(replace(run, identity=replace(run.identity, label=label)))
    store.add(make_run(kernel="naive", device=DeviceSummary("Tesla T4", "emulated", (7, 5), "t4")))
    return store


def drawn_ids(folder: Path) -> set[int]:
    with (folder / "roofline.csv").open() as file:
        return {int(row["run"]) for row in csv.DictReader(file) if row["record"] == "point"}


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ("", {1, 2, 3, 4}),
        ("--kernel tiled", {2, 3, 4}),
        ("--kernel n* --label before", set()),
        ("--label before --label after", {2, 3}),
        ("--last 2", {3, 4}),
        ("--since 2026-07-15", set()),
        ("--since 2026-07-14 --last 1", {4}),
        ("--run 1 --run before", {1, 2}),
        ("--run all.json", {1, 2, 3}),
    ],
)
def test_runs_are_chosen_as_in_their_list(
    words: str, ids: set[int], store: Store, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = [run_document(run) for run in store.runs()[:3]]
    (folder / "all.json").write_text(json.dumps(documents))
    code = main(["roofline", *words.split()])
    if ids:
        assert code == 0
        assert drawn_ids(folder) == ids
    else:
        assert code == 2
        assert "none of the runs of h200" in capsys.readouterr().err
        assert not (folder / "roofline.png").exists()
    assert len(store.runs()) == 5  # no ladder


def test_a_new_run_is_drawn_whatever_is_chosen(store: Store, folder: Path) -> None:
    words = ["roofline", "-q", "--label", "before", "tiled", "--width", "32", "--tile", "8"]
    assert main(words) == 0
    assert drawn_ids(folder) == {2, 6}
    assert main(["roofline", "-q", "naive", "--width", "32", "--run", "3"]) == 0
    assert drawn_ids(folder) == {3, 7}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--run 9", "no run 9"),
        ("--run befor", "did you mean 'before'?"),
        ("--run 1 --last 2", "--run and --last 2 were both given"),
        ("--run 1 --run 5", "ceilings of one device"),
        ("--last none", "got 'none'"),
    ],
)
def test_bad_choices_are_one_line(
    words: str, message: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["roofline", *words.split()]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_the_title_is_drawn(store: Store, folder: Path) -> None:
    assert main(["roofline", "-q", "--title", "Tile widths", "-o", "roofline.svg"]) == 0
    labels = (folder / "roofline.svg").read_text()
    assert "<!-- Tile widths -->" in labels
    assert "Roofline of" not in labels


def test_a_second_picture_replaces_the_first(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["roofline", "-q"]) == 0
    before = (folder / "roofline.csv").read_text()
    assert main(["roofline", "tiled", "--width", "40", "--tile", "4"]) == 0
    assert capsys.readouterr().err == "memlab: wrote roofline.png and roofline.csv\n"
    assert len((folder / "roofline.csv").read_text()) > len(before)


@pytest.mark.parametrize("option", ["--force", "--overwrite"])
def test_force_overwrites_both(option: str, folder: Path) -> None:
    for name in ("roofline.png", "roofline.csv"):
        (folder / name).write_text("old")

    assert main(["roofline", "-q", option]) == 0

    assert (folder / "roofline.png").read_bytes().startswith(SIGNATURES["png"])
    assert (folder / "roofline.csv").read_text() != "old"
