"""What kernels say: strings in memory, and `printf`.

The text goes to stderr, lane after lane, so that stdout carries results alone. It is a stranger's:
what drives a terminal is escaped, and there is an end to it.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable, Mapping

import numpy as np

from memlab.device.emulator.isa.address_space import GLOBAL_BASE, LOCAL_WINDOW
from memlab.device.emulator.machine.memory import GlobalMemory, Segment
from memlab.device.emulator.machine.operands import Source, value_of
from memlab.device.emulator.machine.scheduler import Mask
from memlab.text import printable

MAX_PRINTED_LINES = 1000
"""Of a launch; what is printed beyond is left out."""

MAX_PRINTED_CHARACTERS = 1 << 20
"""Of a launch; CUDA's own buffer has as many bytes if nothing else is said (CUDA C++ Programming
Guide, "Formatted Output", `cudaLimitPrintfFifoSize`)."""

MAX_FIELD_WIDTH = 4096
"""Characters of one conversion: larger widths and precisions are taken for this."""

_LONGEST_BYTES = 4096  # of a string
# More digits than nine are more than an int holds, and C does not say what they mean.
_CONVERSION = re.compile(
    r"%([-+ #0]*)(\*|\d{1,9})?(?:\.(\*|\d{0,9}))?(hh|h|ll|l|j|z|t)?([a-zA-Z%])"
)
_WIDE_LENGTHS = ("l", "ll", "j", "z", "t")


def read_string(memory: GlobalMemory, address: int) -> str:
    """The string at a generic address; what lies outside the arrays is not read."""
    start = address - GLOBAL_BASE
    if not memory.check(address, address + 1):
        return "(a string that is not in global memory)"
    raw = memory.data[start : start + _LONGEST_BYTES].tobytes()
    return raw.partition(b"\0")[0].decode(errors="replace")


def format_printf(form: str, arguments: bytes, string: Callable[[int], str]) -> str:
    """What `printf` prints.

    Args:
        form: Its format.
        arguments: The values behind one another, each aligned to its size, as `vprintf` takes them.
        string: The string at an address.
    """
    at = 0

    def take(kind: str) -> int | float:
        nonlocal at
        size = struct.calcsize(kind)
        at = -(-at // size) * size
        (value,) = struct.unpack_from(f"<{kind}", arguments.ljust(at + size, b"\0"), at)
        at += size
        return value  # type: ignore[no-any-return]

    def one(match: re.Match[str]) -> str:
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
            # A negative one counts as none (C11, 7.21.6.1).
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

    return _CONVERSION.sub(one, form)


def print_lanes(
    memory: GlobalMemory,
    segments: Mapping[str, Segment],
    form: Source,
    arguments: Source,
    lanes: Mask,
) -> None:
    """Print for each of some lanes, until a launch has printed enough.

    Args:
        memory: Holds the formats and strings, and how much was printed.
        segments: The state spaces of the chunk.
        form: Each lane's address of its format.
        arguments: Each lane's address of its values, in its local memory.
        lanes: As a mask.
    """
    local = segments["local"]
    forms, starts = (np.broadcast_to(value_of(each), len(lanes)) for each in (form, arguments))
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
            lines.append(
                f"\n(what is printed after {MAX_PRINTED_CHARACTERS} characters is left out)\n"
            )
        elif memory.printed == MAX_PRINTED_LINES:
            lines.append(
                f"(what is printed after {MAX_PRINTED_LINES} calls of printf is left out)\n"
            )
    sys.stderr.write("".join(lines))
