"""Functions that call themselves: each call has a frame on the call stack of its thread.

All other functions are inlined (`lowering`). The instructions of a function that may call itself
lie behind those of the kernel, once. A call stores the registers that the caller needs later, and
the number of its call site, into the caller's and the new frame, and branches to the function
(`bra.call`). When the function returns, it branches to the place behind that site (`bra.return`).

The stack has two parts: parameters, results, saved registers and call sites lie in `param::func`,
which counts as no memory, and arrays in local memory, which counts as on a GPU. What ptxas stores
to local memory around a call follows from the machine code's registers, and is not counted.

Lanes whose calls are nested deeper run first (`codegen.schedule_code`), and only lanes of one depth
run together. So lanes that diverged before a call reconverge behind it, as on a GPU, where ptxas
keeps a convergence barrier in the frame of each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from memlab.device.emulator.isa import macros, table
from memlab.device.emulator.program.call_graph import call_operands, is_call
from memlab.device.emulator.program.liveness import live_registers
from memlab.device.emulator.ptx.parser import (
    TYPE_BYTES,
    Address,
    DestinationPair,
    Immediate,
    Instruction,
    Operand,
    PtxError,
    PtxFunction,
    Register,
    Symbol,
    Variable,
    registers_of,
    rename_operands,
)

STACK_LIMIT_BYTES = 1024
"""The call stack of a thread, bytes: the default of `cudaLimitStackSize` (CUDA driver API,
`cuCtxSetLimit`)."""
STACK_POINTER = "%call_frame"
"""The register that holds where the running call's frame begins. It grows with the depth."""

_STACK, _ARRAYS = "the call stack", "the arrays of the call stack"
_ARRAY_POINTER = "%call_arrays"
_PARTS = {STACK_POINTER: _STACK, _ARRAY_POINTER: _ARRAYS}
"""The parts of the stack, by the registers that point to the running call's frame in them."""
_CALL_SITE = Address(Register(STACK_POINTER))
_CALL_SITE_BYTES = 8  # the number of the call site, at the beginning of a frame
_ALIGNMENT_BYTES = 16  # of a frame, and of the widest access to it
_WORD_BYTES = 4  # of a register of the machine code
_RETURN_ADDRESS_BYTES, _CONVERGENCE_BARRIER_BYTES = 8, 4
"""What ptxas saves in each frame besides registers (read off machine code for sm_90)."""


@dataclass
class _Body:
    """The instructions of the kernel, or of a function with frames, in which calls remain.

    Attributes:
        name: The function; empty for the kernel.
        code: Its instructions, with names that no other body has.
        frame_bytes: Bytes of its frames, and of their arrays.
        array_bytes: Bytes of the arrays in them.
        kept: By the index of a call, the registers that it saves.
        saved: Where these lie in a frame.
        places: Where its variables lie: the register that points to their frame, and their offset.
        sites: The labels behind the calls of the function with the callers, by the number of the
            call site.
    """

    name: str
    code: PtxFunction
    frame_bytes: int = 0
    array_bytes: int = 0
    kept: dict[int, list[str]] = field(default_factory=dict)
    saved: dict[str, int] = field(default_factory=dict)
    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    sites: list[tuple[str, _Body]] = field(default_factory=list)

    @property
    def frames(self) -> Iterator[tuple[Register, Immediate]]:
        """The pointers to the parts of its frame, with how far a call moves them."""
        sizes = {STACK_POINTER: self.frame_bytes, _ARRAY_POINTER: self.array_bytes}
        for pointer, size in sizes.items():
            if size:
                yield Register(pointer), Immediate("int", size)

    @property
    def device_frame_bytes(self) -> int:
        """About what a frame takes on a GPU: what is saved, and the arrays."""
        saved = sum(max(_bytes_of(self.code, name), _WORD_BYTES) for name in self.saved)
        whole = _RETURN_ADDRESS_BYTES + _CONVERGENCE_BARRIER_BYTES + saved + self.array_bytes
        return _align(whole, 8)


