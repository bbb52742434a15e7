"""Reads the launches that the host code of a file makes."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from memlab.kernels.host_code.arithmetic import in_width, number_value
from memlab.kernels.host_code.calls import UNKNOWN_TYPE, enter, template_texts
from memlab.kernels.host_code.evaluation import evaluate
from memlab.kernels.host_code.execution import declaration, execute
from memlab.kernels.host_code.machine import (
    MAX_STEPS,
    ControlFlow,
    Machine,
    RecordedLaunch,
    StepLimit,
)
from memlab.kernels.host_code.preprocessor import preprocess
from memlab.kernels.host_code.program import Function, names_in, read_program, written_type
from memlab.kernels.host_code.structures import dependent_type
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


@dataclass(frozen=True)
class Reading:
    """What following the host code of a file tells.

    Attributes:
        launches: The launches in the order in which they are made.
        stop: How far memlab followed the program, `for 100,000 steps`, where that is not to its
            end: it may make more launches, and those that are explored. Empty at its end.
    """

    launches: tuple[RecordedLaunch, ...]
    stop: str = ""


def read_host_code(
    source: str,
    source_name: str,
    headers: Mapping[str, str],
    defines: Mapping[str, str],
    known: Mapping[str, int | Fraction] | None = None,
    device: Mapping[str, int | tuple[int, ...]] | None = None,
    blocks_per_sm: Callable[[str, int, int], int | None] | None = None,
) -> Reading:
    """Read the launches of a file: those of its `main`, then those of functions it does not call.

    A function template is called with the arguments of each of its explicit instantiations.

    Args:
        source: The file's text.
        source_name: Its name.
        headers: The texts of the user's headers, by path.
        defines: The values of macros that the compiler is given.
        known: The values of numbers that the host code does not tell, by name.
        device: The members of CUDA's `cudaDeviceProp` that are known, by name; the others are
            numbers that the host code does not tell.
        blocks_per_sm: As `Machine.blocks_per_sm`; without it, what host code asks of it is not
            told.

    Returns:
        The launches, of loops those of the first pass, and whether there may be more.
    """
    machine: Machine | None = None
    stop = ""
    try:
        program = read_program(preprocess(source, source_name, headers, defines))
        machine = Machine(
            program,
            evaluate,
            execute,
            dependent_type,
            template_texts,
            source_name=source_name,
            known=known or {},
            device=device or {},
        )
        if blocks_per_sm is not None:
            machine.blocks_per_sm = blocks_per_sm
        _define_globals(machine)
        for function in _entry_points(program):
            if function.name in machine.executed_functions:
                continue
            for template in _instantiations(machine, function) or [()]:
                _run(machine, function, template)
    except StepLimit:
        stop = f"for {MAX_STEPS:,} steps"
    except RecursionError:
        stop = f"to a nesting of {sys.getrecursionlimit():,} calls"
    launches = machine.launches if machine is not None else ()
    return Reading(
        tuple(replace(each, stop=stop) if each.is_explored else each for each in launches), stop
    )


def _define_globals(machine: Machine) -> None:
    value: Value = number_value(-1)
    for name, node, is_first in machine.program.enumerators:
        if node is not None:
            value = evaluate(machine, node)
        else:
            before = number_value(-1) if is_first else value
            constant = getattr(getattr(before, "formula", None), "constant", None)
            value = Unresolved(name)
            if constant is not None:
                value = number_value(in_width(math.trunc(constant) + 1, "long"))
        machine.globals[name] = Cell(name, value, CType("int"))
    for namespace, node in machine.program.declarations:
        machine.frame.function = f"{namespace}::" if namespace else ""
        try:
            declaration(machine, node)
        except ControlFlow:
            continue
    machine.frame.function = ""


def _entry_points(program: Program) -> list[Function]:
    """`main`, then the functions that launch kernels: callers first."""
    functions = [
        function
        for name, listed in program.functions.items()
        if name in program.launching
        for function in listed
    ]
    called: set[str] = set()
    for function in functions:
        called |= names_in(function.body) & program.launching - {_last(function)}
    mains = program.functions.get("main", [])
    outer = [each for each in functions if _last(each) not in called]
    inner = [each for each in functions if _last(each) in called]
    return list({id(each): each for each in (*mains, *outer, *inner)}.values())


def _last(function: Function) -> str:
    """A function's name without its namespaces."""
    return function.name.rpartition("::")[2]


def _instantiations(machine: Machine, function: Function) -> list[tuple[str, ...]]:
    """The template arguments with which a function is explicitly instantiated."""
    found = []
    for each in machine.program.instantiations:
        is_alike = len(each.parameters) == len(function.parameters)
        if function.template is None or each.name != _last(function) or not is_alike:
            continue
        given = list(template_texts(machine, each.template))
        deduced = {
            own.type.name: CType(other.type.name, other.type.pointers - own.type.pointers)
            for own, other in zip(function.parameters, each.parameters, strict=True)
        }
        for parameter in function.template[len(given) :]:
            if parameter.type is not None or parameter.name not in deduced:
                break
            kind = deduced[parameter.name]
            given.append(written_type(kind))
        found.append(tuple(given))
    return found


def _run(machine: Machine, function: Function, template: tuple[str, ...]) -> None:
    """Execute a function: `main` without arguments, another one with unknown arguments."""
    values: list[Value] = []
    machine.has_arguments = False
    for parameter in function.parameters:
        kind = machine.resolve(parameter.type) or parameter.type
        if any(each.name == kind.name for each in function.template or ()):
            kind = CType(UNKNOWN_TYPE, kind.pointers)
        if function.name == "main" and len(values) == 0:
            values.append(number_value(1))
        elif kind.pointers and function.name != "main":
            allocation = Allocation(parameter.name, None, True)
            values.append(Pointer(allocation, element=kind.pointee))
        elif machine.holds_number(kind) and kind.name != UNKNOWN_TYPE:
            values.append(machine.unknown(parameter.name, kind))
        else:
            values.append(Unresolved(parameter.name))
    mark = len(machine.log)
    with suppress(ControlFlow):
        enter(machine, function, values, template=template)
    machine.undo(mark)
