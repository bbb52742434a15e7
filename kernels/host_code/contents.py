"""What host code fills arrays with, as far as a launch option can say it.

The loops of a program are not executed to their ends. So the expression that a loop stores is read
once: `h[i] = 0`, `h[i] = i` and `h[i] = rand() % n` tell what all elements are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from memlab.kernels.host_code.arithmetic import as_number
from memlab.kernels.host_code.formulas import Formula, number
from memlab.kernels.host_code.machine import Machine, allocation_of, formula_of, safe
from memlab.kernels.host_code.places import cell_of
from memlab.kernels.host_code.program import descendants, names_in, text_of
from memlab.kernels.host_code.values import Cell, Content, Lambda, Pointer, Unresolved, Value

if TYPE_CHECKING:
    from tree_sitter import Node

CASTS = frozenset({"static_cast", "reinterpret_cast", "const_cast"})
_EFFECTS = frozenset({"call_expression", "update_expression", "assignment_expression"})
_SUMS = frozenset({"binary_expression", "parenthesized_expression", "identifier", "number_literal"})


def note_store(machine: Machine, left: Node, right: Node, operator: str) -> None:
    """Note what a loop stores in the elements of an array, such as `a[i] = i % 4`.

    Args:
        machine: The state.
        left: What is assigned to.
        right: The value.
        operator: `=`, or another one, such as `+=`.
    """
    if not machine.frame.loops:
        return
    base, indices = left, list[str]()
    while base.type == "subscript_expression":
        indices.append(text_of(base.child_by_field_name("indices"))[1:-1])
        argument = base.child_by_field_name("argument")
        if argument is None:
            return
        base = argument
    if not indices:
        allocation = machine.frame.elements.get(text_of(left))  # of for (auto& e : v)
    else:
        cell = cell_of(machine, base) if base.type in ("identifier", "field_expression") else None
        allocation = None if cell is None else allocation_of(cell.value)
    if allocation is None:
        return
    index = indices[0] if len(indices) == 1 else ""
    content = content_of(machine, right, index) if operator == "=" else None
    loop = machine.frame.loops[0].serial
    if allocation.stores_loop != loop:
        allocation.stores_loop, allocation.stores = loop, {}
    if right in allocation.stores:
        return
    allocation.stores[right] = content
    machine.event(Pointer(allocation), "filled", _joined(allocation.stores.values()))


def content_of(machine: Machine, node: Node | None, index: str = "") -> Content | None:
    """What the elements of an array are that a loop stores one by one; None if it is not told.

    Args:
        machine: The state.
        node: The expression that is stored.
        index: The index at which it is stored, as it is written.
    """
    node = _without_casts(node)
    if node is None:
        return None
    counters = {name for loop in machine.frame.loops for name in loop.counters}
    text = text_of(node)
    if index and node.type != "number_literal" and text == index:
        return Content("index")
    names = names_in(node)
    has_effects = any(each.type in _EFFECTS for each in descendants(node))
    if not has_effects and not names & (counters | _locals_of_loops(machine)):
        value = formula_of(as_number(machine, machine.evaluate(machine, node)) or Unresolved(""))
        return None if value is None or value.constant is None else Content("number", value)
    if node.type == "conditional_expression":
        arms = (node.child_by_field_name(name) for name in ("consequence", "alternative"))
        return _joined([content_of(machine, arm, index) for arm in arms])
    if node.type == "binary_expression":
        found = _range_of(machine, node, counters)
        if found is not None:
            return found
    rises = names & counters and all(each.type in _SUMS for each in descendants(node))
    return Content("rising") if rises and "-" not in text and "%" not in text else None


def listed_content(cells: Sequence[Cell]) -> Content | None:
    """What the elements of a list such as `{0, 2, 4}` are."""
    values = [formula_of(cell.value) for cell in cells]
    known = [value.whole for value in values if value is not None]
    wholes = [value for value in known if value is not None]
    if not wholes or len(wholes) != len(cells):
        return None
    if wholes == list(range(len(wholes))) and len(wholes) > 1:
        return Content("index")
    return _joined([Content("number", number(value)) for value in wholes])


def generated_content(machine: Machine, value: Value) -> Content | None:
    """What a function that `std::generate` calls gives."""
    body = value.node.child_by_field_name("body") if isinstance(value, Lambda) else None
    returns = (
        [each for each in descendants(body) if each.type == "return_statement"]
        if body is not None
        else []
    )
    if len(returns) != 1:
        return None
    return content_of(machine, next(iter(returns[0].named_children), None))


def _without_casts(node: Node | None) -> Node | None:
    """An expression without the parentheses and casts around it."""
    while node is not None:
        if node.type == "parenthesized_expression":
            node = next(iter(node.named_children), None)
        elif node.type == "cast_expression":
            node = node.child_by_field_name("value")
        elif node.type == "call_expression":
            function, given = (node.child_by_field_name(n) for n in ("function", "arguments"))
            name = re.match(r"\w*", text_of(function))
            is_cast = function is not None and (
                function.type == "primitive_type" or (name is not None and name[0] in CASTS)
            )
            if not is_cast or given is None or len(given.named_children) != 1:
                return node
            node = given.named_children[0]
        else:
            return node
    return None


def _locals_of_loops(machine: Machine) -> set[str]:
    """The variables that the loops of the current function declare inside."""
    frame = machine.frame
    depth = frame.loops[0].depth if frame.loops else len(frame.scopes)
    return {name for scope in frame.scopes[depth:] for name in scope}


def _range_of(machine: Machine, node: Node, counters: set[str]) -> Content | None:
    """The range of `x % n`, `x & 15`, and of sums and products of such a range and a number."""
    operator = text_of(node.child_by_field_name("operator"))
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    bound = _known(machine, right, counters)
    if operator == "%":
        return None if bound is None else Content("range", number(0), bound)
    if operator == "&":
        mask = None if bound is None else bound.whole
        return Content("range", number(0), number(mask + 1)) if mask and mask > 0 else None
    if bound is None and operator in ("+", "*"):
        left, bound = right, _known(machine, left, counters)
    inner = content_of(machine, left)
    if bound is None or inner is None or inner.kind != "range" or inner.high is None:
        return None
    low, high = inner.low, inner.high
    if operator in ("+", "-"):
        shift = bound if operator == "+" else bound.scaled(Fraction(-1))
        low_end, high_end = safe(lambda: low + shift), safe(lambda: high + shift)
    elif operator == "*" and (bound.whole or 0) > 0:
        low_end = safe(lambda: low * bound)
        high_end = safe(lambda: (high - number(1)) * bound + number(1))
    else:
        return None
    if low_end is None or high_end is None:
        return None
    return Content("range", low_end, high_end)


def _known(machine: Machine, node: Node | None, counters: set[str]) -> Formula | None:
    """The value of an operand that does not change in the loop."""
    node = _without_casts(node)
    if node is None or names_in(node) & counters:
        return None
    if any(each.type in _EFFECTS for each in descendants(node)):
        return None
    return formula_of(as_number(machine, machine.evaluate(machine, node)) or Unresolved(""))


def _joined(contents: Iterable[Content | None]) -> Content | None:
    """What elements are of which each is one of several contents."""
    listed = list(contents)
    if not listed or None in listed:
        return None
    found = [each for each in listed if each is not None]
    if all(each == found[0] for each in found):
        return found[0]
    ends = [_ends(each) for each in found]
    lows = [each[0] for each in ends if each is not None]
    highs = [each[1] for each in ends if each is not None]
    if len(lows) < len(found):
        return None
    return Content("range", number(min(lows)), number(max(highs)))


def _ends(content: Content) -> tuple[int, int] | None:
    """The whole numbers between which the elements lie, without the upper one."""
    low = content.low.whole
    high = content.high.whole if content.high is not None else None
    if low is None or content.kind not in ("number", "range"):
        return None
    return (low, low + 1) if content.kind == "number" else None if high is None else (low, high)