def with_call_stack(
    entry: PtxFunction,
    functions: Mapping[str, PtxFunction],
    may_return_to: Callable[[str, str], bool],
) -> PtxFunction:
    """The kernel with the functions that have frames behind it.

    Args:
        entry: The kernel, in which calls of such functions remain.
        functions: These functions by name, in which such calls remain too.
        may_return_to: Whether a function may call another one, also through others.
    """
    if not functions:
        return entry
    bodies = {"": _Body("", entry)}
    bodies |= {name: _Body(name, _renamed(function)) for name, function in functions.items()}
    for body in bodies.values():
        _lay_out(body, may_return_to)
    called = [body for name, body in bodies.items() if name]
    depths = [STACK_LIMIT_BYTES / body.device_frame_bytes for body in called]
    stack_bytes, array_bytes = (
        max(
            _align(round(depth * size), _ALIGNMENT_BYTES)
            for depth, size in zip(depths, of, strict=True)
        )
        for of in ([b.frame_bytes for b in called], [b.array_bytes for b in called])
    )
    # The parameters of a call are stored before the stack is known to hold its frame.
    room = stack_bytes + max(body.frame_bytes for body in called)
    stack = Variable("param", _STACK, "b8", _ALIGNMENT_BYTES, room)
    arrays = Variable("local", _ARRAYS, "b8", _ALIGNMENT_BYTES, array_bytes)
    written = _Writer(bodies, {STACK_POINTER: stack_bytes, _ARRAY_POINTER: array_bytes})
    return replace(
        entry,
        variables=(
            *(v for b in bodies.values() for v in b.code.variables if v.name not in b.places),
            *[stack, arrays],
        ),
        registers={
            **{name: of for body in bodies.values() for name, of in body.code.registers.items()},
            **dict.fromkeys((STACK_POINTER, _ARRAY_POINTER), "b64"),
        },
        instructions=tuple(written.instructions),
        labels=written.labels,
    )


