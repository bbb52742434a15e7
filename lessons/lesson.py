"""The lessons of the gallery as data: texts, and commands with the output that they give."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import cache
from importlib import resources

from memlab.errors import UsageError

PROMPT = "$ memlab "
"""What stands before a command in a lesson."""

_PAGE = re.compile(r"(\d+)-[\w-]+\.md")
_COMMENT = re.compile(r"<!--.*?-->\s*", re.S)
_CONSOLE = re.compile(r"```console\n(.*?)```\n*", re.S)
_ANSWER = re.compile(r"<details><summary>Answer</summary>\n*(.*?)\n*</details>", re.S)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)]*)\)")
_NAVIGATION = re.compile(r"\n---\n+\[[^\n]*\s*\Z")
_NO_ANSWER = "*Answer: `memlab lesson {number} --answers`*"


@dataclass(frozen=True)
class Command:
    """A command of a lesson.

    Attributes:
        words: The words after `memlab`.
        output: What it prints, as the lesson shows it.
    """

    words: tuple[str, ...]
    output: str

    @property
    def line(self) -> str:
        """The command as it is typed."""
        return f"memlab {shlex.join(self.words)}"


@dataclass(frozen=True)
class Lesson:
    """A lesson.

    Attributes:
        number: Its number, from 1 on.
        name: The name of its page without the extension: `04-tiling`.
        title: Its title.
        question: The question that it answers.
        text: The whole page, in Markdown.
    """

    number: int
    name: str
    title: str
    question: str
    text: str

    def __repr__(self) -> str:
        """Describe the lesson in one line."""
        return f"<Lesson {self.number}: {self.title}>"

    def _repr_markdown_(self) -> str:
        """Show the page in a notebook; IPython looks for this name."""
        return self.text

    @property
    def commands(self) -> tuple[Command, ...]:
        """Its commands, in order."""
        return tuple(part for part in self.parts() if isinstance(part, Command))

    def parts(self, answers: bool = True) -> tuple[str | Command, ...]:
        """Divide the lesson into texts in Markdown, for a terminal, and commands.

        Links become words, and so do pictures, since a terminal has neither.

        Args:
            answers: Whether to give the answers of its exercises.
        """
        parts: list[str | Command] = []
        shown = _ANSWER.sub(r"*Answer:* \1" if answers else self._no_answer, self.text)
        pieces = _CONSOLE.split(shown)
        for index, piece in enumerate(pieces):
            if index % 2:
                parts.extend(_commands(piece))
            elif text := _LINK.sub(_link_words, piece).strip():
                parts.append(text)
        return tuple(parts)

    def _no_answer(self, match: re.Match[str]) -> str:
        return _NO_ANSWER.format(number=self.number)


@cache
def all_lessons() -> tuple[Lesson, ...]:
    """Read all lessons, in their order."""
    folder = resources.files("memlab.lessons") / "pages"
    pages = sorted(page.name for page in folder.iterdir() if _PAGE.fullmatch(page.name))
    return tuple(_read(name, (folder / name).read_text(encoding="utf-8")) for name in pages)


def find_lesson(number: int | str) -> Lesson:
    """Find a lesson by its number, or by its name: `4`, `04-tiling` or `tiling`.

    Raises:
        UsageError: There is no such lesson.
    """
    wanted = str(number).strip().lower()
    for lesson in all_lessons():
        names = (str(lesson.number), lesson.name[:2], lesson.name, lesson.name.partition("-")[2])
        if wanted in names:
            return lesson
    raise UsageError(
        f"there is no lesson {number!r}: give a number from 1 to {len(all_lessons())}; "
        "'memlab lesson' lists them"
    )


def _read(name: str, page: str) -> Lesson:
    text = _NAVIGATION.sub("\n", _COMMENT.sub("", page))
    heading = text.partition("\n")[0].removeprefix("# ")
    quoted = [line[2:] for line in text.splitlines() if line.startswith("> ")]
    number, _, title = heading.partition(". ")
    return Lesson(int(number), name.removesuffix(".md"), title, " ".join(quoted), text)


def _commands(block: str) -> list[Command]:
    """Read a block of commands, each followed by its output."""
    _, *pieces = re.split(rf"^{re.escape(PROMPT)}", block, flags=re.M)
    lines = (piece.partition("\n") for piece in pieces)
    return [Command(tuple(shlex.split(line)), output.strip("\n")) for line, _, output in lines]


def _link_words(match: re.Match[str]) -> str:
    picture, words, target = match.groups()
    if picture:
        return f"*Picture: {words} (`{target}`)*"
    page = _PAGE.fullmatch(target)
    return f"{words} (`memlab lesson {int(page[1])}`)" if page else words
