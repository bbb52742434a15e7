"""Tensors of PyTorch in the host code of an extension: their sizes and memory.

The sizes of a tensor that a function is given are unknown numbers with names such as `x_size_0`,
and the number of its elements is `x_numel`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from memlab.kernels.host_code.arithmetic import as_number, combine, number_value
from memlab.kernels.host_code.formulas import Formula, exact_quotient, extreme, number
from memlab.kernels.host_code.machine import Machine, formula_of, new_tensor
from memlab.kernels.host_code.program import spelled_type
from memlab.kernels.host_code.values import (
    ZEROS,
    Allocation,
    Cell,
    Content,
    CType,
    Number,
    Pointer,
    Tensor,
    Unresolved,
    Value,
)

if TYPE_CHECKING:
    from tree_sitter import Node

NAMESPACES = ("torch::", "at::")
_SIZE = CType("int64_t")
_POINTERS = frozenset({"data_ptr", "mutable_data_ptr", "const_data_ptr", "data"})
_SAME = frozenset({"contiguous", "to", "cuda", "cpu", "detach", "clone", "float", "half"})
_RESHAPED = frozenset({"view", "reshape", "flatten", "transpose", "permute", "t", "squeeze"})
_CREATED = {"empty": None, "zeros": ZEROS, "ones": Content("number", number(1))}


def create(
    machine: Machine, function: str, arguments: Sequence[Node], values: Sequence[Value]
) -> Tensor | None:
    """The tensor that `torch::zeros({n, m})` or `torch::empty_like(x)` makes; None if it is none.

    Args:
        machine: The state.
        function: The function's last name.
        arguments: Its arguments.
        values: Their values.
    """
    plain = function.removesuffix("_like")
    if plain not in _CREATED or not values:
        return None
    made = new_tensor("")
    given = values[0]
    if isinstance(given, Tensor) and plain != function:
        made.sizes, made.count = given.sizes, _count(given)
    elif arguments[0].type == "initializer_list" and isinstance(given, Pointer):
        count: Value = number_value(1, "int64_t")
        for index, cell in given.allocation.elements.items():
            made.sizes[index] = cell
            count = combine(machine, "*", count, cell.value)
        made.count = Cell("numel", count, _SIZE)
    if _CREATED[plain] is not None:
        machine.event(Pointer(made.allocation), "filled", _CREATED[plain])
    return made


def call_method(
    machine: Machine, tensor: Tensor, method: str, template: str, values: Sequence[Value]
) -> Value:
    """The value of a method of a tensor.

    Args:
        machine: The state.
        tensor: The tensor.
        method: The method's name.
        template: The argument of its template, as it is written; empty without one.
        values: Its arguments.
    """
    if method in _POINTERS:
        return Pointer(tensor.allocation, element=spelled_type(template))
    if method == "numel":
        return _read(_count(tensor))
    if method == "sizes":
        return Pointer(
            Allocation(f"{tensor.name}_size", None, elements=tensor.sizes), element=_SIZE
        )
    if method == "size":
        place = as_number(machine, values[0]) if values else None
        index = place.formula.whole if place is not None else None
        return Unresolved(f"{tensor.name}_size") if index is None else _size(tensor, index)
    if method in _SAME:
        return tensor
    if method in _RESHAPED:
        return Tensor(tensor.name, tensor.allocation, count=_count(tensor))
    return Unresolved(f"{tensor.name}_{method}")


def count_elements(machine: Machine, values: Sequence[Value]) -> None:
    """Set the numbers of elements of the tensors that a launch is passed.

    A tensor is taken to have the dimensions whose sizes the host code uses. Of a dimension before
    these it uses no size: where all other sizes of the launch's tensors agree, it has theirs. A
    tensor of which it uses no size is taken to be as large as the largest of the others.

    Args:
        machine: The state.
        values: The arguments.
    """
    passed = [value.allocation.tensor for value in values if isinstance(value, Pointer)]
    tensors = list(dict.fromkeys(tensor for tensor in passed if tensor is not None))
    sizes = {tensor: [*map(_known, tensor.sizes.values())] for tensor in tensors}
    counts: dict[Tensor, Formula | None] = {}
    for tensor in tensors:
        others = [size for other in tensors if other is not tensor for size in sizes[other]]
        counts[tensor] = _known_count(machine, tensor, {*others} - {None})
    known = [count for count in counts.values() if count is not None]
    largest = reduce(_larger, known) if known else None
    for tensor, count in counts.items():
        if count is None and f"{tensor.name}_numel" not in machine.known:
            count = largest
        tensor.allocation.count = count or formula_of(machine.resolved(_count(tensor)))


def _larger(first: Formula, second: Formula) -> Formula:
    """The larger number of elements."""
    for one, other in ((first, second), (second, first)):
        quotient = exact_quotient(one, other)
        if quotient is not None and all(factor.denominator == 1 for _, factor in quotient.terms):
            return one
    return extreme("max", first, second)


def _known(cell: Cell) -> Formula | None:
    return formula_of(cell.value)


def _known_count(
    machine: Machine, tensor: Tensor, others: Collection[Formula | None]
) -> Formula | None:
    """The number of elements, as far as the host code uses it or the sizes.

    Args:
        machine: The state.
        tensor: The tensor.
        others: The sizes of the other tensors.
    """
    if tensor.count is not None and not isinstance(tensor.count.value, Unresolved):
        return formula_of(tensor.count.value)
    used = [index for index, cell in tensor.sizes.items() if _known(cell) is not None]
    count: Value = number_value(1, _SIZE.name)
    for index in range(max(used, default=-1) + 1):
        size = _size(tensor, index)
        if isinstance(size, Unresolved) and len(others) == 1 and size.name not in machine.known:
            shared = next(iter(others))
            size = size if shared is None else Number(shared, _SIZE.name)
        count = combine(machine, "*", count, machine.settled(size))
    return formula_of(count) if used else None


def _size(tensor: Tensor, index: int) -> Value:
    name = f"{tensor.name}_size_{index}".replace("-", "minus_")
    return _read(tensor.sizes.setdefault(index, Cell(name, Unresolved(name), _SIZE)))


def _count(tensor: Tensor) -> Cell:
    """The number of elements."""
    if tensor.count is None:
        name = f"{tensor.name}_numel"
        tensor.count = Cell(name, Unresolved(name), _SIZE)
    return tensor.count


def _read(cell: Cell) -> Value:
    """The value of a size; a variable that it is stored in may name it."""
    return Unresolved(cell.name, cell) if isinstance(cell.value, Unresolved) else cell.value
