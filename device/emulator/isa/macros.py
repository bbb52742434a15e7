"""Macros: instructions that are replaced by several simpler ones.

A macro takes an instruction and yields those that replace it. The registers that it uses for
intermediate values start with `%macro` and are declared in `REGISTERS`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeGuard

from memlab.device.emulator.ptx.parser import (
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    PtxError,
    Register,
    Symbol,
    Vector,
)

_WORDS = tuple(Register(f"%macro_word{index}") for index in range(4))
_PARTS = tuple(Register(f"%macro_part{index}") for index in range(4))
ROW_ADDRESSES = tuple(Register(f"%macro_row{index}") for index in range(5))
"""Addresses of rows of a matrix."""
HALVES = tuple(Register(f"%macro_half{index}") for index in range(2))
WORD64 = Register("%macro_long")
SHARED_PLACES = tuple(Register(f"%macro_shared{index}") for index in range(3))
BULK_SOURCE = Register("%macro_bulk")
"""The generic address of what a bulk copy moves."""
WORD = _WORDS[0]
CHOSEN, _GUARD = Register("%macro_chosen"), Register("%macro_guard")
CARRY = Register("%macro_carry")
"""The condition code register's carry flag (PTX ISA, "Extended-Precision Arithmetic")."""

REGISTERS = {
    **{register.name: "b32" for register in (*_WORDS, *_PARTS)},
    **{register.name: "b64" for register in (WORD64, BULK_SOURCE, *ROW_ADDRESSES, *SHARED_PLACES)},
    **{register.name: "b16" for register in HALVES},
    **{register.name: "pred" for register in (CHOSEN, _GUARD, CARRY)},
}
"""The registers that macros use, with their types."""


def substitute(of: Instruction, opcode: str, *operands: Operand) -> Instruction:
    """Another instruction in place of one, with the same guard and lines."""
    return replace(of, opcode=opcode, operands=operands)


def branch_by_index(instruction: Instruction) -> Iterable[Instruction]:
    """`brx.idx`: a comparison and a branch for each label, the last one taken in any case."""
    index, table = instruction.operands
    if not isinstance(table, Vector) or instruction.guard:
        raise PtxError(f"PTX line {instruction.ptx_line}: not understood: {instruction.opcode}")
    *labels, last = table.items
    for number, label in enumerate(labels):
        branch = substitute(instruction, "bra", label)
        yield from execute_where("eq", index, number, branch)
    yield substitute(instruction, "bra", last)


def create_policy(instruction: Instruction) -> Iterable[Instruction]:
    """`createpolicy`: any number, because cache policies have no effect here."""
    yield substitute(instruction, "mov.b64", instruction.operands[0], Immediate("int", 1))


_RANK = Register("%cluster_ctarank")


def ask_for_own_shared(instruction: Instruction) -> Iterable[Instruction]:
    """`isspacep.shared`: the address is one of the block of this rank."""
    yield substitute(instruction, "isspacep.own", *instruction.operands, _RANK)


def with_rank(instruction: Instruction, shared: Collection[str]) -> Iterator[Instruction]:
    """An instruction in a cluster, where the address of a shared variable has the own rank.

    Where an access can reach no other block, a variable needs no rank.

    Args:
        instruction: The instruction.
        shared: The names of the variables in shared memory.
    """
    opcode, operands = instruction.opcode, list(instruction.operands)
    name, _, rest = opcode.partition(".")
    if name == "mov" and rest.endswith(("32", "64")) and _is_one_of(operands[1], shared):
        yield substitute(instruction, f"mapa.u{rest[-2:]}", *operands, _RANK)
        return
    registers = iter(SHARED_PLACES)
    far = "shared::cluster" in opcode or "async.bulk" in opcode
    for number, operand in enumerate(operands):
        if isinstance(operand, Address) and far and _is_one_of(operand.base, shared):
            named, place = operand.base, next(registers)
            operands[number] = replace(operand, base=place)
        elif _is_one_of(operand, shared):
            named, place = operand, next(registers)
            operands[number] = place
        else:
            continue
        yield substitute(instruction, "mapa.u64", place, named, _RANK)
    yield substitute(instruction, opcode, *operands)


