"""The planted bugs of `data/planted`: their launches, and the findings that a check must give.

The head of each file says how: `launch:` has the words behind the kernel's name on memlab's command
line, `reference:` the function of `reference.py` that the output is compared with,
`verification:` how that ends where it does not fail, `unplaced:` what must be found that has no
line, and `beyond compute-sanitizer:` why that cannot find it, where it cannot.
`// BUG tool: kind` stands at each line that a finding must name. With `-D FIXED` nothing may be
found.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from paths import DATA

FOLDER = DATA / "planted"

_HEAD = re.compile(
    r"^// (launch|reference|verification|unplaced|beyond compute-sanitizer): (.*)$", re.M
)
_BUG = re.compile(r"// BUG (.*)$")

Named = dict[tuple[str, str], set[int]]
"""Lines by tool and kind."""


@dataclass(frozen=True)
class Planted:
    """A file with planted bugs.

    Attributes:
        path: Where it is.
        words: How it is launched, in words of the command line.
        bugs: What must be found, and where.
        verification: How comparing the output must end.
        beyond_sanitizer: Why compute-sanitizer cannot find them; empty where it might.
    """

    path: Path
    words: tuple[str, ...]
    bugs: Named
    verification: str
    beyond_sanitizer: str = ""

    @property
    def name(self) -> str:
        """The file's name without its suffix."""
        return self.path.stem


def read(path: Path) -> Planted:
    """Read the head and the marks of a file."""
    text = path.read_text()
    head = dict(_HEAD.findall(text))
    words = shlex.split(head["launch"])
    if "reference" in head:
        words += ["--reference", f"{FOLDER / 'reference.py'}:{head['reference']}"]
    bugs: Named = defaultdict(set)
    if "unplaced" in head:
        tool, kind = head["unplaced"].split(": ")
        bugs[tool, kind].add(0)
    for number, line in enumerate(text.splitlines(), 1):
        marked = _BUG.search(line)
        for bug in marked[1].split("; ") if marked else ():
            tool, kind = bug.split(": ")
            bugs[tool, kind].add(number)
    fails = "failed" if "reference" in head else "skipped"
    return Planted(
        path,
        tuple(words),
        dict(bugs),
        head.get("verification", fails),
        head.get("beyond compute-sanitizer", ""),
    )


PLANTED = tuple(map(read, sorted(FOLDER.glob("*.cu"))))
"""All files with planted bugs."""
