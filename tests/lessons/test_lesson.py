"""The lessons as the package holds them: nothing of a page is lost, and nothing of it is markup."""

from __future__ import annotations

import re

import pytest
from paths import REPOSITORY

import memlab
from memlab.errors import UsageError
from memlab.lessons.lesson import Command, Lesson, all_lessons, find_lesson

GALLERY = REPOSITORY / "docs" / "gallery"


def test_all_pages_of_the_gallery_are_lessons() -> None:
    pages = sorted(page.stem for page in GALLERY.glob("[0-9]*.md"))

    assert [lesson.name for lesson in all_lessons()] == pages
    assert [lesson.number for lesson in all_lessons()] == list(range(1, len(pages) + 1))
    for lesson in all_lessons():
        assert lesson.question.endswith("?"), lesson
        index = (GALLERY / "README.md").read_text(encoding="utf-8")
        assert f"{lesson.number}. {lesson.title}" in index


@pytest.mark.parametrize("lesson", all_lessons(), ids=lambda lesson: lesson.name)
def test_parts_hold_every_word_and_output_of_the_page(lesson: Lesson) -> None:
    page = (GALLERY / f"{lesson.name}.md").read_text(encoding="utf-8")
    parts = lesson.parts()

    typed = re.findall(r"^\$ memlab (.*)$", page, re.M)
    assert [command.line for command in lesson.commands] == [f"memlab {line}" for line in typed]
    for command in lesson.commands:
        assert command.output
        assert command.output in page
    told = "\n".join(part for part in parts if isinstance(part, str))
    paragraphs = re.sub(r"```console\n.*?```|<!--.*?-->|\n---\n.*", "\n\n", page, flags=re.S)
    for paragraph in paragraphs.split("\n\n"):
        if not re.search(r"\]\(|details|^```", paragraph):
            assert paragraph.strip() in told
    assert not re.search(
        r"<!--|<details|</|\]\(|\n---\n", re.sub(r"`.*?`|```.*?```", "", told, flags=re.S)
    )


def test_answers_are_there_only_if_asked_for() -> None:
    lesson = find_lesson(14)
    with_answers, without = (
        "\n".join(part for part in lesson.parts(wanted) if not isinstance(part, Command))
        for wanted in (True, False)
    )

    assert "Yes. It also reads less from DRAM" in with_answers
    assert "Yes. It also reads less from DRAM" not in without
    hidden = without.count("*Answer: `memlab lesson 14 --answers`*")
    assert hidden == with_answers.count("*Answer:*") > 0


def test_links_become_words() -> None:
    told = "\n".join(str(part) for each in all_lessons() for part in each.parts())

    assert "*Picture: The naive transpose (`images/09-transpose.png`)*" in told
    assert "](" not in re.sub(r"```.*?```", "", told, flags=re.S)


@pytest.mark.parametrize("name", [4, "4", "04", "tiling", "04-tiling", " Tiling "])
def test_a_lesson_has_a_number_and_a_name(name: int | str) -> None:
    assert memlab.lesson(name).number == 4
    assert repr(memlab.lesson(name)) == "<Lesson 4: Tiling: fetch once, use T times>"
    assert memlab.lesson(name).text.startswith("# 4. Tiling")


@pytest.mark.parametrize("name", [0, 30, "", "tilin"])
def test_what_is_no_lesson_is_said(name: int | str) -> None:
    with pytest.raises(UsageError, match=r"there is no lesson .*: give a number from 1 to 29"):
        memlab.lesson(name)
