"""The folder of a lesson: its files, and an environment in which only the lesson counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import REPOSITORY

from memlab.errors import UsageError
from memlab.lessons.folder import command_environment, make_folder, own_folder


def test_a_folder_begins_with_the_examples(tmp_path: Path) -> None:
    make_folder(tmp_path / "new" / "lesson")

    made = {path.name for path in (tmp_path / "new" / "lesson").iterdir()}
    examples = (REPOSITORY / "docs" / "examples").iterdir()
    assert made == {path.name for path in examples if path.is_file()} | {"images"}


def test_a_folder_in_use_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "saxpy.cu").write_text("mine")

    with pytest.raises(UsageError, match="is not empty"):
        make_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["saxpy.cu"]
    with pytest.raises(UsageError, match="cannot make the folder"):
        make_folder(tmp_path / "saxpy.cu")


def test_memlabs_own_folder_is_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = own_folder("04-tiling")
    assert folder.is_relative_to(tmp_path)
    make_folder(folder)
    (folder / "left.png").write_text("of the last time")

    make_folder(own_folder("04-tiling"))

    assert not (folder / "left.png").exists()


def test_settings_of_the_user_do_not_count(tmp_path: Path) -> None:
    mine = {"MEMLAB_STORE": "mine", "MEMLAB_DEVICE": "0", "MEMLAB_THREADS": "2", "PATH": "/bin"}

    environment = command_environment(tmp_path, mine | {"COLUMNS": "200"})

    assert environment == {
        "MEMLAB_STORE": str(tmp_path / "runs.db"),
        "MEMLAB_DEVICE": "h200",
        "MEMLAB_THREADS": "2",
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "",
        "COLUMNS": "80",
    }
