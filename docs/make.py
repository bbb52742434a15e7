"""Make the gallery: run the commands of every lesson and write its page.

`make docs` runs this. Lessons are read from docs/lessons; pages, pictures and their data are
written to docs/gallery. The same memlab writes the same pages: what changed there has a cause.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lesson import EXAMPLES, Lesson, LessonError, Words, read, render, with_measured

HERE = Path(__file__).parent
LESSONS, GALLERY = HERE / "lessons", HERE / "gallery"
INDEX = "README.md"
IMAGES = "images"

FINDINGS = 1
"""What `memlab check` leaves with when it found something."""

REVISED = "1795132800"
"""2026-11-20, in seconds: the date on pictures. Today's would change them every day."""


def main() -> int:
    """Make all pages; those of before stay where one of them fails."""
    lessons = [read(path) for path in sorted(LESSONS.glob("[0-9]*.md"))]
    with tempfile.TemporaryDirectory() as scratch:
        room = Path(scratch)
        made = room / "gallery"
        (made / IMAGES).mkdir(parents=True)
        try:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                # The last lesson runs longest, so it goes first.
                back = pool.map(lambda lesson: page(lesson, room / lesson.name), lessons[::-1])
                pages = list(back)[::-1]
        except LessonError as error:
            print(f"docs: {error}", file=sys.stderr)
            return 1
        for position, lesson in enumerate(lessons):
            text = pages[position] + "\n" + _way_on(lessons, position)
            (made / f"{lesson.name}.md").write_text(text, encoding="utf-8")
            for picture in (room / lesson.name / IMAGES).iterdir():
                shutil.copy(picture, made / IMAGES)
        index = (LESSONS / INDEX).read_text(encoding="utf-8")
        listing = "\n".join(
            f"- **[{each.title}]({each.name}.md)**  \n  {each.question}" for each in lessons
        )
        (made / INDEX).write_text(index.replace("<!-- lessons -->", listing), encoding="utf-8")
        shutil.rmtree(GALLERY, ignore_errors=True)
        shutil.copytree(made, GALLERY)
    print(f"docs: wrote {len(lessons)} lessons to {GALLERY}")
    return 0


def page(lesson: Lesson, folder: Path) -> str:
    """Run a lesson's commands in a folder of its own, and give its page.

    The figures come last, so that they can show the runs that the page's commands left.

    Args:
        lesson: The lesson.
        folder: Where it runs; made. Its pictures are found in `images` below it.

    Raises:
        LessonError: A command failed, or a figure is not in its document.
    """
    shutil.copytree(EXAMPLES, folder)
    (folder / IMAGES).mkdir()
    outputs = {words: run(words, folder) for words in lesson.commands}
    documents = {
        name: with_measured(json.loads(run(words, folder)))
        for name, words in lesson.figures.items()
    }
    origin = f"<!-- Made by `make docs` from docs/lessons/{lesson.name}.md: change that. -->\n\n"
    return origin + render(lesson, outputs, documents)


def run(words: Words, folder: Path) -> str:
    """Run a command as a reader without a GPU would, and give what it printed.

    Args:
        words: The words behind `memlab`.
        folder: Where it runs, and keeps its runs.

    Raises:
        LessonError: The command did not end with 0, nor with the findings of a check.
    """
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("MEMLAB_")}
    settings = {
        "MEMLAB_DEVICE": "h200",
        "MEMLAB_STORE": str(folder / "runs.db"),
        "SOURCE_DATE_EPOCH": REVISED,
        "CUDA_VISIBLE_DEVICES": "",
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "PYTHONUTF8": "1",
    }
    done = subprocess.run(
        [Path(sys.executable).with_name("memlab"), *words],
        cwd=folder,
        env=inherited | settings,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode not in ((0, FINDINGS) if words[0] == "check" else (0,)):
        raise LessonError(f"memlab {' '.join(words)}: exit {done.returncode}: {done.stderr}")
    # What pads a line to the terminal's width cannot be seen there, but in a diff it can.
    return "\n".join(line.rstrip() for line in (done.stdout + done.stderr).splitlines())


def _way_on(lessons: Sequence[Lesson], position: int) -> str:
    links = [f"[All lessons]({INDEX})"]
    if position:
        before = lessons[position - 1]
        links.insert(0, f"[← {before.title}]({before.name}.md)")
    if position + 1 < len(lessons):
        after = lessons[position + 1]
        links.append(f"[{after.title} →]({after.name}.md)")
    return "---\n\n" + " · ".join(links) + "\n"


if __name__ == "__main__":
    sys.exit(main())
