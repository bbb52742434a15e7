"""Make the gallery: run the commands of every lesson and write its page.

`make docs` runs this. It reads the lessons from docs/lessons and writes pages, pictures and their
data to docs/gallery, from where the package has them (`memlab lesson`), and the JSON Schema of a
run to docs/run.schema.json. The output is reproducible: without a change of memlab or of a lesson,
the gallery does not change. `python docs/make.py 16 17` makes only these lessons again.

Each command runs in a process of its own, which is forked from this one. So it has imported already
what most commands need, which takes longer than many of them.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import BinaryIO

from lesson import Arguments, Lesson, LessonError, read, render, with_measured

from memlab.cli.app import main as memlab
from memlab.lessons.folder import command_environment, make_folder
from memlab.roofline.documents.schema import run_schema

DOCS = Path(__file__).parent
LESSONS, GALLERY = DOCS / "lessons", DOCS / "gallery"
SCHEMA = DOCS / "run.schema.json"
INDEX = "README.md"
IMAGES = "images"

FORK = multiprocessing.get_context("fork")
IMPORTED = (
    "memlab.cli.kernel_commands",
    "memlab.device.emulation.device",
    "memlab.drawing",
    "memlab.roofline.plots.picture",
    "memlab.roofline.reports.run",
    "memlab.running",
    "matplotlib.backends.backend_agg",
    "pandas",
    "typer._adapters",
)
"""Modules that are imported before processes are forked, with all that they import."""

EXIT_FINDINGS = 1
"""The exit code of `memlab check` if there are findings."""

SOURCE_DATE_EPOCH = "1795132800"
"""2026-11-20 in seconds: the date of runs and pictures, which today's date would change daily."""


def main(numbers: Sequence[str] = ()) -> int:
    """Make the pages; if one fails, the gallery stays as it is.

    Args:
        numbers: The numbers of the lessons to make again, such as `04`; empty for all.

    Returns:
        The exit code: 0, or 1 if a page failed.
    """
    lessons = [read(path) for path in sorted(LESSONS.glob("[0-9]*.md"))]
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        made = scratch / "gallery"
        (made / IMAGES).mkdir(parents=True)
        try:
            for module in IMPORTED:
                importlib.import_module(module)
            with ProcessPoolExecutor(os.cpu_count(), FORK) as pool:
                # The last lessons run longest, so they start first.
                last_first = lessons[::-1]
                folders = [scratch / lesson.name for lesson in last_first]
                makers = [
                    page if not numbers or lesson.name[:2] in numbers else _kept_page
                    for lesson in last_first
                ]
                pages = list(pool.map(_call, makers, last_first, folders))[::-1]
        except LessonError as error:
            print(f"docs: {error}", file=sys.stderr)
            return 1
        for position, lesson in enumerate(lessons):
            text = pages[position] + "\n" + _navigation(lessons, position)
            (made / f"{lesson.name}.md").write_text(text, encoding="utf-8")
            for picture in (scratch / lesson.name / IMAGES).iterdir():
                shutil.copy(picture, made / IMAGES)
        index = (LESSONS / INDEX).read_text(encoding="utf-8")
        listing = "\n".join(
            f"- **[{lesson.title}]({lesson.name}.md)**  \n  {lesson.question}" for lesson in lessons
        )
        (made / INDEX).write_text(index.replace("<!-- lessons -->", listing), encoding="utf-8")
        shutil.rmtree(GALLERY, ignore_errors=True)
        shutil.copytree(made, GALLERY)
    SCHEMA.write_text(json.dumps(run_schema(), indent=2) + "\n", encoding="utf-8")
    print(f"docs: wrote {len(lessons)} lessons to {GALLERY}, and {SCHEMA}")
    return 0


def page(lesson: Lesson, folder: Path) -> str:
    """Run the commands of a lesson in a folder, and render its page.

    The commands of the figures run last, so that they can show the runs that the page's commands
    stored.

    Args:
        lesson: The lesson.
        folder: The working folder, which is created; pictures are written to `images` in it.

    Returns:
        The Markdown of the page, without the links to other lessons.

    Raises:
        LessonError: If a command fails, or if a figure is not in its document.
    """
    make_folder(folder)
    outputs = {arguments: run(arguments, folder) for arguments in lesson.commands}
    documents = {
        name: with_measured(json.loads(run(arguments, folder)))
        for name, arguments in lesson.figures.items()
    }
    origin = f"<!-- Made by `make docs` from docs/lessons/{lesson.name}.md: change that. -->\n\n"
    return origin + render(lesson, outputs, documents)


def run(arguments: Arguments, folder: Path) -> str:
    """Run a command without a GPU, and return its output.

    Args:
        arguments: The arguments after `memlab`.
        folder: The working folder, which also holds the store of runs.

    Returns:
        Standard output followed by standard error, without trailing blanks.

    Raises:
        LessonError: If the exit code is not 0 (nor 1, which a check gives for findings).
    """
    settings = {"SOURCE_DATE_EPOCH": SOURCE_DATE_EPOCH, "NO_COLOR": "1", "PYTHONUTF8": "1"}
    environment = command_environment(folder, os.environ) | settings
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = FORK.Process(
            target=_become_command, args=(arguments, folder, environment, output, errors)
        )
        process.start()
        process.join()
        printed, messages = map(_text_of, (output, errors))
    accepted = (0, EXIT_FINDINGS) if arguments[0] == "check" else (0,)
    if process.exitcode not in accepted:
        raise LessonError(f"memlab {' '.join(arguments)}: exit {process.exitcode}: {messages}")
    # Lines are padded to the terminal's width; a page does not need the padding.
    return "\n".join(line.rstrip() for line in (printed + messages).splitlines())


def _become_command(
    arguments: Arguments,
    folder: Path,
    environment: Mapping[str, str],
    output: BinaryIO,
    errors: BinaryIO,
) -> None:
    """Run a command, and end this process with its exit code.

    Args:
        arguments: The arguments after `memlab`.
        folder: The working folder.
        environment: All environment variables.
        output: The file of what it prints.
        errors: The file of its messages.
    """
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(output.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))
    sys.argv = ["memlab", *arguments]
    sys.exit(memlab())


def _text_of(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode()


def _call(make: Callable[[Lesson, Path], str], lesson: Lesson, folder: Path) -> str:
    return make(lesson, folder)


def _kept_page(lesson: Lesson, folder: Path) -> str:
    """The page of a lesson as the gallery has it, without its links; its pictures are copied.

    Raises:
        LessonError: The gallery has no such page.
    """
    (folder / IMAGES).mkdir(parents=True)
    for picture in (GALLERY / IMAGES).glob(f"{lesson.name[:2]}-*"):
        shutil.copy(picture, folder / IMAGES)
    try:
        text = (GALLERY / f"{lesson.name}.md").read_text(encoding="utf-8")
    except OSError as error:
        raise LessonError(f"{lesson.name}: {error}: make it too") from None
    return text[: text.rindex("\n---\n")]


def _navigation(lessons: Sequence[Lesson], position: int) -> str:
    links = [f"[All lessons]({INDEX})"]
    if position:
        before = lessons[position - 1]
        links.insert(0, f"[← {before.title}]({before.name}.md)")
    if position + 1 < len(lessons):
        after = lessons[position + 1]
        links.append(f"[{after.title} →]({after.name}.md)")
    return "---\n\n" + " · ".join(links) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
