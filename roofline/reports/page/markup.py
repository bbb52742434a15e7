"""The parts of an HTML page: escaped text, tables, data for scripts, styles and the document."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from rich.text import Text

from memlab.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

_FOLDER = resources.files("memlab.roofline.reports.page")

_EMPHASIS = {"bold": "strong", "green": "good", "red": "bad", "yellow": "warn"}
"""The meaning of the words in a terminal's styles: `strong`, or a class of the page."""

_BAR_CHARACTERS = frozenset("━─ ")
"""What `parts.bar` draws a share with; a page has its own bars."""


def escape(text: str) -> str:
    """Escape text for the page; control characters are written out."""
    return html.escape(printable(text, but="\t"))


def text_html(value: RenderableType) -> str:
    """Write a value of a report's section as HTML, with the terminal's emphasis."""
    if not isinstance(value, Text):
        return _lines(str(value))
    parts = []
    for segment in value.divide(
        sorted({end for span in value.spans for end in (span.start, span.end)})
    ):
        if set(segment.plain) <= _BAR_CHARACTERS and segment.plain.strip():
            continue
        words = {
            word
            for style in (segment.style, *(span.style for span in segment.spans))
            for word in str(style).split()
        }
        inner = _lines(segment.plain)
        looks = " ".join(_EMPHASIS[word] for word in sorted(words & {"green", "red", "yellow"}))
        if looks:
            inner = f'<span class="{looks}">{inner}</span>'
        parts.append(f"<strong>{inner}</strong>" if "bold" in words else inner)
    return "".join(parts).strip()


def _lines(text: str) -> str:
    return "<br>".join(escape(line) for line in text.split("\n"))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table of text; the first cell of each row names it."""
    head = "".join(
        f'<th scope="col">{escape(heading)}</th>' if heading else "<td></td>"
        for heading in headings
    )
    body = "".join(
        f'<tr><th scope="row">{escape(label.strip())}</th>'
        + "".join(f"<td>{escape(cell.strip())}</td>" for cell in cells)
        + "</tr>"
        for label, *cells in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def json_script(name: str, value: Any) -> str:
    """Write data for the page's script, in which no text can end the element or start a tag.

    Args:
        name: The element's id.
        value: What `json.dumps` takes.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{name}">{text}</script>'


@cache
def asset(name: str) -> str:
    """Read a style sheet or a script of this folder."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def document(
    title: str, body: str, styles: Sequence[str] = ("base.css",), scripts: Sequence[str] = ()
) -> str:
    """Write a page that needs no other file, and that no text in it can make load or run one.

    The content security policy allows the page's own script, by its hash, and nothing else.

    Args:
        title: The title in the browser, as text.
        body: The content, as HTML.
        styles: Style sheets of this folder.
        scripts: Scripts of this folder; they share one scope, in this order.
    """
    script = "\n".join(map(asset, scripts))
    if script:
        script = f'(() => {{\n"use strict";\n{script}\n}})();\n'
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if script else "'none'"
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            f"style-src 'unsafe-inline'; img-src data: blob:; script-src {allowed}; "
            "base-uri 'none'; form-action 'none'\">",
            '<meta name="generator" content="memlab">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{''.join(map(asset, styles))}</style>",
            "</head>",
            "<body>",
            body,
            *([f"<script>{script}</script>"] if script else []),
            "</body>",
            "</html>",
            "",
        )
    )
