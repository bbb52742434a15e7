"""The mutation operators and the tool's helpers."""

import ast
import os

import pytest

from tests.mutants import operators, targets, trial


def texts(source: str) -> list[str]:
    return [each.text for each in operators.mutations(source)]


@pytest.mark.parametrize(
    ("source", "old", "new"),
    [
        ("low < high", "low < high", ["low <= high", "low >= high"]),
        ("a is not b", "a is not b", ["a is b"]),
        ("a and b and c", "a and b and c", ["b and c", "a and c", "a and b"]),
        ("a & b & c", "a & b & c", ["b & c", "a & c", "a & b"]),
        ("not a", "not a", ["a"]),
        ("end - size", "end - size", ["end + size", "end"]),
        ("f(end - 1)", "end - 1", ["end + 1", "end", "end - 2", "end - 0"]),
        ("max(a, b)", "max(a, b)", ["a", "b", "min(a, b)"]),
        ("mask.any()", "mask.any()", ["mask.all()"]),
        ("f(a, b=c)", "f(a, b=c)", ["f(a)"]),
        ("[x for x in y if z]", "for x in y if z", ["for x in y"]),
        (
            "a if b else c",
            "a if b else c",
            [f"a if {x} else c" for x in ("True", "False", "not b")],
        ),
    ],
)
def test_each_expression_has_its_faults(source: str, old: str, new: list[str]) -> None:
    assert texts(f"x = {source}") == [f"{old}  ->  {each}" for each in new]


@pytest.mark.parametrize(
    ("statement", "faults"),
    [
        ("notes.clear()", ["notes.clear()  ->  pass"]),
        ("self.x = y", ["self.x = y  ->  pass"]),
        ("x = y", []),
        ("x += y", ["x += y  ->  x -= y", "x += y  ->  pass"]),
        ("for x in y: break", ["break  ->  continue"]),
        (
            "if a: f",
            ["if a  ->  if True", "if a  ->  if False", "if a  ->  if not a", "f  ->  pass"],
        ),
    ],
)
def test_each_statement_has_its_faults(statement: str, faults: list[str]) -> None:
    assert texts(statement) == faults


def test_a_returned_truth_value_is_negated() -> None:
    assert texts("def f() -> bool:\n    return g()") == ["return g()  ->  return not g()"]
    assert texts("def f() -> int:\n    return g()") == []


@pytest.mark.parametrize(
    "source",
    [
        '"""Says 1."""',
        "x: Literal[1]",
        "@dataclass(frozen=True)\nclass A: ...",
        "raise ValueError(f'{1 + 1}' + str(2))",
        "x = f'{a + 1}'",
        "x = zip(a, b, strict=True)",
        "x = a.reshape(-1, b)",
        "if TYPE_CHECKING:\n    import a",
    ],
)
def test_code_without_effect_has_no_faults(source: str) -> None:
    assert texts(source) == []


def test_a_planted_fault_is_the_only_change() -> None:
    source = "def f(a, b):\n    return a < b and g(\n        a, max(a, b)\n    )\n"
    original = ast.unparse(ast.parse(source))
    for each in operators.mutations(source):
        assert ast.unparse(each.plant(source)) in (
            original[:at] + each.new + original[at + len(each.old) :]
            for at in range(len(original))
            if original.startswith(each.old, at)
        )


def test_a_fault_has_the_lines_of_its_statement_and_when_it_runs() -> None:
    source = "LIMIT = 1\ndef f(a=2):\n    if (\n        a < LIMIT\n    ):\n        g(a)\n"
    found = {(each.line, each.extent, each.at_import) for each in operators.mutations(source)}
    assert found == {
        (1, (1, 1), True),
        (2, (2, 2), True),
        (3, (3, 5), False),
        (4, (3, 5), False),
        (6, (6, 6), False),
    }


def test_a_draw_has_every_kind_and_stays_when_lines_move() -> None:
    source = "".join(f"x{each} = y < {each}\n" for each in range(20)) + "x = y and z\n"
    drawn = targets.sample(operators.mutations(source), seed=1, most=6)
    moved = targets.sample(operators.mutations(f"import z\n\n{source}"), seed=1, most=6)
    assert {each.kind for each in drawn} == {"comparison", "constant", "clause"}
    assert [each.text for each in drawn] == [each.text for each in moved]
    assert [each.line + 2 for each in drawn] == [each.line for each in moved]


def test_no_equivalent_entry_is_stale() -> None:
    assert targets.stale(targets.equivalents()) == []


@pytest.mark.slow
def test_every_target_has_tests() -> None:
    assert all(each.tests for each in targets.targets())


def test_a_child_returns_its_answer_or_is_killed() -> None:
    assert trial.in_child(lambda folder: str(folder.is_dir()), 10) == trial.ChildRun(
        "True", "", False
    )
    assert trial.in_child(lambda _: os.read(os.pipe()[0], 1).decode(), 0.1).timed_out
    failed = trial.in_child(lambda _: str(1 // 0), 10)
    assert (failed.answer, failed.timed_out) == (None, False)
