"""The launches that are compared: of the catalog, of `tests/data/truth`, and public kernels."""

from __future__ import annotations

import argparse
import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from benchmarks.counters import DATASHEET, identity, launches
from benchmarks.public_kernels.listing import read_lists
from benchmarks.truth.data import data_folder, write_array
from memlab.device.datasheets import loader
from memlab.device.devices import launch_limits
from memlab.kernels.launch import Launch
from memlab.kernels.user.kernel import UserKernel, apply_launch_options
from memlab.launching import prepare_launch, resolve_kernel

FOLDER = Path(__file__).parents[2] / "tests" / "data" / "truth"
USED, FIRST_ASIDE, SECOND_ASIDE, THIRD_ASIDE, FOURTH_ASIDE, FIFTH_ASIDE, SIXTH_ASIDE = range(7)
PUBLIC = SIXTH_ASIDE + 1
"""The sets of launches; the last is of kernels of public repositories."""
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
OTHER_DEVICES = {THIRD_ASIDE: "h100", SIXTH_ASIDE: "h100", PUBLIC: "h100"}
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
        properties = loader.load_datasheet(self.device)
        kernel, parameters = resolve_kernel(user_kernel(self.words, self.folder), {}, properties)
        return prepare_launch(kernel, parameters, properties)

    @property
    def device(self) -> str:
        """The datasheet of the device that was measured."""
        return OTHER_DEVICES.get(self.held_out, DATASHEET)


def chosen_cases(
    held_out: int | None, only: Sequence[str] = ("",), checkouts: Path | None = None
) -> list[Case]:
    """The launches of one set, or those with names.

    Args:
        held_out: The set, as of `Case`; None for all.
        only: Texts, one of which a launch's name contains, or is its kind.
        checkouts: The folder of `public_cases`, which are then chosen from; None for the others.
    """
    listed = all_cases() if checkouts is None else list(public_cases(checkouts))
    return [each for each in listed if held_out in (None, each.held_out) and each.matches(only)]


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


def public_cases(checkouts: Path) -> Iterator[Case]:
    """The launches of public repositories, by the command that runs each of them.

    Args:
        checkouts: The folder with the repositories, as of `benchmarks.public_kernels`.
    """
    made = Counter[str]()
    for kernel in read_lists():
        name = f"{kernel.folder}/{kernel.name}"
        made[name] += 1
        number = f"#{made[name]}" if made[name] > 1 else ""
        words = (kernel.second or kernel.first).removeprefix("memlab run ")
        yield Case(name + number, kernel.folder, words, PUBLIC, checkouts / kernel.folder)


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
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("-D", dest="defines", action="append", default=[])
    given = parser.parse_args(shlex.split(words))
    file, _, entry = given.target.partition(":")
    options = {
        "grid": given.grid,
        "block": given.block,
        "shared": given.shared,
        "args": [_with_file(text) for text in given.arg],
        "constants": given.const,
        "symbols": given.set,
        "defines": given.defines,
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
