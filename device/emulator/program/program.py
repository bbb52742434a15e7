"""A kernel ready to run: instructions decoded by the table, variables laid out in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from memlab.device.emulator.isa import table
from memlab.device.emulator.isa.address_space import CLUSTER, OWN_BLOCK, OWN_OFFSET
from memlab.device.emulator.isa.asynchronous.bulk_copies import VIEW, is_bulk_access
from memlab.device.emulator.isa.asynchronous.warpgroup import is_factor_load
from memlab.device.emulator.isa.rows import CLUSTER_VIEW
from memlab.device.emulator.isa.special_registers import is_special
from memlab.device.emulator.isa.tensor import HOPPER, OLDER_SUMS
from memlab.device.emulator.isa.unsupported import unsupported_hint
from memlab.device.emulator.program.access_merging import merged_widths
from memlab.device.emulator.program.call_stack import STACK_POINTER
from memlab.device.emulator.program.code_layout import (
    BasicBlockOrder,
    find_block_order,
    loop_branches,
)
from memlab.device.emulator.program.lowering import instruction_error, instruction_row, lower
from memlab.device.emulator.ptx.parser import (
    TYPE_BYTES,
    Address,
    DestinationPair,
    Instruction,
    Module,
    Operand,
    PtxError,
    PtxFunction,
    Register,
    Symbol,
    Variable,
    Vector,
    registers_of,
)
from memlab.errors import suggest_nearest
from memlab.kernels.tensor_maps import PIECE_BYTES

ATOMIC_KINDS = ("atomic", "reduce")
"""Atomic operations; a reduction returns nothing."""
WRITING_KINDS = ("store", *ATOMIC_KINDS)
"""Instructions that write to memory."""
ACCESS_KINDS = ("load", *WRITING_KINDS)
"""Instructions that access memory."""

_STATIC_ALIGNMENT_BYTES = 16
"""ptxas aligns shared arrays at least to this, which lets it load 16 bytes at a time."""

GRID_WORKSPACE = Variable("global", "the grid's barrier", "u32", 16, 8)
"""What a cooperative launch gives a kernel that waits for its whole grid: a `grid_workspace`, whose
second word is the barrier. In that, the highest bit changes when all blocks have arrived, which
the others count (`cooperative_groups/details/driver_abi.h` and `sync.h` of the CUDA Toolkit)."""

HEAP = Variable("global", "the heap", "u32", 16, 8 << 20)
"""What `malloc` gives parts of: the default of `cudaLimitMallocHeapSize` (CUDA C++ Programming
Guide, "Dynamic Global Memory Allocation"; an H200 has it too)."""


@dataclass(frozen=True)
class DecodedInstruction:
    """An instruction with its row in the instruction table.

    Attributes:
        instruction: The instruction as parsed.
        row: Its row.
        target: Position of a branch's target; -1 for other instructions.
        counted_bytes: Bytes per lane with which a memory access is counted; 0 where ptxas merges it
            into a neighbour, or where another unit than those of loads and stores makes it.
        lanes_in_turn: Whether lanes that access one word of shared memory are served one after
            another, as they are by an addition (`ATOMS.ADD`).
        as_matrix: Whether the machine code loads its words as rows of a matrix (`LDSM`), with those
            of other loads of its line of the PTX.
        issue_block: The basic block of the machine code that makes an access to global memory; -1
            where it is not known.
        issue_groups: The group of each of its copies in that block: a warp issues the accesses of a
            group without waiting for data between.
    """

    instruction: Instruction
    row: table.Row
    target: int = -1
    counted_bytes: int = 0
    lanes_in_turn: bool = False
    as_matrix: bool = False
    issue_block: int = -1
    issue_groups: tuple[int, ...] = ()

    @cached_property
    def address(self) -> Address:
        """The address of a memory access."""
        return next(o for o in self.instruction.operands if isinstance(o, Address))

    @cached_property
    def registers_read(self) -> tuple[str, ...]:
        """The registers that it reads: its guard, its sources and its address."""
        guard = self.instruction.guard
        sources = self.instruction.operands[1 if self.row.to else 0 :]
        names = (name for operand in sources for name in registers_of(operand))
        return (guard, *names) if guard else tuple(names)

    @cached_property
    def registers_written(self) -> tuple[str, ...]:
        """The registers that it writes."""
        return tuple(registers_of(self.instruction.operands[0])) if self.row.to else ()


@dataclass(frozen=True, eq=False)
class Program:
    """A kernel decoded by the instruction table; each is equal to itself alone.

    Attributes:
        name: The name of its entry.
        steps: Its instructions.
        registers: PTX types of the registers, by name.
        parameters: Byte offsets of the parameters in the parameter space, by name.
        parameter_variables: The parameters, in order.
        parameter_bytes: Size of the parameter space.
        sizes: Bytes of the variables of all spaces, by name; 0 for one that is sized at launch.
        shared: Byte offsets of the shared variables, by name. Dynamic arrays start behind the
            static ones.
        static_shared_bytes: Bytes of the static shared variables.
        dynamic_shared_start: Where dynamic arrays start in shared memory, bytes: their alignment
            decides.
        local: Byte offsets of the local variables, by name.
        local_bytes: Bytes of local memory per thread.
        arguments: Byte offsets of the `.param` variables of calls, by name.
        argument_bytes: Bytes of these per thread.
        const: Byte offsets of the `__constant__` variables, by name.
        const_image: Initial bytes of constant memory.
        globals: The `__device__` variables in global memory, and `GRID_WORKSPACE` and `HEAP`, if it
            has them.
        digest: The SHA-256 of the PTX text, and what else the steps depend on.
        in_cluster: Whether its launch has clusters of several blocks.
        moves_boxes: Whether tensor copies move what they copy; else they are only counted.
    """

    name: str
    steps: tuple[DecodedInstruction, ...]
    registers: Mapping[str, str]
    parameters: Mapping[str, int]
    parameter_variables: tuple[Variable, ...]
    parameter_bytes: int
    sizes: Mapping[str, int]
    shared: Mapping[str, int]
    static_shared_bytes: int
    dynamic_shared_start: int
    local: Mapping[str, int]
    local_bytes: int
    arguments: Mapping[str, int]
    argument_bytes: int
    const: Mapping[str, int]
    const_image: bytes
    globals: tuple[Variable, ...]
    digest: str
    in_cluster: bool = False
    moves_boxes: bool = True

    @cached_property
    def counted_bytes(self) -> tuple[int, ...]:
        """The width with which each access is counted; see `DecodedInstruction`."""
        return tuple(step.counted_bytes for step in self.steps)

    @cached_property
    def lanes_in_turn(self) -> tuple[int, ...]:
        """The positions of the accesses whose lanes take turns; see `DecodedInstruction`."""
        return tuple(index for index, step in enumerate(self.steps) if step.lanes_in_turn)

    @property
    def waits_for_grid(self) -> bool:
        """Whether its blocks wait for all blocks of the grid, so that all must be resident."""
        return GRID_WORKSPACE in self.globals

    @cached_property
    def order(self) -> BasicBlockOrder | None:
        """The order of its basic blocks; None where it is that of the instructions."""
        return find_block_order(self.steps)

    @cached_property
    def loop_heads(self) -> tuple[int, ...]:
        """The first instruction of each loop, ascending."""
        return tuple(sorted(loop_branches(self.steps)))


def load_program(
    module: Module,
    name: str,
    source: Sequence[str] = (),
    cooperative: bool = False,
    in_cluster: bool = False,
    compute_capability: tuple[int, int] = HOPPER,
) -> Program:
    """Decode an entry; a kernel that cannot run is refused here, before launch.

    Args:
        module: The parsed PTX.
        name: The entry to run.
        source: The lines of the CUDA source, for messages.
        cooperative: Whether its launch is cooperative, which gives it `GRID_WORKSPACE`.
        in_cluster: Whether its launch has clusters: then addresses of shared variables name the
            block.
        compute_capability: That of the device, whose driver compiles the PTX: the tensor cores of
            each architecture sum in their own way, whatever target the PTX was made for.

    Raises:
        PtxError: There is no such entry, or an opcode is not in the table: the message names the
            PTX line and the CUDA source line.
    """
    if name not in module.entries:
        raise PtxError(f"no kernel {name!r} in this PTX; {suggest_nearest(name, module.entries)}")
    written = module.entries[name]
    _check_variables(module.variables, {n for i in written.instructions for n in _symbols(i)})
    older_sums = compute_capability < HOPPER
    entry = lower(module, written, source, in_cluster, older_sums)
    rows = [instruction_row(instruction, source) for instruction in entry.instructions]
    for instruction in entry.instructions:
        guard = instruction.guard
        if guard is not None and entry.registers.get(guard) != "pred":
            raise instruction_error(instruction, source, f"{guard} is no predicate register")
    _check_registers(entry, source)
    variables = (*module.variables, *entry.variables)
    parameters, parameter_bytes = _assign_offsets(entry.parameters, 1)
    static = [variable for variable in variables if variable.space == "shared" and variable.size]
    shared, static_bytes = _assign_offsets(static, _STATIC_ALIGNMENT_BYTES)
    named = {name for instruction in entry.instructions for name in _symbols(instruction)}
    dynamic = (v for v in variables if v.space == "shared" and not v.size and v.name in named)
    alignment = max((_STATIC_ALIGNMENT_BYTES, *(variable.align for variable in dynamic)))
    dynamic_start = -(-static_bytes // alignment) * alignment
    _check_variables(variables, named)
    for variable in variables:  # a variable of other kernels in the file is not named here
        if variable.space == "shared" and not variable.size and variable.name in named:
            shared[variable.name] = dynamic_start
    local, local_bytes = _assign_offsets([v for v in variables if v.space == "local"], 1)
    arguments, argument_bytes = _assign_offsets([v for v in variables if v.space == "param"], 1)
    constants = [variable for variable in variables if variable.space == "const"]
    const, const_bytes = _assign_offsets(constants, 1)
    image = bytearray(const_bytes)
    for variable in constants:
        start = const[variable.name]
        image[start : start + variable.size] = variable.initial or bytes(variable.size)

    targets = [
        _branch_target(instruction, row, entry)
        for instruction, row in zip(entry.instructions, rows, strict=True)
    ]
    leaders = {*entry.labels.values(), *(index + 1 for index, t in enumerate(targets) if t >= 0)}
    alignments = dict.fromkeys(shared, _STATIC_ALIGNMENT_BYTES)
    widths = merged_widths(entry.instructions, rows, leaders, alignments)
    # The copy engine completes bytes at barriers without an instruction.
    widths |= {n: 0 for n, row in enumerate(rows) if row.view == VIEW and row.kind == "atomic"}
    in_global = [variable for variable in variables if variable.space == "global"]
    if cooperative:
        in_global.append(GRID_WORKSPACE)
    if any(row.kind == "heap" for row in rows):
        in_global.append(HEAP)
    return Program(
        name=name,
        steps=tuple(
            DecodedInstruction(instruction, row, target, widths.get(index, _counted_bytes(row)))
            for index, (instruction, row, target) in enumerate(
                zip(entry.instructions, rows, targets, strict=True)
            )
        ),
        registers=entry.registers,
        parameters=parameters,
        parameter_variables=entry.parameters,
        parameter_bytes=parameter_bytes,
        sizes={variable.name: variable.size for variable in variables},
        shared=shared,
        static_shared_bytes=static_bytes,
        dynamic_shared_start=dynamic_start,
        local=local,
        local_bytes=-(-local_bytes // 16) * 16,
        arguments=arguments,
        argument_bytes=-(-argument_bytes // 16) * 16,
        const=const,
        const_image=bytes(image),
        globals=tuple(in_global),
        digest=module.digest + " in a cluster" * in_cluster + OLDER_SUMS * older_sums,
        in_cluster=in_cluster,
    )


def with_constants(program: Program, values: Mapping[str, NDArray[Any]]) -> Program:
    """A program with `__constant__` arrays filled, as by `cudaMemcpyToSymbol`.

    Args:
        program: The program.
        values: Arrays by symbol. The program may lack symbols that the kernel never reads.
    """
    if not values:
        return program
    image = bytearray(program.const_image)
    for name, array in values.items():
        if name in program.const:
            start = program.const[name]
            image[start : start + array.nbytes] = array.tobytes()
    return replace(program, const_image=bytes(image))


def instructions_in_loops(program: Program) -> list[bool]:
    """Whether each instruction lies in a loop: between a backward branch and its target.

    Compilers lay out a loop contiguously.
    """
    inside = [False] * len(program.steps)
    for head, ends in loop_branches(program.steps).items():
        inside[head : ends[-1] + 1] = [True] * (ends[-1] + 1 - head)
    return inside


def runs_forward(program: Program) -> bool:
    """Whether a thread executes no instruction twice: nothing branches back, nothing recurs."""
    returns = any(0 <= step.target <= index for index, step in enumerate(program.steps))
    return not returns and STACK_POINTER not in program.registers


def address_registers(step: DecodedInstruction) -> set[str]:
    """The registers that an instruction takes the address of a memory access from."""
    addresses = (o for o in step.instruction.operands if isinstance(o, Address))
    return {name for address in addresses for name in registers_of(address)}


def destinations(step: DecodedInstruction) -> tuple[Operand, ...]:
    """The operands that an instruction writes."""
    if not step.row.to or not step.instruction.operands:
        return ()
    first = step.instruction.operands[0]
    if isinstance(first, DestinationPair):
        return first.first, first.second
    return first.items if isinstance(first, Vector) else (first,)


def _check_variables(variables: Sequence[Variable], named: Collection[str]) -> None:
    """Refuse a kernel that uses a variable whose initial bytes are unknown."""
    for variable in variables:
        if variable.fault and variable.name in named:
            raise PtxError(variable.fault)


def _check_registers(entry: PtxFunction, source: Sequence[str]) -> None:
    """Refuse a kernel that reads a special register that the emulator does not have."""
    known = {"_", *entry.registers}
    for instruction in entry.instructions:
        for name in (name for operand in instruction.operands for name in registers_of(operand)):
            if name not in known and not is_special(name):
                what = f"the emulator has no special register {name}"
                raise instruction_error(instruction, source, what, unsupported_hint(name))
            known.add(name)


def _symbols(instruction: Instruction) -> Iterator[str]:
    """The variables and labels that an instruction names."""
    for operand in instruction.operands:
        named = operand.base if isinstance(operand, Address) else operand
        if isinstance(named, Symbol):
            yield named.name


def _branch_target(instruction: Instruction, row: table.Row, entry: PtxFunction) -> int:
    """The position of a branch's target; -1 for other instructions."""
    if row.kind != "branch":
        return -1
    label = instruction.operands[0] if instruction.operands else None
    if not isinstance(label, Symbol) or label.name not in entry.labels:
        raise PtxError(f"PTX line {instruction.ptx_line}: no such label: {instruction.operands}")
    return entry.labels[label.name]


