"""A lesson: a page of Markdown with placeholders for the output of `memlab`.

It extends Markdown by four elements:

- A ```console block holds commands, one per line, each after `$ memlab`. On the page, the output of
  each command follows it.
- An empty ```cuda or ```python block that names a file shows this file of docs/examples. The
  commands of every lesson run in a copy of that folder.
- A comment `<!-- figures … -->` names JSON documents, one per line: `naive = memlab analyze naive`.
  The command is run with `--json`.
- A placeholder `{{ naive.flop / 1e9 | .2f }}` is a figure from such a document: an expression of
  keys, indices, + - * and /, then a Python format (default: whole numbers with commas). If an
  H200 recorded the same launch as a run, the run's document has the recorded figures under
  `measured`: `{{ naive.measured.duration_ns }}`.

So no output is typed by hand, and no figure in the text can become outdated.
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
"""The counters of every kernel of the catalog on an H200, from `python -m benchmarks.counters`."""

_FIGURES = re.compile(r"<!-- figures\n(.*?)-->\n+", re.DOTALL)
_CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
_SOURCE = re.compile(r"```(cuda|python) (\S+)\n```")
_PLACEHOLDER = re.compile(r"\{\{(.+?)\}\}", re.DOTALL)
_OPERATIONS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}

Arguments = tuple[str, ...]
"""The arguments of a command, after `memlab`."""


class LessonError(Exception):
    """A lesson has a mistake; the message names the lesson and the mistake."""


@dataclass(frozen=True)
class Lesson:
    """The source of a lesson.

    Attributes:
        name: The file's name without its extension; begins with the lesson's number.
        text: The Markdown, without the comment that names the figures.
        figures: The command of each document, by the name that the text uses.
    """

    name: str
    text: str
    figures: Mapping[str, Arguments]

    @property
    def title(self) -> str:
        """The heading."""
        return self.text.partition("\n")[0].removeprefix("# ")

    @property
    def question(self) -> str:
        """The question of the lesson: the first paragraph, a quotation."""
        quoted = [line[2:] for line in self.text.splitlines() if line.startswith("> ")]
        return " ".join(quoted)

    @property
    def commands(self) -> tuple[Arguments, ...]:
        """The commands that the page shows, in order."""
        return tuple(
            command for block in _CONSOLE.findall(self.text) for command in _commands(block)
        )

    @property
    def expressions(self) -> tuple[str, ...]:
        """The expressions of the placeholders, without their formats."""
        return tuple(
            _expression_and_format(content)[0] for content in _PLACEHOLDER.findall(self.text)
        )


def read(path: Path) -> Lesson:
    """Read a lesson.

    Raises:
        LessonError: If the heading or the question is missing, or if a line of the figures is not
            `name = memlab …`.
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
    """Add the recorded measurements of the same launch to the document of a run.

    Returns:
        The document. If `RECORDED` has a row with the run's kernel and parameters, its `measured`
        holds the numbers of that row.
    """
    if not isinstance(document.get("parameters"), Mapping):
        return document
    parameters = " ".join(f"{name}={value}" for name, value in document["parameters"].items())
    launch = (document["kernel"], parameters, "hardware")
    with RECORDED.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (row["kernel"], row["parameters"], row["source"]) == launch:
                return {**document, "measured": _numbers(row)}
    return document


def _numbers(row: Mapping[str, str]) -> dict[str, float]:
    numbers = {}
    for name, text in row.items():
        try:
            numbers[name] = float(text)
        except ValueError:
            continue  # text, or a column that was not measured
    return numbers


def render(
    lesson: Lesson, outputs: Mapping[Arguments, str], documents: Mapping[str, Mapping[str, Any]]
) -> str:
    """Insert outputs, sources and figures into a lesson.

    Args:
        lesson: The lesson.
        outputs: The output of each of its commands.
        documents: The JSON documents of its figures, by name.

    Returns:
        The Markdown of the page.

    Raises:
        LessonError: If a figure is not in its document.
    """

    def figure(placeholder: re.Match[str]) -> str:
        expression, form = _expression_and_format(placeholder[1])
        try:
            value = evaluate(expression, documents)
            return format(value, form or ("," if isinstance(value, int) else ""))
        except (LookupError, TypeError, ValueError, SyntaxError) as error:
            raise LessonError(f"{lesson.name}: {{{{{placeholder[1]}}}}}: {error!r}") from error

    def console(block: re.Match[str]) -> str:
        commands_with_output = []
        for command in _commands(block[1]):
            output = outputs[command].strip("\n")
            commands_with_output.append(f"{PROMPT}{shlex.join(command)}\n{output}\n")
        return "```console\n" + "\n".join(commands_with_output) + "```"

    def source(block: re.Match[str]) -> str:
        text = (EXAMPLES / block[2]).read_text(encoding="utf-8").strip("\n")
        return f"```{block[1]}\n{text}\n```"

    # Outputs and sources may contain braces, so the placeholders are replaced first.
    return _SOURCE.sub(source, _CONSOLE.sub(console, _PLACEHOLDER.sub(figure, lesson.text)))


def evaluate(expression: str, documents: Mapping[str, Any]) -> Any:
    """Return the value of an expression of names, keys, indices, + - * and /.

    Raises:
        SyntaxError: If it contains anything else.
        LookupError: If a name, key or index does not exist.
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
    """Return the text of a lesson without commands, placeholders and code."""
    text = _PLACEHOLDER.sub("", _CONSOLE.sub("", lesson.text))
    return re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)


def _commands(block: str) -> list[Arguments]:
    lines = block.strip().splitlines()
    for line in lines:
        if not line.startswith(PROMPT):
            raise LessonError(f"a line of a console block begins with '{PROMPT}', got {line!r}")
    return [tuple(shlex.split(line.removeprefix(PROMPT))) for line in lines]


def _expression_and_format(content: str) -> tuple[str, str]:
    expression, _, form = content.partition("|")
    return expression.strip(), form.strip()
