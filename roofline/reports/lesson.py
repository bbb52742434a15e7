"""A lesson in a terminal: its text, and its commands with their output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.markdown import Markdown
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from memlab.lessons.lesson import Command, Lesson


def lesson_list(lessons: Iterable[Lesson]) -> RenderableType:
    """List lessons: number, title and question."""
    table = Table.grid(Column(justify="right", no_wrap=True), Column(), padding=(0, 2, 0, 0))
    for lesson in lessons:
        told = Text(lesson.title, style="bold")
        told.append(f"\n{lesson.question}", style="not bold")
        table.add_row(str(lesson.number), told)
    return table


def text_layout(markdown: str) -> RenderableType:
    """Lay out a text of a lesson."""
    return Padding(Markdown(markdown), (0, 0, 1, 0))


def command_layout(command: Command, output: str | None = None) -> RenderableType:
    """Lay out a command with its output; None for the command alone.

    Lines are not broken, so that commands can be copied; print it with `crop=False`.
    """
    line = Text(f"$ {command.line}", style="bold", no_wrap=True, overflow="ignore")
    if output is None:
        return Group(line)  # Rich breaks the lines of a text alone
    return Group(line, Text(output, no_wrap=True, overflow="ignore"), "")


def lesson_report(lesson: Lesson, answers: bool = False) -> RenderableType:
    """Lay out a whole lesson, with the outputs that its page shows; see `command_layout`.

    Args:
        lesson: The lesson.
        answers: Whether to give the answers of its exercises.
    """
    return Group(
        *(
            text_layout(part) if isinstance(part, str) else command_layout(part, part.output)
            for part in lesson.parts(answers)
        )
    )
