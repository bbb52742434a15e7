"""The folder in which the commands of a lesson run, and their environment.

Each lesson begins with its files, an empty store and the device of the text, so that its commands
give what the text says, whatever the user's folder, store and settings hold.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from memlab.errors import UsageError

DEVICE = "h200"
"""The device of commands that name none."""

COLUMNS = 80
"""The width of the outputs in the text."""

_KEPT = ("MEMLAB_CACHE", "MEMLAB_THREADS")
"""Settings of the user that change no output."""


def make_folder(folder: Path) -> None:
    """Make the folder of a lesson, with the example files.

    Args:
        folder: The folder; it is missing or empty.

    Raises:
        UsageError: It holds something, or it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(
                f"{folder} is not empty, and a lesson begins with its own files: name another one"
            )
        (folder / "images").mkdir()
        for example in (resources.files("memlab.lessons") / "examples").iterdir():
            if example.is_file():
                (folder / example.name).write_bytes(example.read_bytes())
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {folder} ({error.strerror or error}): name another one"
        ) from None


def own_folder(name: str) -> Path:
    """Empty the folder that memlab keeps for a lesson, in the user's cache, and return it.

    Raises:
        UsageError: It cannot be emptied.
    """
    from platformdirs import user_cache_path

    folder = user_cache_path("memlab", appauthor=False) / "lessons" / name
    try:
        if folder.exists():
            shutil.rmtree(folder)
    except OSError as error:
        raise UsageError(
            f"cannot empty {folder} ({error.strerror or error}): name a folder with --folder"
        ) from None
    return folder


def command_environment(folder: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a lesson's commands.

    Args:
        folder: The folder of the lesson.
        inherited: The environment of the user, whose settings of memlab are left out.
    """
    kept = {
        name: text
        for name, text in inherited.items()
        if name in _KEPT or not name.startswith("MEMLAB_")
    }
    return kept | {
        "MEMLAB_DEVICE": DEVICE,
        "MEMLAB_STORE": str(folder.resolve() / "runs.db"),
        "CUDA_VISIBLE_DEVICES": "",
        "COLUMNS": str(COLUMNS),
    }
