"""Reads the launches that the host code of a file makes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from memlab.kernels.host_code.arithmetic import number_value
from memlab.kernels.host_code.calls import enter
from memlab.kernels.host_code.evaluation import evaluate
from memlab.kernels.host_code.execution import declaration, execute
from memlab.kernels.host_code.machine import ControlFlow, Machine, RecordedLaunch, StepLimit
from memlab.kernels.host_code.preprocessor import preprocess
from memlab.kernels.host_code.program import Function, descendants, read_program
from memlab.kernels.host_code.values import (
    Allocation,
    Cell,
    CType,
    Pointer,
    Unresolved,
    Value,
)

if TYPE_CHECKING:
    from memlab.kernels.host_code.program import Program


def read_launches(
    source: str, source_name: str, headers: Mapping[str, str], defines: Mapping[str, str]
) -> tuple[RecordedLaunch, ...]:
    """Read the launches of a file: those of its `main`, then those of functions it does not call.

    Args:
        source: The file's text.
        source_name: Its name.
        headers: The texts of the user's headers, by path.
        defines: The values of macros that the compiler is given.

    Returns:
        The launches in the order in which they are made. The first pass of a loop counts.
    """
    program = read_program(preprocess(source, source_name, headers, defines))
    machine = Machine(program, evaluate, execute, source_name=source_name)
    try:
        _define_globals(machine)
        for function in _entry_points(program):
            if function.name not in machine.executed_functions:
                _run(machine, function)
    except (StepLimit, RecursionError):
        pass  # what was found so far
    return tuple(machine.launches)


def _define_globals(machine: Machine) -> None:
    value: Value = number_value(-1)
    for name, node, is_first in machine.program.enumerators:
        if node is not None:
            value = evaluate(machine, node)
        else:
            before = number_value(-1) if is_first else value
            constant = getattr(getattr(before, "formula", None), "constant", None)
            value = Unresolved(name) if constant is None else number_value(constant + 1)
        machine.globals[name] = Cell(name, value, CType("int"))
    for node in machine.program.declarations:
        try:
            declaration(machine, node)
        except ControlFlow:
            continue


def _entry_points(program: Program) -> list[Function]:
    """`main`, then the functions that launch kernels: callers first."""
    functions = [
        function
        for name, listed in program.functions.items()
        if name in program.launching
        for function in listed
    ]
    called = {
        name
        for function in functions
        for name in program.launching
        if name != function.name.rpartition("::")[2]
        and any(
            node.type in ("identifier", "field_identifier")
            and node.text is not None
            and node.text.decode(errors="replace") == name
            for node in descendants(function.body)
        )
    }
    mains = program.functions.get("main", [])
    outer = [each for each in functions if each.name.rpartition("::")[2] not in called]
    inner = [each for each in functions if each.name.rpartition("::")[2] in called]
    return list({id(each): each for each in (*mains, *outer, *inner)}.values())


def _run(machine: Machine, function: Function) -> None:
    """Execute a function: `main` without arguments, another one with unknown arguments."""
    values: list[Value] = []
    machine.has_arguments = False
    for parameter in function.parameters:
        kind = machine.resolve(parameter.type) or parameter.type
        if function.name == "main" and len(values) == 0:
            values.append(number_value(1))
        elif kind.pointers and function.name != "main":
            allocation = Allocation(parameter.name, None, True)
            values.append(Pointer(allocation, element=kind.pointee))
        elif machine.holds_number(kind):
            values.append(machine.unknown(parameter.name, kind))
        else:
            values.append(Unresolved(parameter.name))
    mark = len(machine.log)
    with suppress(ControlFlow):
        enter(machine, function, values)
    machine.undo(mark)
