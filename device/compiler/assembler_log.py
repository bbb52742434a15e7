"""Gives the errors of the assembler ptxas the source lines of the PTX lines that they name."""

from __future__ import annotations

import re
from pathlib import PurePath

_MESSAGE = re.compile(r"^ptxas [^,\n]*, line (\d+); (error|warning)\s*: (.*)$", re.M)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]+)"')
_PLACE = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")


def with_source_lines(log: str, ptx: str, source_name: str) -> str:
    """Name file and line of the source in each message of ptxas about a line of PTX.

    Args:
        log: The compiler's log.
        ptx: The PTX that was assembled; with `.loc` directives.
        source_name: The name under which the source was compiled.
    """
    lines = ptx.splitlines()
    files = {found[1]: found[2] for line in lines if (found := _FILE.match(line))}

    def place(message: re.Match[str]) -> str:
        for line in reversed(lines[: int(message[1])]):
            if found := _PLACE.match(line):
                path = files.get(found[1], source_name)
                if PurePath(path).name == PurePath(source_name).name:
                    path = source_name
                return f"{path}({found[2]}): ptxas {message[2]}: {message[3]}"
        return message[0]

    return _MESSAGE.sub(place, log)