def _is_one_of(operand: Operand | None, variables: Collection[str]) -> TypeGuard[Symbol]:
    return isinstance(operand, Symbol) and operand.name in variables


def reduce_at_barrier(instruction: Instruction) -> Iterable[Instruction]:
    """`bar.red`: a barrier, then a vote of the threads that it released."""
    destination, barrier, *_, predicate = instruction.operands
    _, kind, ptx_type = instruction.opcode.replace(".aligned", "").rsplit(".", 2)
    yield substitute(instruction, "bar.sync", barrier)
    yield substitute(instruction, f"bar.red.{kind}.{ptx_type} result", destination, predicate)


def copy_async(instruction: Instruction) -> Iterable[Instruction]:
    """`cp.async`: a load from global memory and a store to shared memory, executed at once.

    A copy may complete at any time before the thread waits for it, so also immediately. Words
    behind the optional source size are zeros.
    """
    destination, source, size, *rest = instruction.operands
    cache = ".cg" if ".cg." in instruction.opcode else ".ca"
    assert isinstance(size, Immediate)
    count = size.bits // 4
    words: Operand = _WORDS[0] if count == 1 else Vector(_WORDS[:count])
    vector = "" if count == 1 else f".v{count}"
    load = substitute(instruction, f"ld.global{cache}{vector}.b32", words, source)
    yield from _zero_filled(load, rest[0], count) if rest else [load]
    yield substitute(instruction, f"st.shared{vector}.b32", destination, words)


def _zero_filled(load: Instruction, size: Operand, count: int) -> Iterable[Instruction]:
    """The load of `count` words; those behind `size` bytes become zero."""
    yield from execute_where("ne", size, 0, load)
    for index, word in enumerate(_WORDS[:count]):
        yield substitute(load, "setp.gt.u32", _GUARD, size, Immediate("int", 4 * index))
        yield substitute(load, "selp.b32", word, word, Immediate("int", 0), _GUARD)


def items_of(operand: Operand) -> tuple[Operand, ...]:
    """The items of a vector, or a single operand."""
    return operand.items if isinstance(operand, Vector) else (operand,)


def is_async_copy_store(instruction: Instruction) -> bool:
    """Whether an instruction is the store into which `cp.async` was expanded."""
    stores = instruction.opcode.startswith("st.")
    return stores and items_of(instruction.operands[1])[0] == _WORDS[0]


def is_matrix_load(instruction: Instruction) -> bool:
    """Whether an instruction is the load of rows into which `ldmatrix` was expanded."""
    loads = instruction.opcode in ("ld.shared.v4.b32", "ld.v4.b32")
    return loads and items_of(instruction.operands[0])[0] == _WORDS[0]


def is_matrix_store(instruction: Instruction) -> bool:
    """Whether an instruction is the store of rows into which `stmatrix` was expanded."""
    stores = instruction.opcode in ("st.shared.v4.b32", "st.v4.b32")
    return stores and items_of(instruction.operands[1])[0] == _PARTS[0]


def flatten_fragments(instruction: Instruction) -> Iterable[Instruction]:
    """`mma` and `wmma.mma` with each register of their matrices as a separate source."""
    to, *inputs = instruction.operands
    sources = [item for operand in inputs for item in items_of(operand)]
    opcode = instruction.opcode.replace(".aligned", "")
    yield substitute(instruction, f"{opcode} result", to, *sources)


def load_matrices(instruction: Instruction) -> Iterable[Instruction]:
    """`ldmatrix`: each lane loads the row that it addresses; then rows are distributed to lanes."""
    destination, source = instruction.operands
    opcode, space, count = _matrices(instruction)
    load = substitute(instruction, f"ld{space}.v4.b32", Vector(_WORDS), source)
    yield from _access_rows(load, count)
    if count == 1:
        (destination,) = items_of(destination)
    yield substitute(instruction, f"{opcode} result", destination, *_WORDS)