def is_fetch(row: table.Row) -> bool:
    """Whether an instruction reads the elements of a texture."""
    return row.view == "texture" and row.space == "global"


def counts_itself(row: table.Row) -> bool:
    """Whether the machine code of an instruction counts the bytes that it accesses."""
    return is_fetch(row) or is_bulk_access(row)


def reach_of(step: DecodedInstruction) -> int:
    """Which blocks' shared memory a memory instruction can access: an index of `REACHES`.

    The destination and the barrier of a bulk copy may be another block's, whatever their state
    space. The address of a variable alone and that in a descriptor of `wgmma` have no rank.
    """
    row = step.row
    is_written = row.view == VIEW and row.kind != "load"
    if row.space != "shared" or row.view == CLUSTER_VIEW or is_written:
        return CLUSTER
    has_rank = isinstance(step.address.base, Register) and not is_factor_load(row.opcode)
    return OWN_BLOCK if has_rank else OWN_OFFSET


def bytes_moved(row: table.Row) -> int:
    """Bytes per lane of a memory access; 0 for other instructions.

    It is 1 for the fetch of a texture, whose size only the texture knows, and the unit of sizes for
    a bulk copy.
    """
    if is_fetch(row):
        return 1
    if is_bulk_access(row):
        return PIECE_BYTES
    types = {"load": row.to, "store": row.of, "atomic": row.of, "reduce": row.of}.get(row.kind, ())
    return TYPE_BYTES[types[0]] * row.vector if types else 0


def _counted_bytes(row: table.Row) -> int:
    """The width with which an access is counted that is not merged with others."""
    return bytes_moved(row) if row.counted else 0


def _assign_offsets(
    variables: Sequence[Variable], least_alignment: int
) -> tuple[dict[str, int], int]:
    """Lay out variables one behind the other; gives their offsets and the bytes in all."""
    offsets: dict[str, int] = {}
    end = 0
    for variable in variables:
        align = max(variable.align, least_alignment)
        offsets[variable.name] = -(-end // align) * align
        end = offsets[variable.name] + variable.size
    return offsets, end
