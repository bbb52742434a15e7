"""Which functions of a module a call may run, and which functions may call themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from memlab.device.emulator.ptx.parser import (
    Instruction,
    Module,
    PtxFunction,
    Register,
    Symbol,
    Vector,
)


class CallGraph:
    """The calls between the functions of a module.

    An indirect call may run each function whose address the module takes, and whose results and
    parameters have the sizes of those that the call passes.
    """

    def __init__(self, module: Module) -> None:
        self._functions = module.functions
        names = {name for variable in module.variables for name in variable.symbols}
        for function in (*module.entries.values(), *module.functions.values()):
            for instruction in function.instructions:
                if not is_call(instruction):
                    names.update(o.name for o in instruction.operands if isinstance(o, Symbol))
        self._pointed_to = [name for name in module.functions if name in names]

    def targets(self, caller: PtxFunction, call: Instruction) -> Sequence[str]:
        """The functions with a body that a call of `caller` may run."""
        results, name, arguments = call_operands(call)
        if name in self._functions:
            return [name]
        if not is_indirect(call):
            return []
        declared = (*caller.variables, *caller.parameters, *caller.results)
        sizes = {variable.name: variable.size for variable in declared}
        passed = [sizes.get(name) for name in (*results, *arguments)]
        return [name for name in self._pointed_to if self._fits(name, len(results), passed)]

    def _fits(self, name: str, results: int, passed: Sequence[int | None]) -> bool:
        """Whether a function takes arguments of some sizes; None stands for any size."""
        function = self._functions[name]
        formal = [variable.size for variable in (*function.results, *function.parameters)]
        return (
            len(function.results) == results
            and len(formal) == len(passed)
            and all(size in (None, own) for size, own in zip(passed, formal, strict=True))
        )

    @cached_property
    def recursive(self) -> frozenset[str]:
        """The functions that may call themselves, also through others."""
        return frozenset(name for name, reached in self._reached.items() if name in reached)

    def may_return_to(self, name: str, caller: str) -> bool:
        """Whether a function may call the function that has called it."""
        return caller in self._reached[name]

    @cached_property
    def _reached(self) -> dict[str, frozenset[str]]:
        """The functions that each function calls, also through others."""
        direct = {
            name: frozenset(self._called_by(function)) for name, function in self._functions.items()
        }
        reached = {}
        for name, called in direct.items():
            found, new = set(called), list(called)
            while new:
                others = direct[new.pop()] - found
                found |= others
                new += others
            reached[name] = frozenset(found)
        return reached

    def _called_by(self, function: PtxFunction) -> Iterator[str]:
        for instruction in function.instructions:
            if is_call(instruction):
                yield from self.targets(function, instruction)


def is_call(instruction: Instruction) -> bool:
    """Whether an instruction calls a function."""
    return instruction.opcode.partition(".")[0] == "call"


def is_indirect(call: Instruction) -> bool:
    """Whether a call goes through a pointer in a register."""
    return isinstance(_callee(call), Register)


def _callee(call: Instruction) -> Register | Symbol:
    """The operand that names the called function or holds its address."""
    callee = call.operands[isinstance(call.operands[0], Vector)]
    assert isinstance(callee, (Register, Symbol))
    return callee


def call_operands(call: Instruction) -> tuple[list[str], str, list[str]]:
    """The results, name and arguments of `call (results), name, (arguments)`."""
    operands = list(call.operands)
    first = operands.pop(0)
    results = []
    if isinstance(first, Vector):
        results = [item.name for item in first.items if isinstance(item, (Symbol, Register))]
        first = operands.pop(0)
    items = operands[0].items if operands and isinstance(operands[0], Vector) else ()
    arguments = [item.name for item in items if isinstance(item, (Symbol, Register))]
    assert isinstance(first, (Symbol, Register))
    return results, first.name, arguments
