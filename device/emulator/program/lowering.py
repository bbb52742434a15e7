"""Flattens a kernel before it runs: inlines calls and expands macros.

A called function is copied to each call site, with unique names for its registers, labels and local
variables. So the machine needs no stack, and lanes reconverge as in any other code. The formal
parameters take the names of the caller's `.param` variables, which become the state space
`param::func`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from memlab.device.emulator.isa import macros, mbarrier, table, tensor, textures
from memlab.device.emulator.isa.asynchronous import bulk_copies, tensor_copies, warpgroup
from memlab.device.emulator.isa.unsupported import unsupported_hint
from memlab.device.emulator.program.call_graph import CallGraph, call_operands, is_indirect
from memlab.device.emulator.program.call_stack import with_call_stack
from memlab.device.emulator.ptx.parser import (
    Address,
    DestinationPair,
    Immediate,
    Instruction,
    Module,
    PtxError,
    PtxFunction,
    Register,
    Symbol,
    Variable,
    function_address,
    registers_of,
    rename_operands,
)

MAX_CALL_DEPTH = 64
"""Depth of nested calls. Deeper nesting than people write comes from unrolled recursion."""
MAX_INLINED_INSTRUCTIONS = 250_000
"""Instructions copied for calls. Where functions call others twice each, the number doubles with
every level. Copying so many takes some seconds."""

_LAUNCHES = re.compile(r"(__)?cuda(CDP2)?(LaunchDevice|GetParameterBuffer)")
"""The functions of the device's runtime that launch kernels."""
_OTHER_REGISTERS = {
    **mbarrier.REGISTERS,
    **bulk_copies.REGISTERS,
    **textures.REGISTERS,
    **warpgroup.REGISTERS,
    **tensor_copies.REGISTERS,
}
"""The registers of macros that few kernels use, with their types."""
_MACRO_REGISTERS = {*macros.REGISTERS, *_OTHER_REGISTERS}
_LONGEST_EXCERPT = 100  # characters of a source line in a message


@dataclass
class _FlatBody:
    """A function body under construction."""

    registers: dict[str, str]
    variables: list[Variable]
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


def lower(
    module: Module,
    entry: PtxFunction,
    source: Sequence[str],
    in_cluster: bool,
    older_sums: bool,
) -> PtxFunction:
    """The kernel with calls inlined and macros expanded.

    Args:
        module: The module, with the functions that are called.
        entry: The kernel.
        source: The CUDA source's lines, for messages.
        in_cluster: Whether its launch has clusters.
        older_sums: Whether tensor cores sum as before Hopper.

    Raises:
        PtxError: An opcode is not in the table, or a called function has no body here: the message
            names the PTX line and the CUDA source line.
    """
    lowering = _Lowering(module, source, in_cluster, older_sums)
    flat = lowering.body(entry, ())
    return with_call_stack(flat, lowering.functions_with_frames(), lowering.calls.may_return_to)


_ADDRESS_AT = {"load": 1, "atomic": 1, "store": 0, "reduce": 0}
"""Position of the address among the operands of a memory access."""


def instruction_row(instruction: Instruction, source: Sequence[str] = ()) -> table.Row:
    """The row of an instruction.

    Raises:
        PtxError: The table has no such row, or the operands do not match it.
    """
    opcode, operands = instruction.opcode, instruction.operands
    row = table.find_row(opcode, bool(operands) and isinstance(operands[0], DestinationPair))
    if row is None:
        what = f"the emulator has no opcode {opcode}"
        raise instruction_error(instruction, source, what, unsupported_hint(opcode))
    count, expected = len(operands), len(row.of) + 1
    if row.kind in ("lanes", "warp", "block") and not row.carry and count != expected:
        what = f"{opcode} has {count} operands, the emulator knows it with {expected}"
        raise instruction_error(instruction, source, what)
    number = _ADDRESS_AT.get(row.kind)
    if number is not None and not any(
        isinstance(operand, Address) for operand in operands[number : number + 1]
    ):
        what = f"{opcode} has no [address] as operand {number + 1}"
        raise instruction_error(instruction, source, what)
    return row


def source_excerpt(text: str) -> str:
    """A source line for a message, cut off where it is longer than people write."""
    return text if len(text) <= _LONGEST_EXCERPT else text[: _LONGEST_EXCERPT - 3] + "..."


OPERAND_EXCEPTIONS = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError)
"""Exceptions that follow from operands that do not suit an opcode."""


def instruction_error(
    instruction: Instruction, source: Sequence[str], what: str, advice: str = ""
) -> PtxError:
    """The error for an instruction, which names its PTX line and its source line."""
    where = f"PTX line {instruction.ptx_line}"
    if 0 < instruction.source_line <= len(source):
        text = source[instruction.source_line - 1].strip()
        where += f", source line {instruction.source_line}: {source_excerpt(text)}"
    return PtxError(f"{what} ({where}){advice}")


def operand_error(instruction: Instruction, source: Sequence[str] = ()) -> PtxError:
    """The error for an instruction whose operands do not suit its opcode."""
    return instruction_error(
        instruction, source, f"{instruction.opcode} does not take such operands"
    )


