"""The one root of every error that memlab raises on purpose.

The command line catches `MemlabError` once, prints its message as one line on
stderr and leaves with its `exit_code`. A message names the limit, the value
received and the next step.
"""

import difflib
from collections.abc import Iterable
from typing import Any


class MemlabError(Exception):
    """Something memlab can explain; the message is for the person at the terminal."""

    exit_code = 1


class UsageError(MemlabError):
    """What was asked for cannot be: a bad value, an unknown name, a file in the way."""

    exit_code = 2


class MemlabWarning(UserWarning):
    """Something the person at the terminal should know, though the work goes on."""


class Incomplete(UsageError):
    """The work is done, but not all of it could be kept or read.

    Attributes:
        result: What there is: all that the call would have given, but for what the message says.
    """

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result


class DeviceError(MemlabError):
    """A device or a back end that is needed is not available here."""

    exit_code = 3


def suggest_nearest(name: str, known: Iterable[str], listing: str = "") -> str:
    """Say which known names come closest to a mistyped one.

    Args:
        name: What was typed.
        known: The names there are.
        listing: Where to see them, said in place of the names where these are too many.

    Returns:
        `did you mean 'a' or 'b'?` when some are close, else the listing, or `known: a, b, c`.
    """
    names = sorted(known)
    close = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(repr(match) for match in close) + "?"
    return listing or "known: " + ", ".join(names)
