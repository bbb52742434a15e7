"""Statements of host code, executed as the program without arguments would.

Where a condition is not known, both branches are executed, and what they disagree about becomes
unknown. A branch that is known not to be taken is explored if it launches a kernel: its launches
are found, and its effects taken back.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from memlab.kernels.host_code import calls
from memlab.kernels.host_code.arithmetic import as_number, combine, converted, number_value
from memlab.kernels.host_code.contents import listed_content
from memlab.kernels.host_code.formulas import Formula, FormulaError, number
from memlab.kernels.host_code.long_loops import leave
from memlab.kernels.host_code.machine import (
    Break,
    Continue,
    ControlFlow,
    Exit,
    Machine,
    Return,
    allocation_of,
    same,
    truth_of,
)
from memlab.kernels.host_code.places import cell_of
from memlab.kernels.host_code.program import (
    declared,
    descendants,
    node_type,
    parse_expression,
    structure_body,
    text_of,
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
    Record,
    Unresolved,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from memlab.kernels.host_code.machine import RecordedLaunch
    from memlab.kernels.host_code.program import Declared

MAX_PASSES = 64
"""The most passes of a loop that are executed."""
MAX_LOOP_STEPS = 4000
"""The nodes that are evaluated in a loop before it counts as a long one."""
MIN_LOOP_STEPS = 250
"""The same for a loop in others: each loop around it divides the nodes by four, down to this."""
MAX_LAUNCHING_STEPS = 60_000
"""Up to so many nodes, those of inner loops without launches do not count in a loop with some."""
_LAUNCHING_FACTOR = 4  # of nodes, for a loop with launches
MAX_LONG_PASSES = 4
"""The most passes of a long loop; of one three times as long, one pass."""


def execute(machine: Machine, node: Node) -> None:
    """Execute a statement.

    Raises:
        ControlFlow: The statements after it are not executed.
    """
    machine.step()
    if node.start_point.row:  # the text of a macro has one line
        machine.line = node.start_point.row + 1
    handler = _HANDLERS.get(node.type)
    if handler is not None:
        handler(machine, node)
    elif node.type.endswith("expression"):
        machine.evaluate(machine, node)
    else:
        for child in node.named_children:
            execute(machine, child)


def _compound(machine: Machine, node: Node) -> None:
    with machine.scope():
        for child in node.named_children:
            execute(machine, child)


def _expression(machine: Machine, node: Node) -> None:
    for child in node.named_children:
        machine.evaluate(machine, child)


def declaration(machine: Machine, node: Node) -> None:
    """Declare variables."""
    type_node = node.child_by_field_name("type")
    if type_node is not None and type_node.type in _LOCAL_TYPES:
        _LOCAL_TYPES[type_node.type](machine, type_node)
    base = node_type(type_node)
    for declarator in node.children_by_field_name("declarator"):
        found = declared(declarator, base)
        if found is None:
            continue
        value_node = declarator.child_by_field_name("value")
        if value_node is None and node.type == "declaration" and declarator.type == "identifier":
            value_node = node.child_by_field_name("value")  # if (int e = f())
        target = cell_of(machine, value_node) if found.is_reference else None
        if target is not None:
            machine.frame.scopes[-1][found.name] = target
            continue
        is_static = len(machine.frames) > 1 and any(
            text_of(child) == "static" for child in node.children
        )
        if is_static and declarator in machine.statics:
            machine.frame.scopes[-1][found.name] = machine.statics[declarator]
            continue
        try:
            value = _initial_value(machine, found, type_node, value_node)
        except FormulaError:
            value = Unresolved(found.name)
        kind = found.type
        if found.extents:  # the type of an array is that of its elements
            machine.declare(found.name, value, None)
            continue
        if isinstance(value, Number if kind.name == "auto" else Record) and not kind.pointers:
            kind = CType(value.type)
        cell = machine.declare(found.name, converted(machine, machine.copied(value), kind), kind)
        if is_static:
            machine.statics[declarator] = cell


def _initial_value(
    machine: Machine, found: Declared, type_node: Node | None, value_node: Node | None
) -> Value:
    kind = machine.resolve(found.type) or found.type
    if found.extents:
        return _array(machine, found, kind, value_node)
    is_object = not kind.pointers and calls.is_constructed(machine, kind)
    is_number = machine.holds_number(kind)
    if found.arguments is not None:  # the grammar takes `v(n)` for a function
        snippet = parse_expression(f"memlab_arguments{text_of(found.arguments)}")
        listed = snippet.child_by_field_name("arguments") if snippet is not None else None
        given = list(listed.named_children) if listed is not None else []
        return calls.construct(machine, found.type, given, type_node)
    if value_node is None:
        if is_object and not is_number:
            return calls.construct(machine, found.type, [], type_node)
        return Unresolved(found.name)
    if value_node.type in ("argument_list", "initializer_list"):
        given = list(value_node.named_children)
        if is_object and not is_number:
            return calls.construct(machine, found.type, given, type_node)
        value = machine.evaluate(machine, given[0]) if given else number_value(0)
        is_structure = not is_number and not kind.pointers and isinstance(value, Number)
        return Record(kind.name) if is_structure else value  # a structure of a library
    value = machine.evaluate(machine, value_node)
    if kind.name in calls.DIM3_TYPES and not kind.pointers:
        return calls.as_dim3(value)
    return value


def _array(machine: Machine, found: Declared, kind: CType, value_node: Node | None) -> Value:
    """An array on the stack."""
    count: Formula | None = number(1)
    inner: list[int | None] = []
    for extent in found.extents[1:]:
        value = as_number(machine, machine.evaluate(machine, extent))
        known = None if value is None or value.divisor is not None else value.formula
        inner.append(None if known is None else known.whole)
        count = None if count is None or known is None else count * known
    extents = tuple(each for each in inner if each is not None)
    if len(extents) < len(inner):
        extents = ()
    cells: dict[int, Cell] = {}
    if value_node is not None and value_node.type == "initializer_list":
        _fill_cells(
            machine, cells, found.name, CType(kind.name, kind.pointers), extents, value_node
        )
    if found.extents[0] is not None:
        value = as_number(machine, machine.evaluate(machine, found.extents[0]))
        is_known = value is not None and value.divisor is None and count is not None
        count = count * value.formula if is_known and count and value else None
    elif value_node is None or count is None or not cells:
        count = None
    else:
        row = math.prod(extents)
        count = number(-(-(max(cells) + 1) // row) * row)
    size = size_of(machine, kind)
    nbytes = None if count is None or size is None else count * number(size)
    is_list = len(cells) == (None if count is None else count.whole)
    allocation = Allocation(found.name, nbytes, elements=cells, is_list=is_list)
    if is_list:
        allocation.content = listed_content([cells[index] for index in sorted(cells)])
    elif value_node is not None and all(truth_of(cell.value) is False for cell in cells.values()):
        allocation.content = ZEROS  # {} and {0}
    return Pointer(allocation, number(0), replace(kind, extents=extents))


def _fill_cells(
    machine: Machine,
    cells: dict[int, Cell],
    name: str,
    kind: CType,
    extents: tuple[int, ...],
    listed: Node,
    start: int = 0,
) -> None:
    """Put the values of an initializer list into the elements of an array, row by row."""
    row, place = math.prod(extents), start
    for child in listed.named_children:
        if child.type == "comment":
            continue
        if extents and child.type == "initializer_list":
            _fill_cells(machine, cells, name, kind, extents[1:], child, place)
            place += row
        else:
            element = calls.initialized(machine, kind, child)
            cells[place] = Cell(f"{name}_{place}", element, kind, is_element=True)
            place += 1


def _type_definition(machine: Machine, node: Node) -> None:
    if node.type == "alias_declaration":
        name = text_of(node.child_by_field_name("name"))
        machine.frame.types[name] = _resolved(machine, node_type(node.child_by_field_name("type")))
        return
    type_node = node.child_by_field_name("type")
    base, body = node_type(type_node), structure_body(type_node)
    if type_node is not None and type_node.type in _LOCAL_TYPES:
        _LOCAL_TYPES[type_node.type](machine, type_node)
    for declarator in node.children_by_field_name("declarator"):
        alias = declared(declarator, base)
        if alias is None:
            continue
        if body is not None and not base.name:
            machine.program.structures[alias.name] = body
        else:
            machine.frame.types[alias.name] = _resolved(machine, alias.type)


def _resolved(machine: Machine, kind: CType) -> CType:
    return machine.resolve(kind) or kind


def _condition(machine: Machine, node: Node | None) -> Value:
    """The value of a condition, which may declare a variable."""
    inner = node.child_by_field_name("value") if node is not None else None
    if inner is not None and inner.type == "declaration":
        declaration(machine, inner)
        name = declared(inner.child_by_field_name("declarator"), CType(""))
        cell = machine.find(name.name) if name is not None else None
        return cell.value if cell is not None else Unresolved("condition")
    return machine.evaluate(machine, inner or node)


def _if(machine: Machine, node: Node) -> None:
    condition = node.child_by_field_name("condition")
    branches = [node.child_by_field_name("consequence"), node.child_by_field_name("alternative")]
    truth = truth_of(_condition(machine, condition))
    if any(child.type == "constexpr" for child in node.children) and truth is None:
        truth = True
    names = {text_of(each) for each in descendants(condition)} if condition is not None else set()
    if truth is not None and "argc" in names and not machine.has_arguments:
        taken, other = branches if truth else branches[::-1]
        mark = len(machine.log)
        flow = _outcome(machine, taken)
        if not isinstance(flow, Return | Exit):
            _raise(flow)
            _explore(machine, other)
            return
        # Without arguments the program ends here: it is meant to be run with some.
        machine.undo(mark)
        machine.has_arguments = True
        cell = machine.find("argc")
        if cell is not None:
            machine.write(cell, Unresolved("argc"))
        truth = not truth
    if truth is not None:
        taken, other = branches if truth else branches[::-1]
        _explore(machine, other)
        if taken is not None:
            execute(machine, taken)
        return
    ends = [flow is not None for flow in _both(machine, branches)]
    if ends == [True, False]:
        calls.learn(machine, condition, False)


def _both(machine: Machine, branches: Sequence[Node | None]) -> list[ControlFlow | None]:
    """Execute branches of which one is taken, and join what they do.

    Returns:
        What ends each of them early.
    """
    outcomes = []
    for branch in branches:
        mark = len(machine.log)
        flow = _outcome(machine, branch)
        outcomes.append((flow, machine.undo(mark)))
    going_on = [changed for flow, changed in outcomes if flow is None]
    if not going_on:
        flow, changed = outcomes[0]
        machine.redo(changed)
        _raise(flow)
        return [flow]
    for flow, _ in outcomes:
        if isinstance(flow, Return) and flow.value is not None:
            machine.frame.returned.append(flow.value)
    for cell in {cell: None for changed in going_on for cell in changed.values}:
        values = [changed.values.get(cell, cell.value) for changed in going_on]
        if all(same(value, values[0]) for value in values):
            machine.write(cell, values[0])
        else:
            pointers = [value for value in values if isinstance(value, Pointer)]
            numbers = any(isinstance(value, Number) for value in values)
            machine.write(
                cell,
                machine.unknown(cell.name, cell.type) if numbers or not pointers else pointers[0],
            )
    for allocation in {each: None for changed in going_on for each in changed.sizes}:
        sizes = {changed.sizes.get(allocation, allocation.nbytes) for changed in going_on}
        machine.resize(allocation, sizes.pop() if len(sizes) == 1 else None)
    return [flow for flow, _ in outcomes]


def _outcome(machine: Machine, node: Node | None) -> ControlFlow | None:
    """Execute a branch; what ends it early is returned."""
    if node is None:
        return None
    try:
        execute(machine, node)
    except ControlFlow as flow:
        return flow
    return None


def _raise(flow: ControlFlow | None) -> None:
    if flow is not None:
        raise flow


def _explore(machine: Machine, node: Node | None) -> None:
    """Find the launches in what is not executed.

    A branch of a loop or of a function is explored again for other arguments, until none of its
    launches is recorded any more: what the program does make is still to be reached within the
    limit of steps.
    """
    if node is None or machine.exploring > 2 or machine.muted or node in machine.exhausted:
        return
    if not machine.program.launches_inside(node):
        return
    mark, launches, surplus = len(machine.log), len(machine.launches), machine.surplus
    machine.exploring += 1
    _outcome(machine, node)
    machine.exploring -= 1
    machine.undo(mark)
    recorded = len(machine.launches) > launches
    if machine.surplus > surplus and not recorded and not machine.frame.is_instance:
        machine.exhausted.add(node)


def _loop(machine: Machine, node: Node) -> None:
    with machine.scope():
        initializer = node.child_by_field_name("initializer")
        if initializer is not None:
            execute(machine, initializer)
        condition = node.child_by_field_name("condition")
        update = node.child_by_field_name("update")
        body = node.child_by_field_name("body")
        if body is None:
            return
        _passes(machine, condition, update, body, node.type == "do_statement")


def _passes(
    machine: Machine, condition: Node | None, update: Node | None, body: Node, body_first: bool
) -> None:
    """Execute the passes of a loop as far as they are known.

    Of a loop whose end is not known one pass is executed; the numbers that it changes are unknown
    afterwards. A pass that changes nothing, and launches what the pass before launched, is the last
    that is executed.
    """
    mark, start, start_idle = len(machine.log), machine.steps, machine.idle_steps
    launches_inside = machine.program.launches_inside(body)
    before: list[RecordedLaunch] = []

    def any_pass() -> ControlFlow | None:
        if condition is not None:
            _condition(machine, condition)
        flow = _outcome(machine, body)
        if update is not None:
            machine.evaluate(machine, update)
        return flow

    with machine.loop(_counters(update if update is not None else body)):
        for number_of_pass in range(MAX_PASSES):
            changes, launches = len(machine.log), len(machine.launches)
            truth: bool | None = True
            if condition is not None and not (body_first and number_of_pass == 0):
                truth = truth_of(_condition(machine, condition))
            if truth is False:
                if number_of_pass == 0:
                    _explore(machine, body)
                return
            flow = _outcome(machine, body)
            if isinstance(flow, Break):
                return
            if isinstance(flow, Return | Exit):
                if truth is not None or condition is None:
                    raise flow
                break
            launched = [replace(each, time=0) for each in machine.launches[launches:]]
            if launched and launched == before and len(machine.log) == changes:
                break
            before = launched
            if update is not None:
                machine.evaluate(machine, update)
            steps = machine.steps - start
            if not launches_inside:
                machine.idle_steps = start_idle + steps
            elif steps < MAX_LAUNCHING_STEPS:
                steps -= machine.idle_steps - start_idle
            most = max(MAX_LOOP_STEPS // 4 ** (machine.loops - 1), MIN_LOOP_STEPS)
            most *= _LAUNCHING_FACTOR if launches_inside else 1
            passes = 1 if steps > 3 * most else MAX_LONG_PASSES
            is_long = steps > most and number_of_pass + 1 >= passes
            if truth is None or is_long:
                break
        leave(machine, mark, condition, any_pass, body)


def _counters(node: Node) -> frozenset[str]:
    """The variables that `i++`, `i += 2` and the like step."""
    stepped = (
        each.child_by_field_name("argument" if each.type == "update_expression" else "left")
        for each in descendants(node)
        if each.type in ("update_expression", "assignment_expression")
    )
    return frozenset(text_of(each) for each in stepped if each is not None)


def _range_loop(machine: Machine, node: Node) -> None:
    values = machine.evaluate(machine, node.child_by_field_name("right"))
    found = declared(
        node.child_by_field_name("declarator"), node_type(node.child_by_field_name("type"))
    )
    body = node.child_by_field_name("body")
    if body is None:
        return
    cells = _listed_cells(values)
    with machine.scope():
        allocation = allocation_of(values)
        if found is not None and found.is_reference and allocation is not None:
            machine.frame.elements[found.name] = allocation
        if not cells:
            if found is not None:
                machine.declare(found.name, Unresolved(found.name), found.type)
            _passes(machine, parse_expression("memlab_more"), None, body, False)
            return
        with machine.loop(frozenset()):
            for cell in cells:
                with machine.scope():
                    if found is not None and found.is_reference:
                        machine.frame.scopes[-1][found.name] = cell
                    elif found is not None:
                        machine.declare(found.name, machine.copied(cell.value), found.type)
                    flow = _outcome(machine, body)
                if isinstance(flow, Break):
                    break
                if isinstance(flow, Return | Exit):
                    raise flow


def _listed_cells(values: Value) -> list[Cell]:
    """The elements of a list, where all are known and few."""
    if not isinstance(values, Pointer | Container) or not values.allocation.is_list:
        return []
    elements = values.allocation.elements
    return [elements[index] for index in sorted(elements)][:MAX_PASSES]


def _switch(machine: Machine, node: Node) -> None:
    value = _condition(machine, node.child_by_field_name("condition"))
    body = node.child_by_field_name("body")
    cases = (
        [child for child in body.named_children if child.type == "case_statement"] if body else []
    )
    chosen = _matching_case(machine, value, cases)
    if chosen is None:
        _both_cases(machine, cases)
        return
    for index, case in enumerate(cases):
        if index < chosen or (index > chosen and chosen < len(cases)):
            for statement in _case_statements(case):
                _explore(machine, statement)
    try:
        for case in cases[chosen:]:
            for statement in _case_statements(case):
                execute(machine, statement)
    except Break:
        pass


def _matching_case(machine: Machine, value: Value, cases: Sequence[Node]) -> int | None:
    """The number of the case that a value takes; None if that is not known."""
    if not isinstance(value, Number) or value.formula.constant is None:
        return None
    default = len(cases)
    for index, case in enumerate(cases):
        label = case.child_by_field_name("value")
        if label is None:
            default = index
            continue
        known = machine.evaluate(machine, label)
        if not isinstance(known, Number) or known.formula.constant is None:
            return None
        if known.formula == value.formula:
            return index
    return default


def _case_statements(case: Node) -> list[Node]:
    label = case.child_by_field_name("value")
    return [child for child in case.named_children if label is None or child.id != label.id]


def _both_cases(machine: Machine, cases: Sequence[Node]) -> None:
    """Execute every case, and make unknown what any of them changes."""
    changed: dict[Cell, Value] = {}
    resized: dict[Allocation, Formula | None] = {}
    for case in cases:
        mark = len(machine.log)
        for statement in _case_statements(case):
            if _outcome(machine, statement) is not None:
                break
        changes = machine.undo(mark)
        changed.update(changes.values)
        resized.update(changes.sizes)
    for cell, value in changed.items():
        is_number = isinstance(value, Number | Unresolved)
        machine.write(cell, machine.unknown(cell.name, cell.type) if is_number else value)
    for allocation in resized:
        machine.resize(allocation, None)


def _return(machine: Machine, node: Node) -> None:
    value_node = next(iter(node.named_children), None)
    value = None if value_node is None else machine.evaluate(machine, value_node)
    raise Return(value)


def _break(machine: Machine, node: Node) -> None:
    raise Break


def _continue(machine: Machine, node: Node) -> None:
    raise Continue


def _throw(machine: Machine, node: Node) -> None:
    raise Exit


def _try(machine: Machine, node: Node) -> None:
    body = node.child_by_field_name("body")
    if body is not None:
        execute(machine, body)


def _local_type(machine: Machine, node: Node) -> None:
    """A structure that a function declares."""
    name, body = text_of(node.child_by_field_name("name")), node.child_by_field_name("body")
    if body is not None and name:
        machine.program.structures[name] = body


def _local_enumerators(machine: Machine, node: Node) -> None:
    """The enumerators that a function declares."""
    value: Value = number_value(-1)
    body = node.child_by_field_name("body")
    for each in body.named_children if body is not None else ():
        if each.type == "enumerator":
            given = each.child_by_field_name("value")
            one = number_value(1)
            value = (
                combine(machine, "+", value, one)
                if given is None
                else machine.evaluate(machine, given)
            )
            machine.declare(text_of(each.child_by_field_name("name")), value, CType("int"))


_LOCAL_TYPES = {
    "struct_specifier": _local_type,
    "class_specifier": _local_type,
    "union_specifier": _local_type,
    "enum_specifier": _local_enumerators,
}


def _nothing(machine: Machine, node: Node) -> None:
    pass


_HANDLERS = {
    "compound_statement": _compound,
    "expression_statement": _expression,
    "declaration": declaration,
    "alias_declaration": _type_definition,
    "type_definition": _type_definition,
    "if_statement": _if,
    "for_statement": _loop,
    "while_statement": _loop,
    "do_statement": _loop,
    "for_range_loop": _range_loop,
    "switch_statement": _switch,
    "return_statement": _return,
    "break_statement": _break,
    "continue_statement": _continue,
    "try_statement": _try,
    "throw_statement": _throw,
    "function_definition": _nothing,
    **_LOCAL_TYPES,
    "comment": _nothing,
    "goto_statement": _nothing,
}