def _align(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _bytes_of(code: PtxFunction, register: str) -> int:
    return TYPE_BYTES[code.registers[register]]


def _renamed(function: PtxFunction) -> PtxFunction:
    """A function whose registers, labels and variables no other one has."""
    own = [name for name in function.registers if name not in macros.REGISTERS]
    variables = [v for v in function.variables if v.space in ("local", "param")]
    formal = [*function.results, *function.parameters]
    names = {
        name: f"{name}@{function.name}"
        for name in (*own, *function.labels, *(v.name for v in (*variables, *formal)))
    }

    def renamed(declared: Sequence[Variable]) -> tuple[Variable, ...]:
        return tuple(replace(v, name=names.get(v.name, v.name)) for v in declared)

    registers = {names.get(name, name): kind for name, kind in function.registers.items()}
    return replace(
        function,
        registers=registers,
        labels={names[label]: place for label, place in function.labels.items()},
        instructions=tuple(rename_operands(i, names, registers) for i in function.instructions),
        variables=renamed(function.variables),
        results=renamed(function.results),
        parameters=renamed(function.parameters),
    )


# --- Frames ---------------------------------------------------------------------------------------


def _formal_places(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where results and parameters of some sizes lie in a frame, and where they end."""
    places, end = [], _CALL_SITE_BYTES
    for size in sizes:
        start = _align(end, _ALIGNMENT_BYTES if size > 8 else 8)
        places.append(start)
        end = start + size
    return places, end


def _lay_out(body: _Body, may_return_to: Callable[[str, str], bool]) -> None:
    """Decide where everything lies in the frames of a function; the kernel has none."""
    code, end = body.code, 0
    sizes = {variable.name: variable.size for variable in code.variables}
    outgoing = dict[str, int]()  # where variables lie in the frame of a called function
    for call in filter(is_call, code.instructions):
        results, _, arguments = call_operands(call)
        places, _ = _formal_places([sizes[name] for name in (*results, *arguments)])
        for name, place in zip((*results, *arguments), places, strict=True):
            if outgoing.setdefault(name, place) != place:
                what = f"{name} is passed to functions that call themselves in two places"
                raise PtxError(f"PTX line {call.ptx_line}: {what}: declare a variable for each")
    if body.name:
        formal = (*code.results, *code.parameters)
        places, end = _formal_places([variable.size for variable in formal])
        for variable, place in zip(formal, places, strict=True):
            body.places[variable.name] = STACK_POINTER, place
        for variable in code.variables:
            if variable.space == "local":
                start = _align(body.array_bytes, max(variable.align, 1))
                body.places[variable.name] = _ARRAY_POINTER, start
                body.array_bytes = _align(start + variable.size, _ALIGNMENT_BYTES)
            elif variable.space == "param" and variable.name not in outgoing:
                start = _align(end, _ALIGNMENT_BYTES)
                body.places[variable.name] = STACK_POINTER, start
                end = start + variable.size
        body.kept = _kept_across_calls(body, may_return_to)
        for name in sorted({name for names in body.kept.values() for name in names}):
            width = max(_bytes_of(code, name), _WORD_BYTES)
            body.saved[name] = _align(end, width)
            end = body.saved[name] + width
    body.frame_bytes = _align(end, _ALIGNMENT_BYTES)
    for name, place in outgoing.items():
        body.places[name] = STACK_POINTER, body.frame_bytes + place


def _kept_across_calls(
    body: _Body, may_return_to: Callable[[str, str], bool]
) -> dict[int, list[str]]:
    """The registers that a function needs after calls in which it may be called again."""
    live, own = _live_after(body.code), body.code.registers.keys() - macros.REGISTERS.keys()
    return {
        index: sorted(live[index] & own)
        for index, call in enumerate(body.code.instructions)
        if is_call(call) and may_return_to(call_operands(call)[1], body.name)
    }


def _live_after(code: PtxFunction) -> list[frozenset[str]]:
    """The registers that may be read after each instruction."""
    read, written, following = [], [], []
    for index, instruction in enumerate(code.instructions):
        row = table.find_row(instruction.opcode, _has_pair(instruction))
        sources = instruction.operands[1 if row and row.to else 0 :]
        names = {name for operand in sources for name in registers_of(operand)}
        guard = instruction.guard
        read.append(frozenset(names if guard is None else {guard, *names}))
        to = instruction.operands[:1] if row and row.to and guard is None else ()
        written.append(frozenset(name for operand in to for name in registers_of(operand)))
        after = [index + 1] if index + 1 < len(code.instructions) else []
        if row and row.kind == "branch":
            (label,) = instruction.operands
            assert isinstance(label, Symbol)
            target = code.labels[label.name]
            jumps = [target] if target < len(code.instructions) else []
            after = [*jumps, *(after if guard else ())]
        elif row and row.kind == "exit" and guard is None:
            after = []
        following.append(after)
    return live_registers(read, written, following)


def _has_pair(instruction: Instruction) -> bool:
    return bool(instruction.operands) and isinstance(instruction.operands[0], DestinationPair)


# --- Instructions ---------------------------------------------------------------------------------


class _Writer:
    """Writes the bodies one behind the other.

    Attributes:
        instructions: The instructions.
        labels: Their labels.
    """

    def __init__(self, bodies: Mapping[str, _Body], stack_bytes: Mapping[str, int]) -> None:
        """Write all bodies; `stack_bytes` are those of each part of the stack, by its pointer."""
        self._bodies, self._stack_bytes = bodies, stack_bytes
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        first = replace(bodies[""].code.instructions[0], guard=None, guard_negated=False)
        for pointer, variable in _PARTS.items():
            self._add(first, "mov.u64", Register(pointer), Symbol(variable))
        for body in bodies.values():
            self._write(body)
        for body in bodies.values():
            if body.name:
                self._write_return(body)

    def _add(self, of: Instruction, opcode: str, *operands: Operand, guard: str = "") -> None:
        """Append an instruction in place of one."""
        added = macros.substitute(of, opcode, *operands)
        self.instructions.append(replace(added, guard=guard) if guard else added)

    def _write(self, body: _Body) -> None:
        places = []
        self.labels[_entry_of(body)] = len(self.instructions)
        for index, written in enumerate(body.code.instructions):
            places.append(len(self.instructions))
            if is_call(written):
                self._write_call(body, index, written)
            elif body.name and written.opcode.startswith("ret"):
                self.instructions.append(macros.branch_to(written, _end_of(body)))
            else:
                self.instructions.extend(_in_frame(body, written))
        places.append(len(self.instructions))
        self.labels.update((label, places[index]) for label, index in body.code.labels.items())
        last = body.code.instructions[-1]
        if last.guard or not last.opcode.startswith("ret") or places[-1] in self.labels.values():
            last = replace(last, guard=None, guard_negated=False)
            if body.name:
                self.instructions.append(macros.branch_to(last, _end_of(body)))
            else:
                self._add(last, "exit")

    def _write_call(self, body: _Body, index: int, call: Instruction) -> None:
        """A call: registers are saved, the function runs in its own frame, then they return."""
        callee = self._bodies[call_operands(call)[1]]
        number, label = len(callee.sites), f"{_entry_of(callee)} {len(callee.sites)}"
        callee.sites.append((label, body))
        kept = body.kept.get(index, [])
        for name in kept:
            self._save(body, name, call)
        for pointer, size in body.frames:
            self._add(call, "add.u64", pointer, pointer, size)
        for pointer, needed in callee.frames:
            last = Symbol(_PARTS[pointer.name], self._stack_bytes[pointer.name] - needed.bits)
            self._add(call, "setp.gt.u64", macros.CHOSEN, pointer, last)
            self._add(call, "trap.stack", guard=macros.CHOSEN.name)
        self._add(call, "st.param::func.b32", _CALL_SITE, Immediate("int", number))
        self._add(call, "bra.call", Symbol(_entry_of(callee)))
        self.labels[label] = len(self.instructions)
        for name in kept:
            self._restore(body, name, call)

    def _save(self, body: _Body, name: str, call: Instruction) -> None:
        """Store a register into the frame."""
        source, width = Register(name), 8 * _bytes_of(body.code, name)
        if body.code.registers[name] == "pred":
            one, zero, width = Immediate("int", 1), Immediate("int", 0), 8 * _WORD_BYTES
            self._add(call, "selp.b32", macros.WORD, one, zero, source)
            source = macros.WORD
        place = Address(Register(STACK_POINTER), body.saved[name])
        self._add(call, f"st.param::func.b{width}", place, source)

    def _restore(self, body: _Body, name: str, call: Instruction) -> None:
        """Load it again."""
        to, width = Register(name), 8 * _bytes_of(body.code, name)
        place = Address(Register(STACK_POINTER), body.saved[name])
        if body.code.registers[name] == "pred":
            self._add(call, "ld.param::func.b32", macros.WORD, place)
            self._add(call, "setp.ne.u32", to, macros.WORD, Immediate("int", 0))
        else:
            self._add(call, f"ld.param::func.b{width}", to, place)

    def _write_return(self, body: _Body) -> None:
        """For each call site: where the call came from it, leave the frame and branch behind it.

        The frame is left first: where groups of lanes meet depends on the depth.
        """
        last = replace(body.code.instructions[-1], guard=None, guard_negated=False)
        self.labels[_end_of(body)] = len(self.instructions)
        self._add(last, "ld.param::func.b32", macros.WORD, _CALL_SITE)
        for number, (label, _) in enumerate(body.sites[:-1]):
            branch = macros.branch_to(last, f"leave {label}")
            self.instructions.extend(macros.execute_where("eq", macros.WORD, number, branch))
        for label, caller in reversed(body.sites):
            self.labels[f"leave {label}"] = len(self.instructions)
            for pointer, size in caller.frames:
                self._add(last, "sub.u64", pointer, pointer, size)
            self._add(last, "bra.return", Symbol(label))


def _entry_of(body: _Body) -> str:
    return f"call {body.name}"


def _end_of(body: _Body) -> str:
    return f"return from {body.name}"


def _in_frame(body: _Body, written: Instruction) -> Iterator[Instruction]:
    """An instruction with the places of variables in the frame in place of their names."""
    operands = list(written.operands)
    for number, operand in enumerate(operands):
        named = operand.base if isinstance(operand, Address) else operand
        if not isinstance(named, Symbol) or named.name not in body.places:
            continue
        register, place = body.places[named.name]
        offset = place + named.offset
        if isinstance(operand, Address):
            operands[number] = Address(Register(register), offset + operand.offset)
            continue
        unguarded = replace(written, guard=None, guard_negated=False)
        terms = Register(register), Immediate("int", offset)
        yield macros.substitute(unguarded, "add.u64", macros.WORD64, *terms)
        operands[number] = macros.WORD64
    yield replace(written, operands=tuple(operands))
