"""Text that is safe to show in a terminal, and nouns after numbers."""

from unicodedata import category

_ESCAPED_CATEGORIES = ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp")
"""Unicode's categories of characters that control, have no meaning or end a line."""


def printable(text: str, but: str = "") -> str:
    """Write control characters as escapes, so that they cannot move the cursor or change colours.

    Args:
        text: Text that may be another person's: file names, source lines, a kernel's output.
        but: Control characters that stay.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character in but or category(character) not in _ESCAPED_CATEGORIES
        else character.encode("unicode_escape").decode()
        for character in text
    )


def plural(count: int, noun: str) -> str:
    """Return a noun as it follows a number: 1 `block`, 2 `blocks`."""
    return noun if count == 1 else f"{noun}s"
