"""The variables, members and elements that expressions of host code name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.kernels.host_code.arithmetic import as_number
from memlab.kernels.host_code.program import text_of
from memlab.kernels.host_code.structures import size_of
from memlab.kernels.host_code.values import (
    Address,
    Cell,
    Container,
    Pointer,
    Record,
    Unresolved,
    Value,
)

if TYPE_CHECKING:
    from tree_sitter import Node

    from memlab.kernels.host_code.machine import Machine

MAX_INDEX = 4096
"""The largest index of an element that is followed."""


def cell_of(machine: Machine, node: Node | None) -> Cell | None:
    """The variable, member or element that an expression names; None if it is none."""
    if node is None:
        return None
    if node.type == "identifier":
        return machine.find(text_of(node))
    if node.type == "qualified_identifier":
        return machine.find(text_of(node).rpartition("::")[2])
    if node.type == "parenthesized_expression":
        return cell_of(machine, next(iter(node.named_children), None))
    if node.type == "field_expression":
        return member_cell(machine, node)
    if node.type == "subscript_expression":
        return element_cell(machine, node)
    if node.type == "pointer_expression" and text_of(node.child_by_field_name("operator")) == "*":
        return target(machine, machine.evaluate(machine, node.child_by_field_name("argument")))
    if node.type == "cast_expression":
        return cell_of(machine, node.child_by_field_name("value"))
    return None


def target(machine: Machine, value: Value) -> Cell | None:
    """What a pointer points to."""
    if isinstance(value, Address):
        return value.cell
    return element_of(machine, value, 0) if isinstance(value, Pointer) else None


def element_of(machine: Machine, value: Value, index: int) -> Cell | None:
    """An element of a container, or behind a pointer.

    Args:
        machine: The state.
        value: The container or pointer.
        index: The element's number, counted from where the pointer points.

    Returns:
        The element; None where it is a row of others, or is not known or not followed.
    """
    if isinstance(value, Container):
        value = Pointer(value.allocation, element=value.element)
    if not isinstance(value, Pointer):
        return None
    allocation, kind, start = value.allocation, value.element, value.offset.whole
    if start is None or (kind is not None and kind.extents):
        return None
    if start:
        size = size_of(machine, kind) if kind is not None else None
        if not size or start % size:
            return None
        index += start // size
    if not 0 <= index < MAX_INDEX:
        return None
    name = f"{allocation.name}_{index}"
    made = Cell(name, Unresolved(name), kind, is_element=True)
    return allocation.elements.setdefault(index, made)


def member_cell(machine: Machine, node: Node) -> Cell | None:
    """The member that `a.b` or `a->b` names; an unknown structure becomes one with this member."""
    name = text_of(node.child_by_field_name("field"))
    argument = node.child_by_field_name("argument")
    if text_of(argument) == "this" and machine.frame.this is not None:
        return machine.frame.this.member(name)
    owner = cell_of(machine, argument)
    value = machine.evaluate(machine, argument) if owner is None else owner.value
    if isinstance(value, Address | Pointer):
        owner = target(machine, value)
        value = owner.value if owner is not None else value
    if isinstance(value, Unresolved):
        if owner is None:
            return None
        kind = machine.resolve(owner.type)
        value = Record(kind.name if kind is not None else "")
        machine.write(owner, value)
    return value.member(name) if isinstance(value, Record) else None


def element_cell(machine: Machine, node: Node) -> Cell | None:
    """The element that `a[i]` names, where the index is known and small."""
    indices = node.child_by_field_name("indices")
    index_node = next(iter(indices.named_children), None) if indices is not None else None
    index = as_number(machine, machine.evaluate(machine, index_node))
    place = index.formula.whole if index is not None else None
    value = machine.evaluate(machine, node.child_by_field_name("argument"))
    if isinstance(value, Address) and place == 0:
        return value.cell
    return None if place is None else element_of(machine, value, place)
