"""Calls in host code: kernels, functions of the file, macros, constructors, and CUDA's runtime."""

from __future__ import annotations

import re
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from memlab.kernels.host_code import containers, device_queries, runtime, tensors
from memlab.kernels.host_code.arithmetic import as_number, cast, converted, number_value
from memlab.kernels.host_code.containers import CONTAINERS
from memlab.kernels.host_code.contents import CASTS
from memlab.kernels.host_code.formulas import number
from memlab.kernels.host_code.machine import (
    MAX_DEPTH,
    MAX_RECURSION,
    Frame,
    Machine,
    RecordedLaunch,
    Return,
    allocation_of,
    formula_of,
    same,
    truth_of,
)
from memlab.kernels.host_code.places import cell_of
from memlab.kernels.host_code.preprocessor import Macro, expand
from memlab.kernels.host_code.program import (
    Function,
    TemplateParameter,
    declared,
    descendants,
    members,
    node_type,
    parse_expression,
    parse_statements,
    spelled_type,
    split_template,
    text_of,
    written_type,
)
from memlab.kernels.host_code.structures import class_constant, class_frame, inside, size_of
from memlab.kernels.host_code.values import (
    Address,
    Allocation,
    Cell,
    Container,
    CType,
    EncodedMap,
    Event,
    EventKind,
    FunctionName,
    Lambda,
    Number,
    Pointer,
    Record,
    Tensor,
    Unresolved,
    Value,
    dim3,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node


DIM3_TYPES = frozenset({"dim3", "uint3"})
ASSERTIONS = frozenset({"assert", "TORCH_CHECK", "AT_ASSERT", "AT_ASSERTM"})
_CALL_OPERATOR = "operator()"
UNKNOWN_MARK = "?"
"""Stands before the name of an unknown number in an argument of a template."""
UNKNOWN_TYPE = "auto"
"""The type that a parameter of a template stands for where it is not known."""


def call(machine: Machine, node: Node) -> Value:
    """The value of a call, after its effects."""
    function = node.child_by_field_name("function")
    arguments_node = node.child_by_field_name("arguments")
    arguments = list(arguments_node.named_children) if arguments_node is not None else []
    configuration = next(
        (child for child in node.children if child.type == "kernel_call_syntax"), None
    )
    if configuration is not None:
        return _launch(machine, function, configuration, arguments)
    if function is None:
        return Unresolved("value")
    if function.type == "field_expression":
        return _method(machine, function, arguments)
    if function.type == "call_expression":  # such as Functor<T>()(x)
        return _call_value(machine, machine.evaluate(machine, function), "value", arguments)
    name, template = _called_name(machine, function)
    last = name.rpartition("::")[2]
    if last in CASTS and template is not None:
        kind = spelled_type(template[0]) if template else None
        value = machine.evaluate(machine, arguments[0]) if arguments else Unresolved("")
        return value if kind is None else cast(machine, value, kind)
    macro = machine.program.macros.get(name)
    is_global = text_of(function).startswith("::")
    if macro is not None and macro.parameters is not None and not is_global:
        return _expand(machine, name, macro, arguments)
    cell = machine.find(name)
    if cell is not None:
        if isinstance(cell.value, Lambda | Record):
            return _call_value(machine, cell.value, last, arguments)
        if isinstance(cell.value, FunctionName):
            name, template = cell.value.name, cell.value.arguments or template
            last = name.rpartition("::")[2]
    if last in machine.program.functions and last not in machine.program.structures:
        this = machine.frame.this
        is_method = this is not None and any(
            _is_method(each, this) for each in machine.program.functions[last]
        )
        return call_function(machine, name, template, arguments, this if is_method else None)
    if name.startswith(tensors.NAMESPACES):
        values = [machine.evaluate(machine, node) for node in arguments]
        made = tensors.create(machine, last, arguments, values)
        if made is not None:
            return made
    handler = runtime.HANDLERS.get(last)
    if handler is not None:
        return handler(machine, arguments, template)
    kind = node_type(function) if function.type == "primitive_type" else CType(name)
    if template is not None:
        kind = CType(f"{name}<{', '.join(template)}>")
    if is_constructed(machine, kind) or function.type == "primitive_type":
        return construct(machine, kind, arguments, function)
    return unknown_call(machine, last, arguments)


def _call_value(machine: Machine, value: Value, name: str, arguments: Sequence[Node]) -> Value:
    """Call a lambda expression, the `operator()` of an object or a function of the runtime."""
    if isinstance(value, Lambda):
        return call_lambda(machine, value, arguments)
    if isinstance(value, FunctionName) and value.name in runtime.HANDLERS:
        return runtime.HANDLERS[value.name](machine, arguments, value.arguments)
    if isinstance(value, Record) and _CALL_OPERATOR in machine.program.functions:
        return call_function(machine, _CALL_OPERATOR, None, arguments, this=value)
    return unknown_call(machine, name, arguments)


def unknown_call(machine: Machine, name: str, arguments: Sequence[Node]) -> Value:
    """A call of an unknown function: it may change what it gets pointers to."""
    if name.startswith("AT_DISPATCH"):  # for every type of elements; one of them is float
        machine.frame.types["scalar_t"] = CType("float")
    if name in ASSERTIONS and arguments:
        learn(machine, arguments[0], True)
    for node in arguments:
        value = machine.evaluate(machine, node)
        if isinstance(value, Lambda):
            call_lambda(machine, value, ())
        elif isinstance(value, Address):
            cell = value.cell
            if not isinstance(cell.value, Record | Container):
                machine.write(cell, Unresolved(cell.name))
        else:
            machine.event(value, "filled")
            machine.event(value, "read")
    if name.startswith(("cuda", "cublas", "curand", "cufft", "cusparse", "nccl", "cudnn")):
        return number_value(0)
    return Unresolved(name)


def learn(machine: Machine, node: Node | None, holds: bool) -> None:
    """Take a condition to hold, or not to, for the program goes on: it may tell a size.

    Args:
        machine: The state.
        node: The condition, such as `b.size(0) == n`.
        holds: Whether it holds.
    """
    while node is not None and node.type in ("parenthesized_expression", "condition_clause"):
        node = next(iter(node.named_children), None)
    if node is None or node.type != "binary_expression":
        return
    operator = text_of(node.child_by_field_name("operator"))
    sides = node.child_by_field_name("left"), node.child_by_field_name("right")
    if operator == ("&&" if holds else "||"):
        for side in sides:
            learn(machine, side, holds)
    elif operator == ("==" if holds else "!="):
        left, right = (machine.evaluate(machine, side) for side in sides)
        machine.learn(left, right)


def _called_name(machine: Machine, function: Node) -> tuple[str, tuple[str, ...] | None]:
    if function.type in ("template_function", "qualified_identifier"):
        last = function
        while last.type == "qualified_identifier":
            inner = last.child_by_field_name("name")
            if inner is None:
                break
            last = inner
        if last.type == "template_function":
            texts = template_texts(machine, last.child_by_field_name("arguments"))
            prefix = text_of(function)[: last.start_byte - function.start_byte]
            return prefix.removeprefix("::") + text_of(last.child_by_field_name("name")), texts
    return text_of(function).removeprefix("::"), None


def template_texts(machine: Machine, node: Node | None) -> tuple[str, ...]:
    """The arguments of a template, with the values of the names in them."""
    return tuple(_template_text(machine, child) for child in (node.named_children if node else ()))


def _template_text(machine: Machine, node: Node) -> str:
    if node.type == "type_descriptor":
        kind = node_type(node)
        is_plain = node.child_by_field_name("declarator") is None
        name = text_of(node)
        if is_plain and (machine.find(name) or name in machine.program.macros):
            value = machine.evaluate(machine, node.child_by_field_name("type"))
            if isinstance(value, Number):
                return number_text(machine, value)
        for frame in reversed(machine.frames):
            if kind.name in frame.types:
                given = frame.types[kind.name]
                return written_type(CType(given.name, given.pointers + kind.pointers))
        constant = class_constant(machine, name)
        if isinstance(constant, Number):
            return number_text(machine, constant)
        if any(mark in kind.name for mark in ("<", "::", "decltype(")):
            kind = machine.resolve(kind) or kind
            return written_type(kind)
        return name
    value = machine.evaluate(machine, node)
    if isinstance(value, Number):
        return number_text(machine, value)
    if isinstance(value, FunctionName):
        return value.name
    return text_of(node)


def number_text(machine: Machine, value: Number) -> str:
    """A number in an argument of a template."""
    if value.type == "bool" and value.formula.constant is not None:
        return "true" if value.formula.constant else "false"
    return value.formula.text(lambda unknown: f"{UNKNOWN_MARK}{unknown.name}")


def _expand(machine: Machine, name: str, macro: Macro, arguments: Sequence[Node]) -> Value:
    """The value of a macro with arguments."""
    if len(machine.frames) > MAX_DEPTH:
        return Unresolved("value")
    # A macro's own name in its text is a function: marked by ::, it is not expanded again.
    own = re.sub(rf"(?<![\w.:])(?<!->){re.escape(name)}(?=\s*\()", f"::{name}", macro.text)
    text = expand(Macro(macro.parameters, own), [text_of(argument) for argument in arguments])
    if text is None:
        return unknown_call(machine, "value", arguments)
    machine.step(1 + len(text) // 256)
    expression = parse_expression(text)
    if expression is not None:
        return machine.evaluate(machine, expression)
    statements = parse_statements(text)
    if statements is None:
        return unknown_call(machine, "value", arguments)
    machine.frames.append(
        Frame(machine.frame.function, machine.frame.scopes, this=machine.frame.this)
    )
    try:
        machine.execute(machine, statements)
    finally:
        machine.frames.pop()
    return Unresolved("value")


def call_function(
    machine: Machine,
    name: str,
    template: Sequence[str] | None,
    arguments: Sequence[Node],
    this: Record | None = None,
) -> Value:
    """Call a function of the program."""
    function = _overload(machine, name, len(arguments), this, template)
    if function is None or len(machine.frames) > MAX_DEPTH:
        return unknown_call(machine, name.rpartition("::")[2], arguments)
    values: list[Value] = []
    cells: list[Cell | None] = []
    for index, node in enumerate(arguments):
        parameter = function.parameters[index] if index < len(function.parameters) else None
        values.append(machine.evaluate(machine, node))
        is_reference = parameter is not None and parameter.is_reference
        cells.append(cell_of(machine, node) if is_reference else None)
    return enter(machine, function, values, cells, template, this)


def _is_method(function: Function, this: Record) -> bool:
    """Whether a function is a method of an object's class."""
    whole = re.sub(r"\s", "", this.type)
    return bool(function.owner) and function.owner in (whole, split_template(whole)[0])


def _overload(
    machine: Machine,
    name: str,
    count: int,
    this: Record | None,
    template: Sequence[str] | None = None,
) -> Function | None:
    found = [
        function
        for function in machine.program.functions.get(name.rpartition("::")[2], ())
        if this is None or _is_method(function, this)
    ]
    fitting = [
        function
        for function in found
        if sum(p.default is None for p in function.parameters) <= count <= len(function.parameters)
    ]
    nearest = {spelled: place for place, spelled in enumerate(machine.spellings(name))}
    fitting.sort(key=lambda each: nearest.get(each.name, len(nearest)))
    if len(fitting) > 1:
        fitting = [each for each in fitting if _is_enabled(machine, each, template or ())]
    return next(iter(fitting or found), None)


def _is_enabled(machine: Machine, function: Function, template: Sequence[str]) -> bool:
    """Whether the `std::enable_if` in a function's type takes the arguments of its template."""
    result = function.node.child_by_field_name("type")
    condition = next(
        (
            arguments.named_children[0]
            for each in (descendants(result) if result is not None and function.template else ())
            if text_of(each.child_by_field_name("name")) in ("enable_if", "enable_if_t")
            and (arguments := each.child_by_field_name("arguments")) is not None
        ),
        None,
    )
    if condition is None:
        return True
    frame = Frame(function.name)
    _bind_template(machine, frame, function, template, ())
    machine.frames.append(frame)
    try:
        return truth_of(machine.evaluate(machine, condition)) is not False
    finally:
        machine.frames.pop()


def enter(
    machine: Machine,
    function: Function,
    values: Sequence[Value],
    cells: Sequence[Cell | None] = (),
    template: Sequence[str] | None = None,
    this: Record | None = None,
) -> Value:
    """Execute a function with the values of its arguments.

    Args:
        machine: The state.
        function: The function.
        values: The arguments.
        cells: The variables that are passed by reference; None for others.
        template: The arguments of its template that are given.
        this: The object of a method.
    """
    if sum(each.function == function.name for each in machine.frames) > MAX_RECURSION:
        return Unresolved(function.name.rpartition("::")[2])
    frame = _method_frame(machine, function, this)
    machine.executed_functions.add(function.name)
    if function.template is not None:
        _bind_template(machine, frame, function, template or (), values)
    machine.frames.append(frame)
    place = machine.line, machine.source_name
    try:
        for index, parameter in enumerate(function.parameters):
            cell = cells[index] if index < len(cells) else None
            if cell is not None:
                frame.scopes[0][parameter.name] = cell
            elif index < len(values):
                value = converted(machine, machine.copied(values[index]), parameter.type)
                machine.declare(parameter.name, value, parameter.type)
            else:
                value = machine.evaluate(machine, parameter.default)
                machine.declare(parameter.name, value, parameter.type)
        machine.source_name = function.source_name
        machine.execute(machine, function.body)
        result: Value = Unresolved(function.name.rpartition("::")[2])
    except Return as returned:
        result = returned.value or Unresolved(function.name)
    finally:
        machine.frames.pop()
        machine.line, machine.source_name = place
    if any(not same(value, result) for value in frame.returned):
        return Unresolved(function.name.rpartition("::")[2])
    return result


def _method_frame(machine: Machine, function: Function, this: Record | None) -> Frame:
    """The call of a function; of a method, with the names of its class."""
    found = None if this is None else class_frame(machine, CType(this.type))
    if found is None:
        return Frame(function.name, this=this)
    _, own = found
    return Frame(function.name, [dict(own.scopes[-1])], dict(own.types), this, is_instance=True)


def _bind_template(
    machine: Machine,
    frame: Frame,
    function: Function,
    template: Sequence[str],
    values: Sequence[Value],
) -> None:
    frame.is_instance = True
    given = list(template)
    deduced = deduced_types(machine, function, values)
    for parameter in function.template or ():
        text = given.pop(0) if given else None
        if text is None and parameter.default is not None and parameter.name not in deduced:
            text = text_of(parameter.default)
        text = text.replace(UNKNOWN_MARK, "") if text else text
        if parameter.type is None:
            kind = spelled_type(text) if text else deduced.get(parameter.name)
            kind = kind or CType(UNKNOWN_TYPE)
            frame.types[parameter.name] = machine.resolve(kind) or kind
        else:
            node = parse_expression(text) if text else None
            value = (
                machine.evaluate(machine, node)
                if node is not None
                else machine.unknown(parameter.name, parameter.type)
            )
            frame.scopes[0][parameter.name] = Cell(parameter.name, value, parameter.type)


def deduced_types(
    machine: Machine, function: Function, values: Sequence[Value]
) -> dict[str, CType]:
    """The arguments of a template that its call's arguments give."""
    names = {parameter.name for parameter in function.template or () if parameter.type is None}
    found: dict[str, CType] = {}
    for parameter, value in zip(function.parameters, values, strict=False):
        if parameter.type.name not in names or parameter.type.name in found:
            continue
        pointers = parameter.type.pointers
        if isinstance(value, Address) and value.cell.type is not None and pointers:
            held = machine.resolve(value.cell.type) or value.cell.type
            if held.pointers + 1 >= pointers:
                found[parameter.type.name] = CType(held.name, held.pointers + 1 - pointers)
        elif isinstance(value, Pointer) and value.element is not None and pointers:
            kind = CType(value.element.name, value.element.pointers + 1 - pointers)
            if value.element.name not in ("void", "auto"):
                found[parameter.type.name] = machine.resolve(kind) or kind
        elif isinstance(value, Number) and not pointers:
            found[parameter.type.name] = CType(value.type)
    return found


def call_lambda(machine: Machine, value: Lambda, arguments: Sequence[Node]) -> Value:
    """Call a lambda expression, in the scopes around it."""
    body = value.node.child_by_field_name("body")
    if body is None or len(machine.frames) > MAX_DEPTH:
        return Unresolved("value")
    declarator = value.node.child_by_field_name("declarator")
    parameters = declarator.child_by_field_name("parameters") if declarator is not None else None
    values = [machine.evaluate(machine, node) for node in arguments]
    outer = machine.frame
    frame = Frame(outer.function, [*value.scopes, {}], dict(outer.types), outer.this)
    machine.frames.append(frame)
    try:
        for index, node in enumerate(parameters.named_children if parameters else ()):
            name = declared(
                node.child_by_field_name("declarator"), node_type(node.child_by_field_name("type"))
            )
            if name is not None:
                held = values[index] if index < len(values) else Unresolved(name.name)
                machine.declare(name.name, held, name.type)
        machine.execute(machine, body)
    except Return as returned:
        return returned.value or Unresolved("value")
    finally:
        machine.frames.pop()
    return Unresolved("value")


def _launch(
    machine: Machine, function: Node | None, configuration: Node, arguments: Sequence[Node]
) -> Value:
    options = [machine.evaluate(machine, node) for node in configuration.named_children]
    values = [machine.evaluate(machine, node) for node in arguments]
    kernel = machine.evaluate(machine, function)
    if isinstance(kernel, FunctionName):
        record_launch(machine, kernel, options, values)
    else:
        text = text_of(function)
        record_launch(machine, FunctionName(text.partition("<")[0]), options, values)
    return number_value(0)


def record_launch(
    machine: Machine,
    kernel: FunctionName,
    options: Sequence[Value],
    values: Sequence[Value],
    cluster: Value | None = None,
) -> None:
    """Record a launch.

    Args:
        machine: The state.
        kernel: The kernel.
        options: Grid, block, shared memory and stream, as far as they are given.
        values: The arguments.
        cluster: Blocks of a cluster; None where there is no such attribute.
    """
    options, values = ([*map(machine.settled, each)] for each in (options, values))
    tensors.count_elements(machine, values)
    grid, block = (as_dim3(value) for value in (*options, Unresolved("grid"))[:2])
    shared: Value = options[2] if len(options) > 2 else number_value(0)
    function = _kernel_function(machine, kernel, len(values))
    arguments = [*map(machine.copied, values)]
    template = kernel.arguments
    if function is not None:
        defaults = (each.default for each in function.parameters[len(arguments) :])
        arguments += [machine.evaluate(machine, each) for each in defaults if each is not None]
        arguments = [
            converted(machine, value, parameter.type)
            for value, parameter in zip(arguments, function.parameters, strict=False)
        ]
        if function.template is not None:
            template = _kernel_template(machine, function, kernel.arguments or (), arguments)
    machine.time += 1
    name = function.name if function is not None else kernel.name
    passed = _as_they_are(arguments)
    machine.record(
        RecordedLaunch(
            name,
            template,
            _extents(grid),
            _extents(block),
            _named_number(machine, shared, "shared"),
            passed,
            machine.time,
            machine.line,
            machine.source_name,
            machine.frame.function,
            tuple(machine.constants.items()),
            is_explored=machine.exploring > 0,
            in_loop=machine.loops > 0,
            is_undeduced=function is not None
            and function.template is not None
            and not _is_known(template),
            cluster=None if cluster is None else _extents(as_dim3(machine.settled(cluster))),
        )
    )
    parameters = function.parameters if function is not None else ()
    for index, value in enumerate(arguments):
        is_const = index < len(parameters) and parameters[index].is_const
        allocation = allocation_of(value)
        if allocation is not None and not machine.exploring and not machine.muted:
            kind: EventKind = "launched_const" if is_const else "launched"
            allocation.events.append(Event(machine.time, kind))


def _as_they_are(values: Sequence[Value]) -> tuple[Value, ...]:
    """Arguments whose memory keeps its size, when vectors change theirs after the launch."""
    now: dict[Allocation, Allocation] = {}

    def frozen(value: Value) -> Value:
        if isinstance(value, EncodedMap):
            return replace(value, address=frozen(value.address))
        if isinstance(value, Record):
            members = value.members.items()
            cells = {name: Cell(name, frozen(cell.value), cell.type) for name, cell in members}
            return Record(value.type, cells)
        if isinstance(value, Address) and isinstance(value.cell.value, EncodedMap):
            return Address(Cell(value.cell.name, frozen(value.cell.value)))
        if isinstance(value, Pointer | Container):
            return replace(value, allocation=frozen_memory(value.allocation))
        return value

    def frozen_memory(allocation: Allocation) -> Allocation:
        if allocation not in now:
            now[allocation] = copy(allocation)  # events that follow belong to both
            elements = allocation.elements.items()
            now[allocation].elements = {
                index: Cell(cell.name, frozen(cell.value), cell.type, cell.is_element)
                if isinstance(cell.value, EncodedMap)
                else cell
                for index, cell in elements
            }
        return now[allocation]

    return tuple(map(frozen, values))


def _kernel_function(machine: Machine, kernel: FunctionName, count: int) -> Function | None:
    found = machine.program.kernels.get(kernel.name.rpartition("::")[2], [])
    fitting = [
        function
        for function in found
        if sum(p.default is None for p in function.parameters) <= count <= len(function.parameters)
    ]
    return next(iter(fitting), None)


def _kernel_template(
    machine: Machine, kernel: Function, given: Sequence[str], values: Sequence[Value]
) -> tuple[str, ...] | None:
    """The arguments of a kernel's template: given, deduced, or its defaults; None if one lacks."""
    parameters: tuple[TemplateParameter, ...] = kernel.template or ()
    texts = list(given)
    deduced = deduced_types(machine, kernel, values)
    for index, (text, parameter) in enumerate(zip(texts, parameters, strict=False)):
        if (
            parameter.type is not None
            and parameter.type.name in machine.program.enumerations
            and text.lstrip("-").isdecimal()
        ):
            texts[index] = f"{parameter.type.name}({text})"  # an enum class takes no number
    for parameter in parameters[len(texts) :]:
        if parameter.type is None and parameter.name in deduced:
            kind = deduced[parameter.name]
            texts.append(written_type(kind))
        elif parameter.default is None:
            return None
        else:
            break
    return tuple(texts)


def _is_known(template: Sequence[str] | None) -> bool:
    """Whether the arguments of a template are types that are known, and numbers."""
    return template is not None and not any(
        UNKNOWN_TYPE in re.findall(r"\w+", text) for text in template
    )


def _extents(value: Record) -> tuple[Value, Value, Value]:
    x, y, z = (value.member(axis).value for axis in ("x", "y", "z"))
    return x, y, z


def _named_number(machine: Machine, value: Value, name: str) -> Value:
    return as_number(machine, value, name) or Unresolved(name)


def as_dim3(value: Value) -> Record:
    """The extents that a value in `<<<…>>>` stands for."""
    if isinstance(value, Record):
        return value
    if isinstance(value, Pointer) and value.allocation.elements:  # {x, y}
        cells = value.allocation.elements
        listed = [formula_of(cells[index].value) for index in sorted(cells)]
        if all(listed):
            return dim3(*(each for each in listed[:3] if each is not None))
    if isinstance(value, Number):
        extents = dim3(number(1))
        extents.members["x"].value = value
        return extents
    name = value.name if isinstance(value, Unresolved) else "blocks"
    extents = dim3(number(1))
    extents.members["x"].value = Unresolved(name)
    return extents


def is_constructed(machine: Machine, kind: CType) -> bool:
    """Whether a name is that of a type that `construct` makes."""
    base = kind.name.partition("<")[0].rpartition("::")[2]
    return (
        base in DIM3_TYPES
        or base in CONTAINERS
        or base == device_queries.PROPERTIES_TYPE
        or _has_structure(machine, kind)
        or machine.holds_number(kind)
    )


def _has_structure(machine: Machine, kind: CType) -> bool:
    """Whether a type is a structure of the program."""
    base = split_template(kind.name)[0].rpartition("::")[2]
    return not kind.pointers and (
        kind.name in machine.program.structures or base in machine.program.structures
    )


def construct(
    machine: Machine, kind: CType, arguments: Sequence[Node], type_node: Node | None = None
) -> Value:
    """An object of a type, made with a constructor's arguments."""
    base = kind.name.partition("<")[0].rpartition("::")[2]
    resolved = machine.resolve(kind) or kind
    if base in DIM3_TYPES or resolved.name in DIM3_TYPES:
        numbers = [as_number(machine, machine.evaluate(machine, node)) for node in arguments]
        if len(arguments) == 1 and isinstance(
            value := machine.evaluate(machine, arguments[0]), Record
        ):
            return machine.copied(value)
        extents = dim3(number(1))
        for axis, extent in zip(("x", "y", "z"), numbers, strict=False):
            if extent is not None:
                extents.members[axis].value = converted(machine, extent, CType("uint"))
        return extents
    if base in CONTAINERS:
        return containers.construct(machine, base, kind, arguments, type_node)
    if base == device_queries.PROPERTIES_TYPE:
        return device_queries.device_properties(machine)
    if _has_structure(machine, resolved):
        return _record(machine, resolved, arguments)
    if arguments:
        return cast(machine, machine.evaluate(machine, arguments[0]), kind)
    return number_value(0, kind.name)


def _record(machine: Machine, kind: CType, arguments: Sequence[Node]) -> Record:
    name = kind.name
    made = Record(name)
    with inside(machine, kind) as body:
        for found, default in members(body) if body is not None else ():
            held = machine.resolve(found.type) or found.type
            cell = Cell(found.name, Unresolved(found.name), held)
            if default is not None:
                cell.value = converted(machine, machine.evaluate(machine, default), held)
            elif not held.pointers and held.name == "dim3":
                cell.value = dim3(number(1))
            elif not held.pointers and held.name == "CUtensorMap" and found.extents:
                cell.value = Pointer(Allocation(found.name, None), element=held)
            made.members[found.name] = cell
    cells = list(made.members.values())
    last = split_template(name)[0].rpartition("::")[2]
    constructor = _overload(machine, last, len(arguments), made)
    if (
        constructor is not None
        and _is_method(constructor, made)
        and (len(constructor.parameters) >= len(arguments))
    ):
        values = [machine.evaluate(machine, node) for node in arguments]
        _construct(machine, constructor, made, values)
        return made
    for index, node in enumerate(arguments):
        if node.type == "initializer_pair":  # .name = value
            member = text_of(node.child_by_field_name("designator")).strip(". ")
            node = node.child_by_field_name("value") or node
            cell = made.member(member)
        elif index < len(cells):
            cell = cells[index]
        else:
            break
        cell.value = initialized(machine, cell.type or CType(""), node)
    return made


def initialized(machine: Machine, kind: CType, node: Node) -> Value:
    """The value of an initializer, which may be a list of members."""
    resolved = machine.resolve(kind) or kind
    is_list = node.type == "initializer_list"
    if is_list and not resolved.pointers and is_constructed(machine, resolved):
        return construct(machine, resolved, list(node.named_children))
    return converted(machine, machine.evaluate(machine, node), kind)


def _construct(
    machine: Machine, constructor: Function, made: Record, values: Sequence[Value]
) -> None:
    """Execute a constructor with its member initializers."""
    listed = next(
        (each for each in constructor.node.children if each.type == "field_initializer_list"), None
    )
    frame = _method_frame(machine, constructor, made)
    machine.frames.append(frame)
    try:
        for parameter, value in zip(constructor.parameters, values, strict=False):
            machine.declare(
                parameter.name, converted(machine, value, parameter.type), parameter.type
            )
        for each in listed.named_children if listed is not None else ():
            if each.type != "field_initializer" or len(each.named_children) < 2:
                continue
            cell = made.member(text_of(each.named_children[0]))
            given = each.named_children[1].named_children
            if isinstance(cell.value, Container) or (
                cell.type is not None and is_constructed(machine, cell.type)
            ):
                cell.value = construct(machine, cell.type or CType(""), given)
            elif given:
                cell.value = machine.named(
                    converted(machine, machine.evaluate(machine, given[0]), cell.type), cell
                )
    finally:
        machine.frames.pop()
    enter(machine, constructor, values, this=made)


def _method(machine: Machine, function: Node, arguments: Sequence[Node]) -> Value:
    """Call a method of a vector, a structure of the program, or something unknown."""
    method = text_of(function.child_by_field_name("field")).partition("<")[0]
    argument = function.child_by_field_name("argument")
    value = machine.evaluate(machine, argument)
    if isinstance(value, Address):
        value = value.cell.value
    if isinstance(value, Tensor):
        template = text_of(function.child_by_field_name("field")).partition("<")[2]
        values = [machine.evaluate(machine, node) for node in arguments]
        return tensors.call_method(machine, value, method, template.rpartition(">")[0], values)
    if isinstance(value, Container):
        return containers.call_method(machine, value, method, arguments)
    if isinstance(value, Record) and method in machine.program.functions:
        return call_function(machine, method, None, arguments, this=value)
    if isinstance(value, Pointer) and method == "get":
        return value
    if method in machine.program.functions and method in machine.program.launching:
        return call_function(machine, method, None, arguments)
    return unknown_call(machine, method, arguments)


def new(machine: Machine, node: Node) -> Value:
    """`new float[n]`."""
    kind = machine.resolve(node_type(node.child_by_field_name("type")))
    declarator = node.child_by_field_name("declarator")
    if declarator is None:
        arguments = node.child_by_field_name("arguments")
        if kind is not None and _has_structure(machine, kind):
            listed = list(arguments.named_children) if arguments is not None else []
            return Address(Cell("object", construct(machine, kind, listed), kind))
        count: Number | None = number_value(1)
    else:
        length = declarator.child_by_field_name("length")
        count = as_number(machine, machine.evaluate(machine, length), "size")
    size = size_of(machine, kind) if kind is not None else None
    nbytes = None
    if count is not None and count.divisor is None and size is not None:
        nbytes = count.formula * number(size)
    return Pointer(Allocation("", nbytes), number(0), kind)
