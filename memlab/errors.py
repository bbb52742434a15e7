"""The errors that memlab raises on purpose; `MemlabError` is their base.

The command line catches `MemlabError` in one place, prints its message as one line on stderr and
exits with its `exit_code`. A message names the limit, the value received and the next step.
"""

import difflib
from collections.abc import Iterable
from typing import Any


class MemlabError(Exception):
    """An error that memlab can explain; the message is for the user.

    Attributes:
        exit_code: The exit code of the command line.
    """

    exit_code = 1


class UsageError(MemlabError):
    """A wrong request: a bad value, an unknown name, a file that cannot be read or written."""

    exit_code = 2


class MemlabWarning(UserWarning):
    """A message to the user that does not stop the work."""


class Incomplete(UsageError):
    """The work is done, but a part could not be stored or read.

    Attributes:
        result: The result of the call, without the part that the message names.
    """

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result


class DeviceError(MemlabError):
    """A device or a back end that the work needs is not available."""

    exit_code = 3


LEAST_SIMILARITY = 0.6
"""How similar a name must be to be suggested, as `difflib.SequenceMatcher.ratio` tells it."""
LEAST_PART = 3
"""The fewest letters by which a part of a name suggests the whole."""


def suggest_nearest(name: str, known: Iterable[str], listing: str = "") -> str:
    """Suggest the known names that are close to a mistyped one, or that contain it.

    Args:
        name: The name as it was typed.
        known: The known names.
        listing: Where to see the known names, for the message where they are too many.

    Returns:
        `did you mean 'a' or 'b'?` if some are close, else the listing, or `known: a, b, c`.
    """
    names, wanted = sorted(known), name.lower()
    close = difflib.get_close_matches(wanted, names, n=3, cutoff=LEAST_SIMILARITY)
    if not close and len(wanted) >= LEAST_PART:
        close = [known_name for known_name in names if wanted in known_name.lower()][:3]
    if close:
        return "did you mean " + " or ".join(repr(match) for match in close) + "?"
    return listing or "known: " + ", ".join(names)
