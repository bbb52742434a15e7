"""The lessons: commands exist, figures come from output, pages come from their lessons."""

import importlib
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pandas
import pytest
import typer

from memlab.cli.app import app, main
from memlab.lessons.lesson import Command
from memlab.lessons.packages import reason_to_leave_out

DOCS = Path(__file__).parent.parent / "docs"
sys.path.insert(0, str(DOCS))
lesson = importlib.import_module("lesson")
make = importlib.import_module("make")

PACKAGES_REQUIRED = os.environ.get("MEMLAB_TRITON") == "required"

PATHS = sorted(make.LESSONS.glob("[0-9]*.md"))
LESSONS = [lesson.read(path) for path in PATHS]

# What an output would say: a decimal, a share, a count with commas or a figure with its unit.
# "32-byte sectors" and "width 4" are definitions, and stay.
MEASURED = re.compile(
    r"(?<![A-Z])\d(\.\d|,\d{3}|\s?(%|[KMGT]?B/s|[kMG]B\b|[GT]?FLOPs?\b|FLOP/|[µmn]?s\b"
    r"|sectors|requests|wavefronts|instructions|clocks))"
)

FILLED = re.compile(r"\{\{.+?\}\}|```console\n.+?```|```(?:cuda|python) \S+\n```", re.DOTALL)

each_lesson = pytest.mark.parametrize("page", LESSONS, ids=lambda page: page.name)


def test_there_are_lessons() -> None:
    assert [each.name[:2] for each in LESSONS] == [f"{n:02}" for n in range(1, 30)]


@each_lesson
def test_every_command_is_accepted(
    page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Click reads each command to its last option, without running it; so those in the text."""
    shutil.copytree(lesson.EXAMPLES, tmp_path / "room")
    monkeypatch.chdir(tmp_path / "room")
    for words in page.commands:
        if words[0] == "init":  # what it writes names kernels
            assert main([*words, "--quiet"]) == 0
    mentioned = [tuple(each.split()) for each in re.findall(r"`memlab\s([^`]+)`", page.text)]
    for words in (*page.commands, *page.figures.values(), *mentioned):
        # A kernel in Python is found by running its file.
        if not PACKAGES_REQUIRED and reason_to_leave_out(Command(words, ""), Path.cwd(), ()):
            continue
        command: Any = typer.main.get_command(app)
        rest, parent = list(words), None
        while True:
            context = command.make_context(command.name, rest, parent=parent)
            if not getattr(command, "commands", None) and not hasattr(command, "get_command"):
                break
            left = [*context._protected_args, *context.args]
            if not left:
                break
            _, command, rest = command.resolve_command(context, left)
            parent = context


@each_lesson
def test_no_figure_is_typed_by_hand(page: Any) -> None:
    typed = MEASURED.search(lesson.prose(page))

    assert typed is None, f"take {typed[0]!r} from an output: {{{{ name.key }}}}"


@each_lesson
def test_figures_are_declared_and_used(page: Any) -> None:
    named = {re.match(r"\W*\d*\W*([a-z]\w*)", each) for each in page.expressions}

    assert set(page.figures) >= {each[1] for each in named if each}
    used = " ".join(page.expressions)
    for name in page.figures:
        assert re.search(rf"\b{name}\b", used), f"{name} is run for nothing"


@each_lesson
def test_the_page_is_made_from_its_lesson(page: Any) -> None:
    """Whoever changes a lesson runs `make docs`: the page has its commands, words and pictures."""
    made = (make.GALLERY / f"{page.name}.md").read_text(encoding="utf-8")

    for words in page.commands:
        assert f"{lesson.PROMPT}{lesson.shlex.join(words)}\n" in made
    for between in re.split(FILLED, page.text):
        assert between in made
    for name in re.findall(r"```(?:cuda|python) (\S+)\n```", page.text):
        assert (lesson.EXAMPLES / name).read_text(encoding="utf-8") in made
    for picture in re.findall(r"\]\((images/.+?)\)", made):
        assert (make.GALLERY / picture).is_file()
    assert f"({page.name}.md)" in (make.GALLERY / make.INDEX).read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_page_made_anew_is_the_one_in_the_gallery(tmp_path: Path) -> None:
    page = next(each for each in LESSONS if each.name == "02-naive")

    made = make.page(page, tmp_path / "lesson")

    assert (make.GALLERY / "02-naive.md").read_text(encoding="utf-8").startswith(made)


def test_runs_carry_the_date_of_the_lessons(tmp_path: Path) -> None:
    words = ("run", "aligned", "--n", "32", "--no-store", "--json")

    run = json.loads(make.run(words, tmp_path))

    assert run["created_at"] == "2026-11-20T00:00:00+00:00"


@pytest.mark.parametrize("number", ["08", "09", "11"])
def test_a_modelled_time_has_the_measured_one_beside_it(number: str) -> None:
    """Of these the model is too far off to be believed alone."""
    page = next(each for each in LESSONS if each.name.startswith(number))

    modelled = re.findall(r"\{\{ (\w+)\.time\.median_s \* 1e6 \|", page.text)

    assert modelled
    for name in modelled:
        assert f"{{{{ {name}.measured.duration_ns / 1e3 |" in page.text, name


def test_what_was_measured_is_of_the_same_launch() -> None:
    recorded = pandas.read_csv(lesson.RECORDED).query("source == 'hardware'")
    row = recorded.query("kernel == 'transpose' and parameters == 'width=2048'").iloc[0]

    run = lesson.with_measured({"kernel": "transpose", "parameters": {"width": 2048}})
    other = lesson.with_measured({"kernel": "transpose", "parameters": {"width": 2047}})

    assert run["measured"]["duration_ns"] == row.duration_ns
    assert "kernel" not in run["measured"]
    assert "measured" not in other
    assert "measured" not in lesson.with_measured({"figures": {}})


def test_holes_are_filled_from_documents() -> None:
    console = "```console\n$ memlab kernels\n```\n"
    page = lesson.Lesson("x", "# T\n\n{{ a.b[1] * 2 }} {{ a.c / 4 | .1f }}\n\n" + console, {})

    text = lesson.render(page, {("kernels",): "{{ no hole }}\n"}, {"a": {"b": [0, 1000], "c": 10}})

    assert text == "# T\n\n2,000 2.5\n\n```console\n$ memlab kernels\n{{ no hole }}\n```\n"


@pytest.mark.parametrize("hole", ["a.missing", "b", "a.c()", "__import__('os')", "a.c | q"])
def test_a_wrong_hole_names_the_lesson(hole: str) -> None:
    page = lesson.Lesson("09-x", f"{{{{ {hole} }}}}", {})

    with pytest.raises(lesson.LessonError, match="09-x"):
        lesson.render(page, {}, {"a": {"c": 10}})
