"""The launches that are compared: those of the catalog, and those of `tests/data/truth`."""

from __future__ import annotations

import argparse
import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from benchmarks.counters import DATASHEET, identity, launches
from benchmarks.truth.data import data_folder, write_array
from memlab.device.datasheets import loader
from memlab.device.devices import launch_limits
from memlab.kernels.launch import Launch
from memlab.kernels.user.kernel import UserKernel, apply_launch_options
from memlab.launching import prepare_launch

FOLDER = Path(__file__).parents[2] / "tests" / "data" / "truth"
USED, FIRST_ASIDE, SECOND_ASIDE, THIRD_ASIDE, FOURTH_ASIDE, FIFTH_ASIDE, SIXTH_ASIDE = range(7)
"""The sets of launches."""
SETS = {
    FIRST_ASIDE: "put aside",
    SECOND_ASIDE: "put aside later",
    THIRD_ASIDE: "put aside third",
    FOURTH_ASIDE: "put aside fourth",
    FIFTH_ASIDE: "put aside fifth",
    SIXTH_ASIDE: "put aside last",
}
"""The sets that were put aside, in words."""
LATER_FOLDERS = {
    SECOND_ASIDE: FOLDER / "held-out",
    THIRD_ASIDE: FOLDER / "held-out-3",
    FOURTH_ASIDE: FOLDER / "held-out-4",
    FIFTH_ASIDE: FOLDER / "held-out-5",
    SIXTH_ASIDE: FOLDER / "held-out-6",
}
"""The launches of each set that was put aside as a whole."""
OTHER_DEVICES = {THIRD_ASIDE: "h100", SIXTH_ASIDE: "h100"}
"""The datasheets of the devices that sets were measured on, if it is not `DATASHEET`."""
CATALOG_KIND = "catalog"
HELD_OUT_SHARE = 3
"""One launch in so many is put aside."""


@dataclass(frozen=True)
class Case:
    """A launch.

    Attributes:
        name: Its name; no other launch has it.
        kind: The kind of kernel, by which errors are grouped.
        words: The words after `memlab run`; empty for a kernel of the catalog.
        held_out: Its set: those that the models were made with, or those that were put aside at
            first or later, whose errors are looked at only when models are complete.
        folder: Where its files are.
    """

    name: str
    kind: str
    words: str = ""
    held_out: int = USED
    folder: Path = FOLDER

    def matches(self, texts: Sequence[str]) -> bool:
        """Whether one of some texts is in the name, or is the kind."""
        return any(text in self.name or text == self.kind for text in texts)

    def launch(self) -> Launch:
        """Make the launch, on the device that was measured, with the files that it reads."""
        if not self.words:
            return _catalog_launches()[self.name]
        return prepare_launch(
            user_kernel(self.words, self.folder), {}, loader.load_datasheet(self.device)
        )

    @property
    def device(self) -> str:
        """The datasheet of the device that was measured."""
        return OTHER_DEVICES.get(self.held_out, DATASHEET)


def all_cases() -> list[Case]:
    """All launches; those of the catalog are the ones that `benchmarks.counters` compares."""
    catalog = (Case(name, CATALOG_KIND) for name in _catalog_launches())
    return [*catalog, *written_cases(), *later_cases()]


def written_cases() -> Iterator[Case]:
    """The launches of `tests/data/truth/launches.toml`.

    Of each kind, the third whose names have the lowest hashes is put aside.
    """
    for kind, of_kind in tomllib.loads((FOLDER / "launches.toml").read_text()).items():
        ranked = sorted(of_kind, key=lambda name: sha256(name.encode()).digest())
        aside = set(ranked[: round(len(ranked) / HELD_OUT_SHARE)])
        for name, words in of_kind.items():
            yield Case(name, kind, words, FIRST_ASIDE if name in aside else USED)


def later_cases() -> Iterator[Case]:
    """The launches in `LATER_FOLDERS`, all of which are put aside."""
    for held_out, folder in LATER_FOLDERS.items():
        for kind, of_kind in tomllib.loads((folder / "launches.toml").read_text()).items():
            for name, words in of_kind.items():
                yield Case(name, kind, words, held_out, folder)


def user_kernel(words: str, folder: Path = FOLDER) -> UserKernel:
    """The kernel and launch options that the words after `memlab run` give.

    The files that arguments read are written.

    Args:
        words: The words.
        folder: Where the source and the reference are.
    """
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("target")
    for option in ("grid", "block", "shared", "reference"):
        parser.add_argument(f"--{option}")
    parser.add_argument("--arg", action="append", default=[])
    parser.add_argument("--const", action="append", default=[])
    given = parser.parse_args(shlex.split(words))
    file, _, entry = given.target.partition(":")
    options = {
        "grid": given.grid,
        "block": given.block,
        "shared": given.shared,
        "args": [_with_file(text) for text in given.arg],
        "constants": given.const,
        "reference": given.reference and str(folder / given.reference),
    }
    return apply_launch_options(UserKernel(str(folder / file), entry), options)


def _with_file(argument: str) -> str:
    """Name a file by its path, and write it."""
    named = re.search(r"@(.+)", argument)
    if named is None:
        return argument
    file = data_folder() / named[1]
    write_array(file)
    return argument.replace(named[0], f"@{file}")


@cache
def _catalog_launches() -> dict[str, Launch]:
    made = launches(launch_limits(loader.load_datasheet(DATASHEET)))
    return {f"{launch.kernel} {identity(launch)['parameters']}".rstrip(): launch for launch in made}
