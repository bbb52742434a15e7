"""Vectors and arrays of the standard library and Thrust: their sizes and elements."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from memlab.kernels.host_code.arithmetic import as_number, number_value
from memlab.kernels.host_code.contents import content_of, listed_content
from memlab.kernels.host_code.formulas import Formula, number
from memlab.kernels.host_code.machine import Machine, formula_of, safe
from memlab.kernels.host_code.places import element_of
from memlab.kernels.host_code.program import (
    descendants,
    node_type,
    parse_expression,
    spelled_type,
    split_template,
)
from memlab.kernels.host_code.structures import size_of
from memlab.kernels.host_code.values import (
    ZEROS,
    Allocation,
    Cell,
    Container,
    CType,
    Number,
    Pointer,
    Unresolved,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

CONTAINERS = {"vector": False, "array": False, "host_vector": False, "device_vector": True}
"""The containers whose sizes are followed, by their last name; whether they are on the device."""


def construct(
    machine: Machine, base: str, kind: CType, arguments: Sequence[Node], type_node: Node | None
) -> Value:
    """A container, made with a constructor's arguments.

    Args:
        machine: The state.
        base: A name of `CONTAINERS`.
        kind: The type.
        arguments: The arguments.
        type_node: The type where it is written, before what is declared.
    """
    element = _element_type(machine, kind, type_node)
    made = Container(Allocation("", number(0), CONTAINERS[base]), element, CONTAINERS[base])
    is_list = _is_initializer_list(type_node) or any(
        node.type == "initializer_list" for node in arguments[:1]
    )
    if base == "array":
        _resize(machine, made, _extent(machine, kind))
        if arguments:
            listed = arguments[0] if arguments[0].type == "initializer_list" else None
            _list_elements(machine, made, listed.named_children if listed else arguments)
        return made
    if not arguments:
        made.allocation.is_list = True
        return made
    if is_list:
        nested = len(arguments) == 1 and arguments[0].type == "initializer_list"
        listed_nodes = arguments[0].named_children if nested else arguments
        _resize(machine, made, number(len(listed_nodes)))
        _list_elements(machine, made, listed_nodes)
        return made
    first = machine.evaluate(machine, arguments[0])
    if isinstance(first, Container):
        machine.event(first, "read")
    if isinstance(first, Container | Pointer):  # another one, or (first, last)
        machine.resize(made.allocation, first.allocation.nbytes)
        machine.event(made, "filled", first.allocation.content)
        return made
    _resize(machine, made, _count(machine, first))
    content = ZEROS if len(arguments) == 1 else content_of(machine, arguments[1])
    machine.event(made, "filled", content)
    return made


def call_method(
    machine: Machine, container: Container, method: str, arguments: Sequence[Node]
) -> Value:
    """Call a method of a container."""
    from memlab.kernels.host_code.calls import unknown_call

    allocation, element = container.allocation, container.element
    if method in ("data", "begin", "cbegin"):
        return Pointer(allocation, number(0), element)
    if method in ("end", "cend") and allocation.nbytes is not None:
        return Pointer(allocation, allocation.nbytes, element)
    count = _length(machine, container)
    if method == "size":
        return Unresolved("size") if count is None else Number(count, "size_t")
    if method == "empty" and count is not None and count.constant is not None:
        return number_value(int(not count.constant), "bool")
    if method in ("at", "front", "back"):
        place = _place(machine, method, arguments, count)
        cell = None if place is None else element_of(machine, container, place)
        return Unresolved("value") if cell is None else cell.value
    if method in ("resize", "assign") and arguments:
        _resize(machine, container, _count(machine, machine.evaluate(machine, arguments[0])))
        return Unresolved("")
    if method == "clear":
        machine.resize(allocation, number(0))
        return Unresolved("")
    if method in ("reserve", "shrink_to_fit"):
        return Unresolved("")
    if method in ("push_back", "emplace_back"):
        _append(machine, container, count, arguments)
        return Unresolved("")
    if method == "pop_back":
        _resize(machine, container, None if count is None else count - number(1))
        return Unresolved("")
    return unknown_call(machine, method, arguments)


def _append(
    machine: Machine, container: Container, count: Formula | None, arguments: Sequence[Node]
) -> None:
    """Add an element."""
    from memlab.kernels.host_code.calls import initialized

    content = content_of(machine, arguments[0]) if len(arguments) == 1 else None
    place = None if count is None else count.whole
    cell = None if place is None else element_of(machine, container, place)
    if cell is not None and len(arguments) == 1:
        machine.write(cell, initialized(machine, container.element, arguments[0]))
    else:
        container.allocation.is_list = False
        for node in arguments:
            machine.evaluate(machine, node)
    _resize(machine, container, None if count is None else safe(lambda: count + number(1)))
    machine.event(container, "filled", content)


def _place(
    machine: Machine, method: str, arguments: Sequence[Node], count: Formula | None
) -> int | None:
    """The number of the element that `at(i)`, `front()` or `back()` gives."""
    if method == "front":
        return 0
    if method == "back":
        return None if count is None or not count.whole else count.whole - 1
    index = formula_of(machine.evaluate(machine, arguments[0])) if arguments else None
    return None if index is None else index.whole


def _element_type(machine: Machine, kind: CType, type_node: Node | None) -> CType:
    listed = (
        next(
            (each for each in descendants(type_node) if each.type == "template_argument_list"), None
        )
        if type_node is not None
        else None
    )
    node = next(iter(listed.named_children), None) if listed is not None else None
    if node is not None:
        element = node_type(node)
    else:
        element = spelled_type(next(iter(split_template(kind.name)[1]), "")) or CType("")
    return machine.resolve(element) or element


def _extent(machine: Machine, kind: CType) -> Formula | None:
    """The number of elements of a `std::array`, from its type."""
    given = split_template(kind.name)[1]
    node = parse_expression(given[1]) if len(given) > 1 else None
    return None if node is None else _count(machine, machine.evaluate(machine, node))


def _is_initializer_list(type_node: Node | None) -> bool:
    """Whether a variable is declared as in `v{4, 5}`: its value is the list of its elements."""
    declarator = None if type_node is None else type_node.next_named_sibling
    value = None if declarator is None else declarator.child_by_field_name("value")
    return value is not None and value.type == "initializer_list"


def _list_elements(machine: Machine, container: Container, nodes: Sequence[Node]) -> None:
    """Give a container the elements of a list."""
    from memlab.kernels.host_code.calls import initialized

    allocation = container.allocation
    for index, node in enumerate(nodes):
        value = initialized(machine, container.element, node)
        name = f"{allocation.name}_{index}"
        allocation.elements[index] = Cell(name, value, container.element, is_element=True)
    count = _length(machine, container)
    allocation.is_list = count is not None and count.whole == len(nodes)
    if allocation.is_list:
        allocation.content = listed_content(list(allocation.elements.values()))


def _count(machine: Machine, value: Value) -> Formula | None:
    return formula_of(as_number(machine, value, "size") or Unresolved(""))


def _length(machine: Machine, container: Container) -> Formula | None:
    """The number of elements."""
    size, nbytes = size_of(machine, container.element), container.allocation.nbytes
    return None if nbytes is None or not size else nbytes.scaled(Fraction(1, size))


def _resize(machine: Machine, container: Container, count: Formula | None) -> None:
    """Give a container a number of elements."""
    size = size_of(machine, container.element)
    known = count is not None and size is not None
    nbytes = safe(lambda: count * number(size)) if known and count and size else None
    if known and nbytes is None and count is not None and not count.terms:
        nbytes = number(0)
    machine.resize(container.allocation, nbytes)
