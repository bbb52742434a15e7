"""Reports on a terminal of 60 columns: every word and figure of the wide one, whole."""

from __future__ import annotations

from collections import Counter

import pytest
from rich.cells import cell_len

from memlab.cli.app import main

TILED = "tiled --width 64 --tile 8"


@pytest.mark.parametrize(
    "words",
    [
        f"run {TILED} --no-store",
        f"check {TILED}",
        "trace tiled --width 4 --tile 2",
        "occupancy tiled",
        "kernels",
        "lesson",
        "help",
        "help environment",
        "explain wavefront",
    ],
)
def test_nothing_is_lost_or_cut(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    shown = {}
    for columns in (60, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(words.split()) == 0
        shown[columns] = capsys.readouterr().out
    assert max(cell_len(line) for line in shown[60].splitlines()) <= 60
    wide, narrow = (Counter(shown[columns].split()) for columns in (80, 60))

    assert not {word for word in wide - narrow if any(map(str.isalnum, word))}


def test_labels_of_figures_stay_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["run", *TILED.split(), "--no-store", "--device", "h200"]) == 0
    lines = capsys.readouterr().out.splitlines()

    for label in ("  global stores ", "Bus utilisation ", "  L1 / shared ", "  compulsory "):
        (line,) = (line for line in lines if line.startswith(label) and line.rstrip()[-1:] != ":")
        assert any(character.isdigit() for character in line) or label.startswith("Bus")
