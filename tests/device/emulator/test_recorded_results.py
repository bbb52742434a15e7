"""The emulator against what it was recorded to give: counters, arrays, messages, documents."""

from __future__ import annotations

import pytest
from recorded_cases import CASES
from recorded_results import Case, as_json, differences, recorded


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.name, marks=[pytest.mark.slow] if c.slow else []) for c in CASES],
)
def test_a_case_gives_what_was_recorded(case: Case) -> None:
    before = recorded(case.file).get(case.name)
    assert before is not None, "not recorded: run python -m tests.recorded"
    assert "\n".join(differences(before, as_json(case.record()))) == ""


def test_every_record_belongs_to_a_case() -> None:
    files = {case.file for case in CASES}
    names = {name for file in files for name in recorded(file)}
    assert names == {case.name for case in CASES}