class _Lowering:
    """Flattens one kernel; each function is flattened once and copied to its call sites."""

    def __init__(
        self, module: Module, source: Sequence[str], in_cluster: bool, older_sums: bool
    ) -> None:
        self._module, self._source = module, source
        self._in_cluster, self._older_sums = in_cluster, older_sums
        self.calls = CallGraph(module)
        self._flat: dict[str, PtxFunction] = {}
        self._framed: dict[str, Instruction] = {}  # a call of each function that has frames
        self._sites = itertools.count(1)
        self._copied, self._file = 0, ""

    def _error(self, call: Instruction, what: str, advice: str) -> PtxError:
        return instruction_error(call, self._source, what, advice)

    def body(self, entry: PtxFunction, callers: tuple[str, ...]) -> PtxFunction:
        """Flatten a kernel or function; `callers` are the functions on the call path."""
        self._file = self._file or entry.file
        flat = _FlatBody({**entry.registers, **macros.REGISTERS}, list(entry.variables))
        own = None if callers else {parameter.name for parameter in entry.parameters}
        variables = (*self._module.variables, *entry.variables) if self._in_cluster else ()
        shared = {variable.name for variable in variables if variable.space == "shared"}
        places = []  # of the instructions in the flat body
        for written in entry.instructions:
            places.append(len(flat.instructions))
            instruction = self._with_function_address(_with_call_space(written, own))
            row = instruction_row(instruction, self._source)
            try:
                if row.kind == "call":
                    self._calls(flat, entry, instruction, (*callers, entry.name))
                else:
                    parts = macros.with_rank(instruction, shared) if shared else (instruction,)
                    expanded = tuple(
                        self._as_summed(step)
                        for part in parts
                        for step in _expand_macro(part, instruction_row(part, self._source))
                    )
                    flat.instructions.extend(expanded)
                    if row.kind == "macro":
                        flat.registers.update(_other_registers(expanded))
            except OPERAND_EXCEPTIONS as error:
                raise operand_error(instruction, self._source) from error
        places.append(len(flat.instructions))
        flat.labels.update((label, places[index]) for label, index in entry.labels.items())
        return replace(
            entry,
            variables=tuple(flat.variables),
            registers=flat.registers,
            instructions=tuple(flat.instructions),
            labels=flat.labels,
        )

    def _as_summed(self, instruction: Instruction) -> Instruction:
        """A product of a warp with the sums of the device."""
        opcode = instruction.opcode
        if not self._older_sums or not opcode.startswith(("mma.", "wmma.mma.")):
            return instruction
        older = opcode.replace(" result", f"{tensor.OLDER_SUMS} result")
        return instruction if table.find_row(older) is None else replace(instruction, opcode=older)

    def functions_with_frames(self) -> dict[str, PtxFunction]:
        """The functions that are not inlined, flattened; they may call one another."""
        bodies: dict[str, PtxFunction] = {}
        while new := [name for name in self._framed if name not in bodies]:
            for name in new:
                function = self._module.functions[name]
                flat, call = self.body(function, (name,)), self._framed[name]
                if flat.file != self._file:  # it is in a header: show the line that called it
                    shown = (replace(i, source_line=call.source_line) for i in flat.instructions)
                    flat = replace(flat, instructions=tuple(shown))
                bodies[name] = flat
        return bodies

    def _with_function_address(self, instruction: Instruction) -> Instruction:
        """The instruction with each function operand replaced by the function's address."""
        functions = self._module.functions
        if not instruction.opcode.startswith(("mov", "selp", "st", "setp")):
            return instruction
        operands = tuple(
            Immediate("int", function_address(operand.name))
            if isinstance(operand, Symbol) and operand.name in functions
            else operand
            for operand in instruction.operands
        )
        return replace(instruction, operands=operands)

    def _unknown_function(self, call: Instruction, name: str) -> PtxError:
        """The error for a call of a function that has no body here."""
        if _LAUNCHES.match(name):
            what = "the emulator does not run a kernel that launches kernels"
            advice = ": launch them from the host, or run the launched kernel by itself"
            return self._error(call, what, advice)
        why = "is a pointer to no function" if is_indirect(call) else "has no body"
        what = f"the emulator cannot call {name}, which {why} in this PTX"
        return self._error(call, what, ": take the call out")

    def _calls(
        self, flat: _FlatBody, caller: PtxFunction, call: Instruction, callers: tuple[str, ...]
    ) -> None:
        """Inline what a call may run."""
        end = f"{call_operands(call)[1]}@{next(self._sites)}"
        if call.guard:
            skip = macros.branch_to(call, end)
            flat.instructions.append(replace(skip, guard_negated=not call.guard_negated))
            call = replace(call, guard=None, guard_negated=False)
        candidates = self.calls.targets(caller, call)
        if is_indirect(call) and candidates:
            self._inline_indirect_call(flat, call, callers, candidates, end)
        else:
            self._call(flat, call, callers)
        flat.labels[end] = len(flat.instructions)

    def _inline_indirect_call(
        self,
        flat: _FlatBody,
        call: Instruction,
        callers: tuple[str, ...],
        candidates: Sequence[str],
        end: str,
    ) -> None:
        """Inline, in sequence, the functions that a pointer may refer to; then `end` follows."""
        _, name, _ = call_operands(call)
        pointer_number = next(n for n, o in enumerate(call.operands) if o == Register(name))
        for candidate in candidates:
            behind = f"{end}#{candidate}"
            address = Immediate("int", function_address(candidate))
            flat.instructions += macros.branch_unless_equal(call, Register(name), address, behind)
            operands = list(call.operands)
            operands[pointer_number] = Symbol(candidate)
            self._call(flat, replace(call, operands=tuple(operands)), callers)
            flat.instructions.append(macros.branch_to(call, end))
            flat.labels[behind] = len(flat.instructions)
        flat.instructions.append(macros.substitute(call, "trap.call"))

    def _call(self, flat: _FlatBody, call: Instruction, callers: tuple[str, ...]) -> None:
        """Inline the body of a called function, or leave the call of one that has frames."""
        results, name, arguments = call_operands(call)
        function = self._module.functions.get(name)
        if function is None and name in macros.RUNTIME_CALLS:
            flat.instructions += macros.expand_runtime_call(call, name, results, arguments)
            return
        if function is None:
            raise self._unknown_function(call, name)
        if name in self.calls.recursive:
            self._framed.setdefault(name, call)
            flat.instructions.append(call)
            return
        if len(callers) > MAX_CALL_DEPTH:
            raise self._error(
                call,
                f"calls are nested {len(callers)} deep; the emulator goes {MAX_CALL_DEPTH} deep",
                ": call fewer functions from one another",
            )
        if name not in self._flat:
            self._flat[name] = self.body(function, callers)
        callee = self._flat[name]
        site = f"@{next(self._sites)}"
        end = f"{name}{site}"
        local = [*callee.registers, *callee.labels]
        local += [v.name for v in callee.variables if v.space in ("local", "param")]
        names = {name: name + site for name in local if name not in _MACRO_REGISTERS}
        formal = [variable.name for variable in (*callee.results, *callee.parameters)]
        names.update(zip(formal, (*results, *arguments), strict=True))
        flat.registers.update(
            (names.get(register, register), kind) for register, kind in callee.registers.items()
        )
        known = {variable.name for variable in flat.variables}
        flat.variables += [
            replace(variable, name=names.get(variable.name, variable.name))
            for variable in callee.variables
            if names.get(variable.name, variable.name) not in known
        ]
        start = len(flat.instructions)
        self._copied += len(callee.instructions)
        if self._copied > MAX_INLINED_INSTRUCTIONS:
            raise self._error(
                call,
                "with its calls inlined the kernel has more than "
                f"{MAX_INLINED_INSTRUCTIONS} instructions",
                ": call fewer functions, or smaller ones",
            )
        flat.labels.update((names[label], start + at) for label, at in callee.labels.items())
        foreign = callee.file != self._file
        for instruction in callee.instructions:
            returns = instruction.opcode.startswith("ret")
            step = macros.branch_to(instruction, end) if returns else instruction
            if foreign:  # the function is in a header: show the line that called it
                step = replace(step, source_line=call.source_line)
            flat.instructions.append(rename_operands(step, names, flat.registers))
        flat.labels[end] = len(flat.instructions)


