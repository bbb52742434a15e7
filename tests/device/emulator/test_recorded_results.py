"""The emulator against what it was recorded to give: counters, arrays, messages, documents."""

from __future__ import annotations

import pytest
from recorded_cases import CASES
from recorded_kernels import CATALOG_SIZES
from recorded_results import Case, OtherCompiler, as_json, compare, recorded

from memlab.kernels.catalog import CATALOG


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.name, marks=[pytest.mark.slow] if c.slow else []) for c in CASES],
)
def test_a_case_gives_what_was_recorded(case: Case) -> None:
    before = recorded(case.file).get(case.name)
    assert before is not None, "not recorded: run python -m tests.recorded"
    try:
        different = compare(before, as_json(case.record()))
    except OtherCompiler as reason:
        pytest.skip(str(reason))
    assert "\n".join(different) == ""


def test_every_kernel_of_the_catalog_is_recorded() -> None:
    assert list(CATALOG_SIZES) == list(CATALOG)


def test_every_record_belongs_to_a_case() -> None:
    files = {case.file for case in CASES}
    names = {name for file in files for name in recorded(file)}
    assert names == {case.name for case in CASES}
