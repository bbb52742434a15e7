"""Text that is safe to show, from whoever it may be; nouns behind numbers."""

from unicodedata import category

_ESCAPED_CATEGORIES = ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp")
"""Unicode's categories of what controls, has no meaning or ends a line."""


def printable(text: str, but: str = "") -> str:
    """Text with what moves a terminal's cursor, colours it or turns it round written as escapes.

    Args:
        text: Names of files and kernels, source lines, stored runs, what a kernel prints.
        but: Characters that stay.
    """
    if text.isprintable():
        return text
    return "".join(
        each
        if each in but or category(each) not in _ESCAPED_CATEGORIES
        else each.encode("unicode_escape").decode()
        for each in text
    )


def plural(count: int, noun: str) -> str:
    """A noun as it stands behind a number: 1 `block`, 2 `blocks`."""
    return noun if count == 1 else f"{noun}s"
