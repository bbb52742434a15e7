"""The text that kernels print: strings in memory, and `printf`.

The text goes to stderr, lane after lane, so that stdout carries results alone. It is third-party
text: control characters are escaped, and its length is limited.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable

import numpy as np

from memlab.device.emulator.isa.address_space import GLOBAL_BASE, LOCAL_WINDOW
from memlab.device.emulator.machine.memory import GlobalMemory, Lanes, Mask, Segment
from memlab.text import printable

MAX_PRINTED_LINES = 1000
"""Calls of `printf` per launch; further ones are left out."""

MAX_PRINTED_CHARACTERS = 1 << 20
"""Characters per launch: the default size of CUDA's buffer in bytes (CUDA C++ Programming Guide,
"Formatted Output", `cudaLimitPrintfFifoSize`)."""

MAX_FIELD_WIDTH = 4096
"""Characters of one conversion: larger widths and precisions are reduced to this."""

_LONGEST_BYTES = 4096  # of a string
# A number of more than nine digits may exceed an int, and C leaves its meaning undefined.
_CONVERSION = re.compile(
    r"%([-+ #0]*)(\*|\d{1,9})?(?:\.(\*|\d{0,9}))?(hh|h|ll|l|j|z|t)?([a-zA-Z%])"
)
_WIDE_LENGTHS = ("l", "ll", "j", "z", "t")


def read_string(memory: GlobalMemory, address: int) -> str:
    """The string at a generic address; memory outside the arrays is not read."""
    start = address - GLOBAL_BASE
    if not memory.check(address, address + 1):
        return "(a string that is not in global memory)"
    raw = memory.data[start : start + _LONGEST_BYTES].tobytes()
    return raw.partition(b"\0")[0].decode(errors="replace")


def format_printf(form: str, arguments: bytes, string: Callable[[int], str]) -> str:
    """The text that `printf` prints.

    Args:
        form: The format.
        arguments: The values in sequence, each aligned to its size, as `vprintf` takes them.
        string: Reads the string at an address.
    """
    position = 0

    def take(kind: str) -> int | float:
        nonlocal position
        size = struct.calcsize(kind)
        position = -(-position // size) * size
        padded = arguments.ljust(position + size, b"\0")
        (value,) = struct.unpack_from(f"<{kind}", padded, position)
        position += size
        return value  # type: ignore[no-any-return]

    def convert(match: re.Match[str]) -> str:
        flags, width, precision, length, letter = match.groups()
        if letter == "%":
            return "%"
        if width:
            wide = int(take("i") if width == "*" else width)
            flags += "-" if wide < 0 else ""  # C11, 7.21.6.1
            width = str(min(abs(wide), MAX_FIELD_WIDTH))
        spec = padded = f"%{flags}{width or ''}"
        if precision is not None:
            digits = int(take("i") if precision == "*" else precision or 0)
            # A negative precision counts as none (C11, 7.21.6.1).
            spec += "" if digits < 0 else f".{min(digits, MAX_FIELD_WIDTH)}"
        if letter in "di":
            return (spec + "d") % take("q" if length in _WIDE_LENGTHS else "i")
        if letter in "uoxX":
            value = take("Q" if length in _WIDE_LENGTHS else "I")
            return (spec + letter.replace("u", "d")) % value
        if letter in "eEfFgG":
            return (spec + letter) % take("d")
        if letter in "aA":
            return (padded + "s") % float(take("d")).hex()
        if letter == "c":
            return (spec + "c") % (int(take("i")) & 0xFF)
        if letter == "s":
            return (spec + "s") % string(int(take("Q")))
        if letter == "p":
            return (padded + "s") % hex(int(take("Q")))
        return match[0]

    return _CONVERSION.sub(convert, form)


def print_lanes(
    memory: GlobalMemory,
    local: Segment,
    form: Lanes,
    arguments: Lanes,
    lanes: Mask,
) -> None:
    """Print the text of each lane, up to the limits of a launch.

    Args:
        memory: Holds the formats and strings, and counts the output of the launch.
        local: The local memory of the chunk.
        form: The address of each lane's format.
        arguments: The address of each lane's values, in its local memory.
        lanes: The lanes that print, as a mask.
    """
    forms, starts = (np.broadcast_to(s, len(lanes)) for s in (form, arguments))
    lines = []
    for lane in np.flatnonzero(lanes).tolist():
        left = MAX_PRINTED_CHARACTERS - memory.printed_characters
        if memory.printed >= MAX_PRINTED_LINES or left <= 0:
            break
        memory.printed += 1
        offset, values = int(starts[lane]) - LOCAL_WINDOW, b""
        if local.lane_base is not None and 0 <= offset < local.size:
            start = int(local.lane_base[lane])
            values = local.data[start + offset : start + local.size].tobytes()
        text = read_string(memory, int(forms[lane]))
        text = format_printf(text, values, lambda address: read_string(memory, address))
        text = printable(text[:left], but="\n\t")[:left]
        memory.printed_characters += len(text)
        lines.append(text)
        if len(text) == left:
            lines.append(f"\n(output after {MAX_PRINTED_CHARACTERS} characters is left out)\n")
        elif memory.printed == MAX_PRINTED_LINES:
            lines.append(f"(output after {MAX_PRINTED_LINES} calls of printf is left out)\n")
    sys.stderr.write("".join(lines))