def store_matrices(instruction: Instruction) -> Iterable[Instruction]:
    """`stmatrix`: rows are gathered from the lanes; each lane stores the row that it addresses."""
    destination, source = instruction.operands
    opcode, space, count = _matrices(instruction)
    filled = (*items_of(source), *[Immediate("int", 0)] * (4 - count))
    gather = f"{opcode.replace(f'.x{count}', '')} rows"
    yield substitute(instruction, gather, Vector(_PARTS), *filled)
    store = substitute(instruction, f"st{space}.v4.b32", destination, Vector(_PARTS))
    yield from _access_rows(store, count)


def _matrices(instruction: Instruction) -> tuple[str, str, int]:
    """The opcode of `ldmatrix` or `stmatrix` without its state space, that, and the matrices."""
    opcode = instruction.opcode.replace(".aligned", "").replace("::cta", "")
    opcode = re.sub(r"\.(x\d(?:\.trans)?)\.m8n8", r".m8n8.\1", opcode)
    space = ".shared" if ".shared" in opcode else ""
    return opcode.replace(".shared", ""), space, int(opcode.partition(".x")[2][0])


def _access_rows(access: Instruction, count: int) -> Iterable[Instruction]:
    """The access to the rows of matrices; lanes behind the last matrix name none."""
    if count == 4:
        return [access]
    return execute_where("lt", Register("%laneid"), 8 * count, access)


def execute_where(
    relation: str, value: Operand, number: int, instruction: Instruction
) -> Iterable[Instruction]:
    """An instruction, executed where a value of 32 bits also compares so with a number."""
    opcode, third = f"setp.{relation}.u32", list[Operand]()
    if instruction.guard:
        guard = Register(instruction.guard)
        opcode = f"setp.{relation}.and.u32"
        third = [Negated(guard) if instruction.guard_negated else guard]
    compared = CHOSEN, value, Immediate("int", number), *third
    yield replace(substitute(instruction, opcode, *compared), guard=None)
    yield replace(instruction, guard=CHOSEN.name, guard_negated=False)


def with_carry_operands(instruction: Instruction, carry: str) -> Instruction:
    """The instruction with the carry flag as an explicit operand, as in its row.

    Args:
        instruction: For example `addc.cc.u32 d, a, b`.
        carry: `out`, `in` or `in out`.
    """
    destination, *sources = instruction.operands
    if "in" in carry:
        sources.append(CARRY)
    if "out" in carry:
        destination = Vector((destination, CARRY))
    return replace(instruction, operands=(destination, *sources))


def branch_unless_equal(
    instruction: Instruction, value: Register, other: Immediate, label: str
) -> Iterable[Instruction]:
    """A branch that is taken if two 64-bit words differ."""
    yield substitute(instruction, "setp.ne.u64", CHOSEN, value, other)
    yield replace(substitute(instruction, "bra", Symbol(label)), guard=CHOSEN.name)


def branch_to(instruction: Instruction, label: str) -> Instruction:
    """A branch in place of an instruction, with the same guard."""
    return substitute(instruction, "bra", Symbol(label))


def expand_runtime_call(
    call: Instruction, name: str, results: Sequence[str], arguments: Sequence[str]
) -> Iterable[Instruction]:
    """A call of a function of the runtime: loads its arguments, executes it, stores its result."""
    wanted = ROW_ADDRESSES[: RUNTIME_CALLS[name]]
    for register, argument in zip(wanted, arguments, strict=False):
        yield substitute(call, "ld.param::func.u64", register, Address(Symbol(argument)))
    if name == "malloc":
        yield substitute(call, name, WORD64, *wanted)
        result = Address(Symbol(results[0]))
        yield substitute(call, "st.param::func.u64", result, WORD64)
    else:
        yield substitute(call, name, *wanted)


RUNTIME_CALLS = {"__assertfail": 1, "vprintf": 2, "malloc": 1, "free": 1}
"""Functions of the CUDA runtime, with how many arguments matter here. Compilers turn `assert`,
`printf`, `new` and `delete` into calls of these."""
