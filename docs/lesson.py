"""A lesson: a page of Markdown with holes for what `memlab` prints.

Four things in it are not plain Markdown:

- A ```console block holds commands, each on a line that begins with `$ memlab`. On the page, each
  is followed by what it printed.
- A ```cuda block that is empty and names a file shows that file of docs/examples; every lesson's
  commands find these files where they run.
- A comment `<!-- figures … -->` names documents, a line each: `naive = memlab analyze naive`. The
  command is run with `--json`.
- `{{ naive.flop / 1e9 | .2f }}` is a figure out of such a document: keys, indices, sums, products
  and quotients, then Python's format (a whole number has commas if none is given). A run that was
  recorded on a GPU too has what that gave under `measured`: `{{ naive.measured.duration_ns }}`.

So nothing that a command prints is typed by hand, and a figure in the text cannot grow old.
"""

from __future__ import annotations

import ast
import csv
import operator
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROMPT = "$ memlab "
EXAMPLES = Path(__file__).parent / "examples"
RECORDED = Path(__file__).parent / "results" / "h200-counters.csv"
"""What every kernel of the catalog did on an H200, by `python -m benchmarks.counters`."""

_FIGURES = re.compile(r"<!-- figures\n(.*?)-->\n+", re.DOTALL)
_CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
_SOURCE = re.compile(r"```cuda (\S+)\n```")
_HOLE = re.compile(r"\{\{(.+?)\}\}", re.DOTALL)
_OPERATIONS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}

Words = tuple[str, ...]
"""A command's words behind `memlab`."""


class LessonError(Exception):
    """A lesson is written wrongly; the message says where."""


@dataclass(frozen=True)
class Lesson:
    """A lesson as it is written.

    Attributes:
        name: The file's name without its ending; begins with the lesson's number.
        text: The Markdown, without the comment that names the figures.
        figures: The command of each document, by the name that the text uses.
    """

    name: str
    text: str
    figures: Mapping[str, Words]

    @property
    def title(self) -> str:
        """The heading."""
        return self.text.partition("\n")[0].removeprefix("# ")

    @property
    def question(self) -> str:
        """What the lesson asks: the first paragraph, a quotation."""
        quoted = [line[2:] for line in self.text.splitlines() if line.startswith("> ")]
        return " ".join(quoted)

    @property
    def commands(self) -> tuple[Words, ...]:
        """The commands that the page shows, in order."""
        return tuple(
            command for block in _CONSOLE.findall(self.text) for command in _commands(block)
        )

    @property
    def expressions(self) -> tuple[str, ...]:
        """What the holes in the text ask for, without their formats."""
        return tuple(_parts(hole)[0] for hole in _HOLE.findall(self.text))


def read(path: Path) -> Lesson:
    """Read a lesson.

    Raises:
        LessonError: It has no heading or no question, or a line of its figures is none.
    """
    text = path.read_text(encoding="utf-8")
    figures = {}
    for line in "".join(_FIGURES.findall(text)).splitlines():
        name, equals, command = line.partition(" = memlab ")
        if not equals or not name.isidentifier():
            raise LessonError(f"{path.name}: a figure is 'name = memlab …', got {line!r}")
        figures[name] = (*shlex.split(command), "--json")
    lesson = Lesson(path.stem, _FIGURES.sub("", text), figures)
    if not lesson.text.startswith("# ") or not lesson.question:
        raise LessonError(f"{path.name}: begin with '# Title', then the question as '> …'")
    return lesson


def with_measured(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give a run's document with what the hardware gave for the same launch, if that was recorded.

    Returns:
        The document; its `measured` has the figures of the row in `RECORDED` that has the run's
        kernel and parameters.
    """
    if not isinstance(document.get("parameters"), Mapping):
        return document
    parameters = " ".join(f"{name}={value}" for name, value in document["parameters"].items())
    launch = (document["kernel"], parameters, "hardware")
    with RECORDED.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (row["kernel"], row["parameters"], row["source"]) == launch:
                return {**document, "measured": _figures_in(row)}
    return document


def _figures_in(row: Mapping[str, str]) -> dict[str, float]:
    figures = {}
    for name, text in row.items():
        try:
            figures[name] = float(text)
        except ValueError:
            continue  # words, or what was not measured
    return figures


def render(
    lesson: Lesson, outputs: Mapping[Words, str], documents: Mapping[str, Mapping[str, Any]]
) -> str:
    """Fill a lesson's holes.

    Args:
        lesson: The lesson.
        outputs: What each of its commands printed.
        documents: The JSON of each of its figures' commands, by name.

    Raises:
        LessonError: A figure is not in its document.
    """

    def fill(hole: re.Match[str]) -> str:
        expression, form = _parts(hole[1])
        try:
            value = evaluate(expression, documents)
            return format(value, form or ("," if isinstance(value, int) else ""))
        except (LookupError, TypeError, ValueError, SyntaxError) as error:
            raise LessonError(f"{lesson.name}: {{{{{hole[1]}}}}}: {error!r}") from error

    def show(block: re.Match[str]) -> str:
        shown = []
        for command in _commands(block[1]):
            output = outputs[command].strip("\n")
            shown.append(f"{PROMPT}{shlex.join(command)}\n{output}\n")
        return "```console\n" + "\n".join(shown) + "```"

    def source(block: re.Match[str]) -> str:
        text = (EXAMPLES / block[1]).read_text(encoding="utf-8").strip("\n")
        return f"```cuda\n{text}\n```"

    # What commands print and sources say may hold braces, so the holes are filled first.
    return _SOURCE.sub(source, _CONSOLE.sub(show, _HOLE.sub(fill, lesson.text)))


def evaluate(expression: str, documents: Mapping[str, Any]) -> Any:
    """Give what an expression of names, keys, indices, + - * and / is worth.

    Raises:
        SyntaxError: It holds something else.
        LookupError: A name, key or index is not there.
    """

    def value(node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=constant):
                return constant
            case ast.Name(id=name):
                return documents[name]
            case ast.Attribute(value=inner, attr=key):
                return value(inner)[key]
            case ast.Subscript(value=inner, slice=key):
                return value(inner)[value(key)]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
                return _OPERATIONS[type(op)](value(left), value(right))
        raise SyntaxError(f"{ast.unparse(node)!r} is neither a key nor + - * /")

    return value(ast.parse(expression.strip(), mode="eval").body)


def prose(lesson: Lesson) -> str:
    """Give what the author wrote as text: no commands, no holes, no code."""
    text = _HOLE.sub("", _CONSOLE.sub("", lesson.text))
    return re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)


def _commands(block: str) -> list[Words]:
    lines = block.strip().splitlines()
    for line in lines:
        if not line.startswith(PROMPT):
            raise LessonError(f"a line of a console block begins with '{PROMPT}', got {line!r}")
    return [tuple(shlex.split(line.removeprefix(PROMPT))) for line in lines]


def _parts(hole: str) -> tuple[str, str]:
    expression, _, form = hole.partition("|")
    return expression.strip(), form.strip()
