"""What a long loop leaves behind: numbers that every pass changes alike.

A loop of a million passes is not executed to its end. One more pass is executed with an unknown
number in each variable that the loop changes. What then holds a number more than before grows by
it in every pass, and what holds a number that does not depend on the pass keeps it. Other numbers
become unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from memlab.kernels.host_code import formulas
from memlab.kernels.host_code.arithmetic import converted
from memlab.kernels.host_code.formulas import Formula, Rounded, Unknown, number
from memlab.kernels.host_code.machine import Machine, State, formula_of, safe
from memlab.kernels.host_code.program import descendants, text_of
from memlab.kernels.host_code.values import Allocation, Cell, Number

if TYPE_CHECKING:
    from tree_sitter import Node

    from memlab.kernels.host_code.machine import ControlFlow

_JUMPS = ("break_statement", "continue_statement", "goto_statement")
_MARK = " in a pass"
"""Ends the name of a number that stands for any pass; no variable's name has a blank."""


def leave(
    machine: Machine,
    mark: int,
    condition: Node | None,
    run_pass: Callable[[], ControlFlow | None],
    body: Node,
) -> None:
    """Give what a loop changes the values that it has after the last pass.

    Args:
        machine: The state before the next pass.
        mark: The length of the log before the first one.
        condition: The condition.
        run_pass: Executes the condition, the body and the update; returns what ended them early.
        body: The body.
    """
    changed = dict.fromkeys(each for each, _ in machine.log[mark:])
    growths: dict[State, Formula | None] = {}
    passes: Formula | None = None
    if not any(each.type in _JUMPS for each in descendants(body)):
        growths, passes = _growths(machine, list(changed), condition, run_pass)
    for each in {**changed, **growths}:
        is_number = isinstance(each, Cell) and isinstance(each.value, Number)
        if not is_number and not isinstance(each, Allocation):
            continue
        after = _after(_held(each), growths.get(each), passes)
        if isinstance(each, Allocation):
            machine.resize(each, after)
        elif after is None:
            machine.write(each, machine.unknown(each.name, each.type))
        elif isinstance(each.value, Number) and after != each.value.formula:
            machine.write(each, converted(machine, Number(after, each.value.type), each.type))


def _after(held: Formula | None, growth: Formula | None, passes: Formula | None) -> Formula | None:
    """A number after the last pass; None where it is not known."""
    if held is None or growth is None:
        return None
    if not growth.terms:
        return held
    return None if passes is None else safe(lambda: held + growth * passes)


def _growths(
    machine: Machine,
    changed: list[State],
    condition: Node | None,
    run_pass: Callable[[], ControlFlow | None],
) -> tuple[dict[State, Formula | None], Formula | None]:
    """By what a pass changes each number, and how many passes there still are; None if unknown."""
    distance = _distance(machine, condition)
    mark = len(machine.log)
    standing: dict[State, Formula] = {}
    machine.muted += 1
    try:
        for index, each in enumerate(changed):
            if _is_followed(each):
                standing[each] = formulas.unknown(f"{index}{_MARK}", index)
                machine.put(each, standing[each])
        before, serial = _distance(machine, condition), machine.unknown_count
        flow = run_pass()
        after = _distance(machine, condition)
        left = {each: _held(each) for each, _ in machine.log[mark:]}
    finally:
        machine.undo(mark)
        machine.muted -= 1
    if flow is not None:
        return {}, None

    def growth(end: Formula | None, start: Formula | None) -> Formula | None:
        difference = None if end is None or start is None else safe(lambda: end - start)
        known = difference is not None and _is_told(difference, serial)
        return difference if known else None

    growths: dict[State, Formula | None] = {}
    for each, value in left.items():
        is_kept = value is not None and value == _held(each) and _is_told(value, serial)
        growths[each] = number(0) if is_kept else growth(value, standing.get(each))
    return growths, _passes(condition, distance, growth(after, before))


def _is_followed(each: State) -> bool:
    """Whether a number is told: stores to other places may change the elements of arrays."""
    if isinstance(each, Allocation):
        return each.nbytes is not None
    is_whole = isinstance(each.value, Number) and not each.value.is_real
    return is_whole and not each.is_element and _held(each) is not None


def _held(each: State) -> Formula | None:
    """The number in a variable, or the size of memory; None for another value."""
    return each.nbytes if isinstance(each, Allocation) else formula_of(each.value)


def _is_told(formula: Formula, serial: int) -> bool:
    """Whether a number depends neither on the pass nor on what only the pass made unknown."""
    return not any(each.name.endswith(_MARK) or each.number > serial for each in _unknowns(formula))


def _unknowns(formula: Formula) -> Iterator[Unknown]:
    for monomial, _ in formula.terms:
        for atom in monomial:
            if isinstance(atom, Rounded):
                yield from _unknowns(atom.first)
                yield from _unknowns(atom.second)
            else:
                yield atom


def _comparison(condition: Node | None) -> Node | None:
    """The comparison that a condition is."""
    while condition is not None and condition.type in (
        "parenthesized_expression",
        "condition_clause",
    ):
        condition = next(iter(condition.named_children), None)
    is_binary = condition is not None and condition.type == "binary_expression"
    return condition if is_binary else None


def _distance(machine: Machine, condition: Node | None) -> Formula | None:
    """By what the left side of a comparison is greater than the right one."""
    comparison = _comparison(condition)
    if comparison is None:
        return None
    mark = len(machine.log)
    left, right = (
        formula_of(machine.evaluate(machine, comparison.child_by_field_name(side)))
        for side in ("left", "right")
    )
    machine.undo(mark)
    return None if left is None or right is None else safe(lambda: left - right)


def _passes(
    condition: Node | None, distance: Formula | None, growth: Formula | None
) -> Formula | None:
    """The passes until a comparison fails, where its sides move apart evenly; None if unknown."""
    comparison = _comparison(condition)
    step = None if growth is None else growth.constant
    if comparison is None or distance is None or not step:
        return None
    operator = text_of(comparison.child_by_field_name("operator"))
    if operator == "!=" and abs(step) == 1:
        passes = distance.scaled(-1 / step)
    elif operator in (("<", "<=") if step > 0 else (">", ">=")):
        rest = distance.scaled(Fraction(-1 if step > 0 else 1))
        if operator in ("<=", ">="):
            rest = rest + number(1)
        found = safe(lambda: formulas.ceil_quotient(rest, number(abs(step))))
        if found is None:
            return None
        passes = found
    else:
        return None
    known = passes.constant
    return passes if known is None or known > 0 else number(0)
