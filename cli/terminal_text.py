"""Text for terminals and files whose encoding lacks characters: each has a stand-in of its width.

With the handler `replace` of Python, a passed ✓ and a failed ✗ would both be a question mark.
"""

import codecs
import io
import sys

STAND_INS = {
    "✓": "+",
    "✗": "x",
    "→": ">",
    "←": "<",
    "◀": "<",
    "▶": ">",
    "µ": "u",
    "×": "x",
    "·": ".",
    "…": ".",
    "–": "-",
    "—": "-",
    "±": "~",
    "≤": "<",
    "≥": ">",
    "─": "-",
    "━": "=",
    "│": "|",
    "┃": "|",
    "█": "#",
    "🟢": "+ ",
    "🔴": "x ",
    "🟡": "~ ",
    "⚪": "- ",
}
"""ASCII of the same width in a terminal, by character; all others are question marks."""

_HANDLER = "memlab.stand-in"


def use_stand_ins() -> None:
    """Write stand-ins to stdout and stderr for characters that their encodings lack."""
    codecs.register_error(_HANDLER, _stand_in)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def echo(text: str, *, end: str = "\n", err: bool = False) -> None:
    """Write text for readers to stdout or stderr, with stand-ins.

    `typer.echo` writes UTF-8 where the encoding is ASCII, which suits documents alone.
    """
    print(text, end=end, file=sys.stderr if err else sys.stdout, flush=True)


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(STAND_INS.get(character, "?") for character in missing), error.end