def _with_call_space(instruction: Instruction, own: set[str] | None) -> Instruction:
    """Turn `ld.param` and `st.param` of a call's variables into accesses to `param::func`.

    `own` holds the names of the kernel's parameters; it is None in a function.
    """
    name, _, rest = instruction.opcode.partition(".param.")
    if name not in ("ld", "st"):
        return instruction
    address = next((o for o in instruction.operands if isinstance(o, Address)), None)
    if address is None:
        return instruction
    if own is not None and not (isinstance(address.base, Symbol) and address.base.name not in own):
        return instruction
    return replace(instruction, opcode=f"{name}.param::func.{rest}")


def _other_registers(instructions: Sequence[Instruction]) -> dict[str, str]:
    """Those of `_OTHER_REGISTERS` that instructions use."""
    operands = (operand for instruction in instructions for operand in instruction.operands)
    names = {name for operand in operands for name in registers_of(operand)}
    return {name: kind for name, kind in _OTHER_REGISTERS.items() if name in names}


def _expand_macro(instruction: Instruction, row: table.Row) -> Iterator[Instruction]:
    """The instructions in place of one that may be a macro or use the carry flag."""
    if "cache_hint" in instruction.opcode:  # the policy changes nothing that is counted
        instruction = replace(instruction, operands=instruction.operands[:-1])
    if row.kind == "macro":
        expand: Callable[[Instruction], Iterator[Instruction]] | None = row.function
        assert expand is not None
        yield from expand(instruction)
    elif row.carry:
        yield macros.with_carry_operands(instruction, row.carry)
    else:
        yield instruction
