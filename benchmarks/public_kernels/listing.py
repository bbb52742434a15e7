"""The lists of public kernels: one TOML file per repository in `lists`.

The references of `lists/NAME.toml` are functions in `references/NAME.py`, with NAME in lower case
and `_` for what an identifier cannot hold. NAME is the repository's, with another word where two
repositories would share it.

Its keys:

    repository = "OWNER/NAME"       # of a public forge; its code is not part of memlab
    commit = "40 hexadecimal digits"
    [[kernel]]
    file = "src/k.cu"               # in the repository
    name = "scale"                  # the kernel
    about = "a vector times a number"
    first = "memlab run src/k.cu:scale --set N=1M"    # as typed before anything was tried
    second = "memlab run …"         # where the first was mistaken or refused, and another runs
    why = "…"                       # why the first does not run
    reference = "scale"             # a function in references/NAME.py; absent: there is none
    reference_options = "--tolerance 1e-3"      # also fills that it needs: "--const mask=arange"
    check = false                   # not to be checked; true where this is absent
    judged = { "RAW in line 33" = "true: …" }    # whether each finding of check is true, and why
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
LISTS = FOLDER / "lists"
REFERENCES = FOLDER / "references"


@dataclass(frozen=True)
class PublicKernel:
    """A kernel of a public repository, with the commands that run it.

    Attributes:
        references: The Python file with the references of this repository's kernels.

    The others are the keys of the TOML file, above; `repository` and `commit` are its head.
    """

    references: Path
    repository: str
    commit: str
    file: str
    name: str
    about: str
    first: str
    second: str = ""
    why: str = ""
    reference: str = ""
    reference_options: str = ""
    check: bool = True
    judged: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The folder of the checkout: the repository's name without its owner."""
        return self.repository.rpartition("/")[2]


def read_lists(only: str = "") -> list[PublicKernel]:
    """Read the kernels of all lists, or of those whose repository's name contains a text.

    Raises:
        TypeError: A list has a key that is not known, or lacks one.
    """
    kernels = []
    for path in sorted(LISTS.glob("*.toml")):
        table: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
        references = REFERENCES / (re.sub(r"\W", "_", path.stem).lower() + ".py")
        head = {
            "references": references,
            "repository": table["repository"],
            "commit": table["commit"],
        }
        if only in head["repository"]:
            kernels += [PublicKernel(**head, **entry) for entry in table["kernel"]]
    return kernels
