"""Expressions of host code: their values as far as the source tells them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from memlab.kernels.host_code import calls, formulas
from memlab.kernels.host_code.arithmetic import (
    as_number,
    as_pointer,
    cast,
    combine,
    converted,
    inverted,
    negated,
    number_value,
    same_number,
)
from memlab.kernels.host_code.contents import note_store
from memlab.kernels.host_code.formulas import FormulaError
from memlab.kernels.host_code.machine import (
    Machine,
    truth_of,
)
from memlab.kernels.host_code.places import cell_of, element_cell, member_cell, target
from memlab.kernels.host_code.program import (
    literal,
    node_type,
    parse_expression,
    text_of,
)
from memlab.kernels.host_code.structures import class_constant, size_of
from memlab.kernels.host_code.tensor_maps import ENUMERATORS
from memlab.kernels.host_code.values import (
    Address,
    Allocation,
    Cell,
    Container,
    CType,
    FunctionName,
    Lambda,
    Null,
    Number,
    Pointer,
    Record,
    Text,
    Unresolved,
    Value,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_REAL = re.compile(r"[-+]?(?:\d[\d']*)?\.?\d*(?:[eE][+-]?\d{1,3})?([fFlL]?)")
_PLACEHOLDERS = {
    **dict.fromkeys(("cudaSuccess", "CUDA_SUCCESS", "EXIT_SUCCESS"), 0),
    "cudaDriverEntryPointSuccess": 0,
    "RAND_MAX": 2**31 - 1,
    **ENUMERATORS,
}
_LIMITS = {
    "INT_MAX": 2**31 - 1,
    "UINT_MAX": 2**32 - 1,
    "INT_MIN": -(2**31),
    "CHAR_BIT": 8,
    "FLT_MAX": (2 - 2**-23) * 2.0**127,
    "DBL_MAX": 1.7976931348623157e308,
}


def evaluate(machine: Machine, node: Node | None) -> Value:
    """The value of an expression; evaluating it has the effects of the calls in it."""
    if node is None:
        return Unresolved("")
    machine.step()
    handler = _HANDLERS.get(node.type)
    if handler is not None:
        try:
            return handler(machine, node)
        except FormulaError:
            return Unresolved("value")
    value: Value = Unresolved("")
    for child in node.named_children:  # such as a parenthesis, or what the grammar does not know
        value = evaluate(machine, child)
    return value


def _identifier(machine: Machine, node: Node) -> Value:
    name = text_of(node)
    cell = machine.find(name)
    if cell is not None:
        return cell.value
    return named_value(machine, name)


def named_value(machine: Machine, name: str) -> Value:
    """The value of a name that is no variable: a macro, a function, a known constant."""
    last = name.rpartition("::")[2]
    macro = machine.program.macros.get(name)
    if macro is not None and macro.parameters is None:
        parsed = parse_expression(macro.text) if macro.text and macro.text != name else None
        return Unresolved(name) if parsed is None else evaluate(machine, parsed)
    constant = class_constant(machine, name)
    if constant is not None:
        return constant
    cell = machine.find(last)
    if cell is not None:
        return cell.value
    if last in machine.program.kernels or last in machine.program.functions:
        return FunctionName(name)
    if last in _PLACEHOLDERS:
        return number_value(_PLACEHOLDERS[last])
    if last in _LIMITS:
        value = _LIMITS[last]
        return number_value(value, "float" if isinstance(value, float) else "int")
    if last in ("NULL", "nullptr"):
        return Null()
    return Unresolved(last)


def _number_literal(machine: Machine, node: Node) -> Value:
    text = text_of(node).replace("'", "")
    whole = literal(text)
    if whole is not None:
        suffix = text.lstrip("0123456789abcdefABCDEFxX").lower()
        unsigned = "u" if "u" in suffix else ""
        is_long = "l" in suffix or whole >= 2**32
        if not is_long and whole >= 2**31 and not unsigned:
            unsigned, is_long = ("u", False) if text.startswith("0") else ("", True)
        return number_value(whole, unsigned + ("long" if is_long else "int"))
    match = _REAL.fullmatch(text)
    if match is None:
        return Unresolved("value")
    kind = "float" if match[1] in ("f", "F") else "double"
    try:
        return number_value(Fraction(text.rstrip("fFlL")), kind)
    except (ValueError, ZeroDivisionError):
        return Unresolved("value")


def _character(machine: Machine, node: Node) -> Value:
    text = text_of(node)
    try:
        decoded = ast.literal_eval(text[text.find("'") :])  # Python has the same escapes
        return number_value(ord(decoded), "char")
    except (SyntaxError, ValueError, TypeError):
        return Unresolved("value")


def _binary(machine: Machine, node: Node) -> Value:
    operator = text_of(node.child_by_field_name("operator"))
    left_node, right_node = node.child_by_field_name("left"), node.child_by_field_name("right")
    left = evaluate(machine, left_node)
    if operator in ("&&", "||"):
        first = truth_of(left)
        if first is not None and first == (operator == "||"):
            return number_value(int(first), "bool")
        second = truth_of(evaluate(machine, right_node))
        if first is None and second == (operator == "||"):
            return number_value(int(second), "bool")
        unknown = first is None or second is None
        return Unresolved("condition") if unknown else number_value(int(bool(second)), "bool")
    return combine(machine, operator, left, evaluate(machine, right_node))


def _unary(machine: Machine, node: Node) -> Value:
    operator = text_of(node.child_by_field_name("operator"))
    value = evaluate(machine, node.child_by_field_name("argument"))
    if operator == "!":
        truth = truth_of(value)
        return Unresolved("condition") if truth is None else number_value(int(not truth), "bool")
    operand = as_number(machine, value)
    if operand is None:
        return Unresolved("value")
    if operator == "-":
        return negated(operand)
    return inverted(operand) if operator == "~" else operand


def _update(machine: Machine, node: Node) -> Value:
    operator = text_of(node.child_by_field_name("operator"))
    argument = node.child_by_field_name("argument")
    cell = cell_of(machine, argument)
    before = cell.value if cell is not None else evaluate(machine, argument)
    after = combine(machine, operator[0], before, number_value(1))
    if cell is not None:
        machine.write(cell, after)
    is_prefix = node.children[0].type == operator
    return after if is_prefix else before


def _assignment(machine: Machine, node: Node) -> Value:
    operator = text_of(node.child_by_field_name("operator"))
    left_node, right_node = node.child_by_field_name("left"), node.child_by_field_name("right")
    value = evaluate(machine, right_node)
    cell = cell_of(machine, left_node)
    if operator != "=":
        before = cell.value if cell is not None else evaluate(machine, left_node)
        value = combine(machine, operator[:-1], before, value)
    if left_node is not None and right_node is not None:
        note_store(machine, left_node, right_node, operator)
    if cell is None:
        return value
    assign(machine, cell, value)
    return cell.value


def assign(machine: Machine, cell: Cell, value: Value) -> None:
    """Assign to a variable, with the conversion to its type."""
    held = cell.value
    if isinstance(held, Container):
        if isinstance(value, Container):  # thrust: a copy between host and device
            machine.event(value, "read")
            machine.event(held, "filled", value.allocation.content)
            machine.resize(held.allocation, value.allocation.nbytes)
        return
    if isinstance(held, Record) and held.type == "dim3":
        value = calls.as_dim3(value)
    machine.write(cell, converted(machine, machine.copied(value), cell.type))


def _conditional(machine: Machine, node: Node) -> Value:
    truth = truth_of(evaluate(machine, node.child_by_field_name("condition")))
    branches = [node.child_by_field_name("consequence"), node.child_by_field_name("alternative")]
    if truth is not None:
        return evaluate(machine, branches[0 if truth else 1])
    left, right = evaluate(machine, branches[0]), evaluate(machine, branches[1])
    if isinstance(left, Number) and isinstance(right, Number) and not same_number(left, right):
        rounded = _rounded_up(machine, node.child_by_field_name("condition"), left, right)
        return Unresolved("value") if rounded is None else rounded
    return left


def _rounded_up(
    machine: Machine, condition: Node | None, left: Number, right: Number
) -> Number | None:
    """The quotient that `a % b ? a / b + 1 : a / b` rounds up, or the same the other way around."""
    remainder, leaves_rest = _remainder(machine, condition)
    lower, upper = (right, left) if leaves_rest else (left, right)
    if remainder is None or (upper.formula - lower.formula).whole != 1 or lower.is_real:
        return None
    dividend, divisor = (
        as_number(machine, evaluate(machine, remainder.child_by_field_name(side)))
        for side in ("left", "right")
    )
    if dividend is None or divisor is None:
        return None
    if lower.formula != formulas.floor_quotient(dividend.formula, divisor.formula):
        return None
    return Number(formulas.ceil_quotient(dividend.formula, divisor.formula), lower.type)


def _remainder(machine: Machine, condition: Node | None) -> tuple[Node | None, bool]:
    """The `a % b` that a condition compares with 0, and whether it holds where a rest is left."""
    if condition is None:
        return None, False
    operator = text_of(condition.child_by_field_name("operator"))
    if condition.type == "binary_expression":
        if operator == "%":
            return condition, True
        right = as_number(machine, evaluate(machine, condition.child_by_field_name("right")))
        if operator in ("!=", ">", "==") and right is not None and right.formula.whole == 0:
            found, leaves_rest = _remainder(machine, condition.child_by_field_name("left"))
            return found, leaves_rest != (operator == "==")
    elif condition.type == "unary_expression" and operator == "!":
        found, leaves_rest = _remainder(machine, condition.child_by_field_name("argument"))
        return found, not leaves_rest
    elif condition.type == "parenthesized_expression":
        return _remainder(machine, next(iter(condition.named_children), None))
    return None, False


def _cast(machine: Machine, node: Node) -> Value:
    kind = node_type(node.child_by_field_name("type"))
    return cast(machine, evaluate(machine, node.child_by_field_name("value")), kind)


def _sizeof(machine: Machine, node: Node) -> Value:
    kind_node = node.child_by_field_name("type")
    value_node = node.child_by_field_name("value")
    if kind_node is not None:
        kind = node_type(kind_node)
    else:
        while value_node is not None and value_node.type == "parenthesized_expression":
            value_node = next(iter(value_node.named_children), None)
        if value_node is None:
            return Unresolved("size")
        cell = machine.find(text_of(value_node)) if value_node.type == "identifier" else None
        if cell is not None and isinstance(cell.value, Pointer):
            allocation = cell.value.allocation  # an array has no pointer type
            if (cell.type is None or not cell.type.pointers) and allocation.nbytes is not None:
                return Number(allocation.nbytes, "size_t")
        found = type_of(machine, value_node)
        if found is None and value_node.type in ("identifier", "template_function"):
            found = CType(text_of(value_node))  # a type, which the grammar cannot tell
        if found is None:
            return Unresolved("size")
        kind = found
    size = size_of(machine, kind)
    return Unresolved(f"sizeof_{kind.name}") if size is None else number_value(size, "size_t")


def type_of(machine: Machine, node: Node) -> CType | None:
    """The type of an expression, as far as it is needed for its size."""
    if node.type == "parenthesized_expression":
        inner = next(iter(node.named_children), None)
        return None if inner is None else type_of(machine, inner)
    if node.type in ("subscript_expression", "pointer_expression"):
        argument = node.child_by_field_name("argument")
        if argument is None or text_of(node.child_by_field_name("operator")) == "&":
            return None
        kind = type_of(machine, argument)
        if kind is not None and kind.pointers:
            return kind.pointee
        value = evaluate(machine, argument)
        return value.element if isinstance(value, Pointer | Container) else None
    if node.type == "field_expression":
        member = cell_of(machine, node)
        return None if member is None else machine.resolve(member.type)
    cell = cell_of(machine, node)
    if cell is not None:
        return machine.resolve(cell.type)
    value = evaluate(machine, node)
    return CType(value.type) if isinstance(value, Number) else None


def _pointer_expression(machine: Machine, node: Node) -> Value:
    argument = node.child_by_field_name("argument")
    if text_of(node.child_by_field_name("operator")) == "*":
        cell = target(machine, evaluate(machine, argument))
        return cell.value if cell is not None else Unresolved("value")
    if argument is not None and argument.type == "subscript_expression":
        base = evaluate(machine, argument.child_by_field_name("argument"))
        if isinstance(base, Pointer | Container):
            start = as_pointer(base)
            if base.element is not None and base.element.pointers and not base.element.extents:
                cell = cell_of(machine, argument)
                return Unresolved("value") if cell is None else Address(cell)
            indices = argument.child_by_field_name("indices")
            index = next(iter(indices.named_children), None) if indices is not None else None
            return combine(machine, "+", start, evaluate(machine, index))
    cell = cell_of(machine, argument)
    if cell is not None:
        if isinstance(cell.value, FunctionName):
            return cell.value
        return Address(cell)
    return evaluate(machine, argument)


def _subscript(machine: Machine, node: Node) -> Value:
    cell = element_cell(machine, node)
    if cell is not None:
        is_open = isinstance(cell.value, Unresolved) and machine.holds_number(cell.type)
        return Unresolved(cell.name, cell) if is_open else cell.value
    value = evaluate(machine, node.child_by_field_name("argument"))
    if isinstance(value, Pointer) and value.element is not None:
        if value.element.extents:  # a row
            indices = node.child_by_field_name("indices")
            index = next(iter(indices.named_children), None) if indices is not None else None
            row = combine(machine, "+", value, evaluate(machine, index))
            return replace(row, element=value.element.row) if isinstance(row, Pointer) else row
        if value.element.pointers:
            return Unresolved("pointer")
    name = value.name if isinstance(value, Unresolved) else "value"
    return Unresolved(name)


def _field(machine: Machine, node: Node) -> Value:
    cell = member_cell(machine, node)
    if cell is None:
        return Unresolved(text_of(node.child_by_field_name("field")))
    return machine.resolved(cell)


def _initializers(machine: Machine, node: Node) -> Value:
    values = [evaluate(machine, child) for child in node.named_children]
    cells = {index: Cell(f"{index}", value) for index, value in enumerate(values)}
    return Pointer(Allocation("", None, elements=cells, is_list=True))


def _compound_literal(machine: Machine, node: Node) -> Value:
    values = node.child_by_field_name("value")
    arguments = values.named_children if values is not None else []
    kind = node.child_by_field_name("type")
    if kind is None or not text_of(kind):  # {x, y} between <<< and >>>
        return _initializers(machine, values) if values is not None else Unresolved("value")
    return calls.construct(machine, node_type(kind), list(arguments), kind)


def _template_name(machine: Machine, node: Node) -> Value:
    return FunctionName(
        text_of(node.child_by_field_name("name")),
        calls.template_texts(machine, node.child_by_field_name("arguments")),
    )


def _qualified(machine: Machine, node: Node) -> Value:
    name = node.child_by_field_name("name")
    if name is not None and name.type == "template_function":
        value = _template_name(machine, name)
        scope = text_of(node.child_by_field_name("scope"))
        if isinstance(value, FunctionName):
            return FunctionName(f"{scope}::{value.name}".removeprefix("::"), value.arguments)
    return named_value(machine, text_of(node).removeprefix("::"))


def _comma(machine: Machine, node: Node) -> Value:
    evaluate(machine, node.child_by_field_name("left"))
    return evaluate(machine, node.child_by_field_name("right"))


def _lambda(machine: Machine, node: Node) -> Value:
    return Lambda(node, tuple(machine.frame.scopes))


def _type_word(machine: Machine, node: Node) -> Value:
    """A name where the grammar expects a type: it may be a constant."""
    return _identifier(machine, node)


_HANDLERS: dict[str, Callable[[Machine, Node], Value]] = {
    "identifier": _identifier,
    "type_identifier": _type_word,
    "number_literal": _number_literal,
    "true": lambda machine, node: number_value(1, "bool"),
    "false": lambda machine, node: number_value(0, "bool"),
    "null": lambda machine, node: Null(),
    "string_literal": lambda machine, node: Text(text_of(node)),
    "concatenated_string": lambda machine, node: Text(text_of(node)),
    "raw_string_literal": lambda machine, node: Text(text_of(node)),
    "char_literal": _character,
    "binary_expression": _binary,
    "unary_expression": _unary,
    "update_expression": _update,
    "assignment_expression": _assignment,
    "conditional_expression": _conditional,
    "cast_expression": _cast,
    "sizeof_expression": _sizeof,
    "pointer_expression": _pointer_expression,
    "subscript_expression": _subscript,
    "field_expression": _field,
    "initializer_list": _initializers,
    "compound_literal_expression": _compound_literal,
    "template_function": _template_name,
    "qualified_identifier": _qualified,
    "comma_expression": _comma,
    "lambda_expression": _lambda,
    "call_expression": calls.call,
    "new_expression": calls.new,
}
