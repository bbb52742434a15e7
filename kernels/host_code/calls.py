"""Calls in host code: kernels, functions of the file, macros, constructors, and CUDA's runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.kernels.host_code import runtime
from memlab.kernels.host_code.arithmetic import as_number, cast, converted, number_value
from memlab.kernels.host_code.formulas import number
from memlab.kernels.host_code.machine import (
    MAX_DEPTH,
    Frame,
    Machine,
    RecordedLaunch,
    Return,
    allocation_of,
    formula_of,
    same,
)
from memlab.kernels.host_code.places import cell_of
from memlab.kernels.host_code.program import (
    Function,
    TemplateParameter,
    declared,
    descendants,
    node_type,
    parse_expression,
    parse_statements,
    spelled_type,
    text_of,
)
from memlab.kernels.host_code.values import (
    Address,
    Allocation,
    Cell,
    Container,
    CType,
    FunctionName,
    Lambda,
    Number,
    Pointer,
    Record,
    Unresolved,
    Value,
    copied,
    dim3,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from memlab.kernels.host_code.preprocessor import Macro

CASTS = frozenset({"static_cast", "reinterpret_cast", "const_cast"})
DIM3_TYPES = frozenset({"dim3", "uint3"})
CONTAINERS = {"vector": False, "host_vector": False, "device_vector": True}
"""The vectors whose sizes are followed, by their last name; whether they are on the device."""
UNKNOWN_MARK = "?"
"""Stands before the name of an unknown number in an argument of a template."""


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
    name, template = _called_name(machine, function)
    last = name.rpartition("::")[2]
    if last in CASTS and template is not None:
        kind = spelled_type(template[0]) if template else None
        value = machine.evaluate(machine, arguments[0]) if arguments else Unresolved("")
        return value if kind is None else cast(machine, value, kind)
    macro = machine.program.macros.get(name)
    if macro is not None and macro.parameters is not None:
        return _expand(machine, macro, arguments)
    cell = machine.find(name)
    if cell is not None:
        if isinstance(cell.value, Lambda):
            return call_lambda(machine, cell.value, arguments)
        if isinstance(cell.value, FunctionName):
            name, template = cell.value.name, cell.value.arguments or template
            last = name.rpartition("::")[2]
    if last in machine.program.functions:
        return call_function(machine, last, template, arguments, name)
    handler = runtime.HANDLERS.get(last)
    if handler is not None:
        return handler(machine, arguments, template)
    kind = node_type(function) if function.type == "primitive_type" else CType(name)
    if is_constructed(machine, kind) or function.type == "primitive_type":
        return construct(machine, kind, arguments, function)
    return unknown_call(machine, last, arguments)


def unknown_call(machine: Machine, name: str, arguments: Sequence[Node]) -> Value:
    """A call of an unknown function: it may change what it gets pointers to."""
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
                return (
                    given.name + " " * bool(given.pointers) + "*" * (given.pointers + kind.pointers)
                )
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


def _expand(machine: Machine, macro: Macro, arguments: Sequence[Node]) -> Value:
    """The value of a macro with arguments."""
    import re

    if len(machine.frames) > MAX_DEPTH:
        return Unresolved("value")
    parameters = [name for name in macro.parameters or () if name]
    given = [text_of(argument) for argument in arguments]
    values = dict(zip(parameters, given, strict=False))
    if parameters and parameters[-1].endswith("..."):
        values["__VA_ARGS__"] = ", ".join(given[len(parameters) - 1 :])
    text = re.sub(
        r"\b[A-Za-z_]\w*\b", lambda match: values.get(match[0], match[0]), macro.text
    ).replace("##", "")
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
    last: str,
    template: Sequence[str] | None,
    arguments: Sequence[Node],
    name: str = "",
    this: Record | None = None,
) -> Value:
    """Call a function of the program."""
    function = _overload(machine, last, len(arguments), this)
    if function is None or len(machine.frames) > MAX_DEPTH:
        return unknown_call(machine, last, arguments)
    values: list[Value] = []
    cells: list[Cell | None] = []
    for index, node in enumerate(arguments):
        parameter = function.parameters[index] if index < len(function.parameters) else None
        values.append(machine.evaluate(machine, node))
        is_reference = parameter is not None and parameter.is_reference
        cells.append(cell_of(machine, node) if is_reference else None)
    return enter(machine, function, values, cells, template, this)


def _overload(machine: Machine, last: str, count: int, this: Record | None) -> Function | None:
    found = [
        function
        for function in machine.program.functions.get(last, ())
        if this is None or function.owner == this.type
    ]
    fitting = [
        function
        for function in found
        if sum(p.default is None for p in function.parameters) <= count <= len(function.parameters)
    ]
    return next(iter(fitting or found), None)


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
    frame = Frame(function.name, this=this)
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
                value = converted(machine, copied(values[index]), parameter.type)
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


def _bind_template(
    machine: Machine,
    frame: Frame,
    function: Function,
    template: Sequence[str],
    values: Sequence[Value],
) -> None:
    given = list(template)
    deduced = deduced_types(machine, function, values)
    for parameter in function.template or ():
        text = given.pop(0) if given else None
        if text is None and parameter.default is not None and parameter.name not in deduced:
            text = text_of(parameter.default)
        text = text.replace(UNKNOWN_MARK, "") if text else text
        if parameter.type is None:
            kind = spelled_type(text) if text else deduced.get(parameter.name)
            if kind is not None:
                frame.types[parameter.name] = machine.resolve(kind) or kind
        elif text is not None:
            node = parse_expression(text)
            value = machine.evaluate(machine, node) if node is not None else Unresolved(text)
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
    """Call a lambda expression, in the scopes of its caller."""
    body = value.node.child_by_field_name("body")
    if body is None or len(machine.frames) > MAX_DEPTH:
        return Unresolved("value")
    declarator = value.node.child_by_field_name("declarator")
    parameters = declarator.child_by_field_name("parameters") if declarator is not None else None
    values = [machine.evaluate(machine, node) for node in arguments]
    scopes = [scope for frame in machine.frames for scope in frame.scopes]
    frame = Frame(
        machine.frame.function, [*scopes, {}], dict(machine.frame.types), machine.frame.this
    )
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
    machine: Machine, kernel: FunctionName, options: Sequence[Value], values: Sequence[Value]
) -> None:
    """Record a launch.

    Args:
        machine: The state.
        kernel: The kernel.
        options: Grid, block, shared memory and stream, as far as they are given.
        values: The arguments.
    """
    grid, block = (as_dim3(value) for value in (*options, Unresolved("grid"))[:2])
    shared: Value = options[2] if len(options) > 2 else number_value(0)
    function = _kernel_function(machine, kernel, len(values))
    arguments = [*map(_argument, values)]
    template = kernel.arguments
    if function is not None:
        arguments = [
            converted(machine, value, parameter.type)
            for value, parameter in zip(arguments, function.parameters, strict=False)
        ]
        if function.template is not None:
            template = _kernel_template(machine, function, kernel.arguments or (), arguments)
    machine.time += 1
    machine.launches.append(
        RecordedLaunch(
            function.name if function is not None else kernel.name,
            template,
            _extents(grid),
            _extents(block),
            _named_number(machine, shared, "shared"),
            tuple(arguments),
            machine.time,
            machine.line,
            machine.source_name,
            machine.frame.function,
            tuple(machine.constants),
            machine.exploring > 0,
            machine.loops > 0,
            template is None and function is not None and function.template is not None,
        )
    )
    parameters = function.parameters if function is not None else ()
    for index, value in enumerate(arguments):
        is_const = index < len(parameters) and _is_const_pointer(function, index)
        allocation = allocation_of(value)
        if allocation is not None and not machine.exploring:
            allocation.events.append((machine.time, "launched_const" if is_const else "launched"))


def _is_const_pointer(function: Function | None, index: int) -> bool:
    if function is None:
        return False
    declarator = next(each for each in descendants(function.node) if each.type == "parameter_list")
    listed = [
        child
        for child in declarator.named_children
        if child.type in ("parameter_declaration", "optional_parameter_declaration")
    ]
    text = text_of(listed[index]) if index < len(listed) else ""
    return "const" in text.partition("*")[0].split()


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
    texts = list(given)
    deduced = deduced_types(machine, kernel, values)
    parameters: tuple[TemplateParameter, ...] = kernel.template or ()
    for parameter in parameters[len(texts) :]:
        if parameter.type is None and parameter.name in deduced:
            kind = deduced[parameter.name]
            texts.append(kind.name + "*" * kind.pointers)
        elif parameter.default is None:
            return None
        else:
            break
    return tuple(texts)


def _argument(value: Value) -> Value:
    if isinstance(value, Address) and isinstance(value.cell.value, Record | Container):
        return value
    return value.copy() if isinstance(value, Record) else value


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
        or kind.name in machine.program.structures
        or machine.holds_number(kind)
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
            return value.copy()
        extents = dim3(number(1))
        for axis, extent in zip(("x", "y", "z"), numbers, strict=False):
            if extent is not None:
                extents.members[axis].value = converted(machine, extent, CType("uint"))
        return extents
    if base in CONTAINERS:
        return _container(machine, base, kind, arguments, type_node)
    if resolved.name in machine.program.structures:
        return _record(machine, resolved.name, arguments)
    if arguments:
        return cast(machine, machine.evaluate(machine, arguments[0]), kind)
    return number_value(0, kind.name)


def _container(
    machine: Machine, base: str, kind: CType, arguments: Sequence[Node], type_node: Node | None
) -> Value:
    node = (
        next(
            (each for each in descendants(type_node) if each.type == "template_argument_list"), None
        )
        if type_node is not None
        else None
    )
    element_node = next(iter(node.named_children), None) if node is not None else None
    if element_node is not None:
        element = node_type(element_node)
    else:
        inside = kind.name.partition("<")[2].rpartition(">")[0].partition(",")[0]
        element = spelled_type(inside) or CType("")
    element = machine.resolve(element) or element
    made = Container(Allocation("", number(0), CONTAINERS[base]), element, CONTAINERS[base])
    if not arguments:
        return made
    first = machine.evaluate(machine, arguments[0])
    if isinstance(first, Container):
        machine.event(first, "read")
        made.allocation.nbytes = first.allocation.nbytes
        machine.event(made, "filled")
        return made
    if arguments[0].type == "initializer_list":
        resize(machine, made, number_value(len(arguments[0].named_children)))
        return made
    if isinstance(first, Pointer):  # (first, last)
        made.allocation.nbytes = first.allocation.nbytes
        machine.event(made, "filled")
        return made
    resize(machine, made, as_number(machine, first, "size"))
    machine.event(made, "zeroed" if len(arguments) == 1 else "filled")
    return made


def resize(machine: Machine, container: Container, count: Number | None) -> None:
    """Give a vector a number of elements."""
    size = machine.program.size_of(container.element)
    known = count is not None and count.divisor is None and size is not None
    container.allocation.nbytes = (
        count.formula * number(size) if known and count is not None and size is not None else None
    )


def _record(machine: Machine, name: str, arguments: Sequence[Node]) -> Record:
    made = Record(name)
    members: list[Cell] = []
    for member in machine.program.structures[name].named_children:
        if member.type != "field_declaration":
            continue
        base = node_type(member.child_by_field_name("type"))
        for declarator in member.children_by_field_name("declarator"):
            found = declared(declarator, base)
            if found is None or found.arguments is not None:
                continue
            cell = Cell(found.name, Unresolved(found.name), found.type)
            default = member.child_by_field_name("default_value")
            if default is not None:
                cell.value = converted(machine, machine.evaluate(machine, default), found.type)
            made.members[found.name] = cell
            members.append(cell)
    constructor = _overload(machine, name, len(arguments), made)
    if (
        constructor is not None
        and constructor.owner == name
        and (len(constructor.parameters) >= len(arguments))
    ):
        values = [machine.evaluate(machine, node) for node in arguments]
        _construct(machine, constructor, made, values)
    else:
        for cell, node in zip(members, arguments, strict=False):
            cell.value = converted(machine, machine.evaluate(machine, node), cell.type)
    return made


def _construct(
    machine: Machine, constructor: Function, made: Record, values: Sequence[Value]
) -> None:
    """Execute a constructor with its member initializers."""
    listed = next(
        (each for each in constructor.node.children if each.type == "field_initializer_list"), None
    )
    frame = Frame(constructor.name, this=made)
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
    if isinstance(value, Container):
        return _container_method(machine, value, method, arguments)
    if isinstance(value, Record) and method in machine.program.functions:
        return call_function(machine, method, None, arguments, this=value)
    if isinstance(value, Pointer) and method == "get":
        return value
    if method in machine.program.functions and method in machine.program.launching:
        return call_function(machine, method, None, arguments)
    return unknown_call(machine, method, arguments)


def _container_method(
    machine: Machine, container: Container, method: str, arguments: Sequence[Node]
) -> Value:
    allocation, element = container.allocation, container.element
    if method in ("data", "begin", "cbegin"):
        return Pointer(allocation, number(0), element)
    if method in ("end", "cend") and allocation.nbytes is not None:
        return Pointer(allocation, allocation.nbytes, element)
    if method == "size":
        size = machine.program.size_of(element)
        if allocation.nbytes is not None and size is not None:
            from fractions import Fraction

            return Number(allocation.nbytes.scaled(Fraction(1, size)), "size_t")
        return Unresolved("size")
    if method in ("resize", "assign") and arguments:
        value = as_number(machine, machine.evaluate(machine, arguments[0]), "size")
        resize(machine, container, value)
        return Unresolved("")
    if method in ("push_back", "emplace_back"):
        allocation.nbytes = None
    return unknown_call(machine, method, arguments)


def new(machine: Machine, node: Node) -> Value:
    """`new float[n]`."""
    kind = machine.resolve(node_type(node.child_by_field_name("type")))
    declarator = node.child_by_field_name("declarator")
    if declarator is None:
        arguments = node.child_by_field_name("arguments")
        if kind is not None and kind.name in machine.program.structures:
            listed = list(arguments.named_children) if arguments is not None else []
            return Address(Cell("object", construct(machine, kind, listed), kind))
        count: Number | None = number_value(1)
    else:
        length = declarator.child_by_field_name("length")
        count = as_number(machine, machine.evaluate(machine, length), "size")
    size = machine.program.size_of(kind) if kind is not None else None
    nbytes = None
    if count is not None and count.divisor is None and size is not None:
        nbytes = count.formula * number(size)
    return Pointer(Allocation("", nbytes), number(0), kind)
