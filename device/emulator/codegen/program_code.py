"""The machine code of a program: compiled once, and kept in the cache of compilations."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeAlias

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from memlab.device.compiler.cache import hash_groups, load_parts, store_parts
from memlab.device.emulator.codegen import scoreboard_code
from memlab.device.emulator.codegen.frame import FrameLayout, lay_out_frame
from memlab.device.emulator.codegen.layout import SITE, SITE_KINDS, SPACES, STRETCH, STRETCH_KINDS
from memlab.device.emulator.codegen.llvm import (
    EMULATOR,
    Library,
    compile_module,
    describe_target,
    library_of,
    source_digest,
)
from memlab.device.emulator.codegen.memory_code import MEMORY
from memlab.device.emulator.codegen.schedule_code import SCHEDULE
from memlab.device.emulator.codegen.stretch_code import (
    ProgramCode,
    write_stretches,
)
from memlab.device.emulator.codegen.stretches import (
    INTERPRETED_KINDS,
    Stretch,
    find_stretches,
    is_partial,
    reads_clock,
    registers_read_first,
    waits_for_members,
)
from memlab.device.emulator.program.call_stack import STACK_POINTER
from memlab.device.emulator.program.polling_loops import PollingLoop, find_polling_loops
from memlab.device.emulator.program.program import (
    ACCESS_KINDS,
    DecodedInstruction,
    Program,
    bytes_moved,
    counts_itself,
    instructions_in_loops,
    reach_of,
)

_CLOCK_STEP = 64  # cycles by which a clock advances at each read, so that timed waits end
_LARGE_PROGRAM_INSTRUCTIONS = 1000
"""Of a longer program, only so many instructions, in loops, are optimized, so that compiling takes
seconds at most."""
_FUNCTION_INSTRUCTIONS = 32
"""How many instructions a function of several stretches has at most."""
_PASSES = (
    "sroa",
    "post_order_function_attributes",
    "simplify_cfg",
    "new_gvn",
    "instruction_combine",
    "simplify_cfg",
)
"""The passes that programs need; LLVM's whole pipeline makes no faster code of them, in three times
the time."""
_WATCHED_PROGRAM_SHARE = 0.1
"""Where more than this share of the instructions is watched, code is not optimized: Python takes
most of the time, and compiling takes a quarter (measured)."""


@dataclass(frozen=True)
class NativeProgram:
    """A program with its machine code.

    Attributes:
        program: The program.
        layout: Where registers lie in a frame.
        zeroed: The bytes of a frame that must be zeros when its warp begins.
        stretches: Its stretches; their numbers are the slots.
        slots: A `STRETCH` record per slot.
        slot_at: The slot at a program counter, -1 where no group can be; shape (instructions + 1,).
        sites: A `SITE` record per memory instruction.
        polling_loops: The loops that poll memory, by their first instruction.
        has_partial_barriers: Whether there are barriers that not all threads of a block reach.
        order_starts: Slots of basic blocks, ascending, where their order is not that of the slots.
        library: The loaded code.
    """

    program: Program
    layout: FrameLayout
    zeroed: Sequence[slice]
    stretches: Sequence[Stretch]
    slots: NDArray[np.void]
    slot_at: NDArray[np.int64]
    sites: NDArray[np.void]
    polling_loops: Mapping[int, PollingLoop]
    has_partial_barriers: bool
    order_starts: NDArray[np.int64]
    library: Library

    @cached_property
    def uncounted(self) -> list[int]:
        """The memory instructions whose bytes count as none."""
        return [index for index in self._at if not self.program.steps[index].row.counted]

    @cached_property
    def count_themselves(self) -> list[int]:
        """The memory instructions whose machine code counts the bytes."""
        return [index for index in self._at if counts_itself(self.program.steps[index].row)]

    @property
    def _at(self) -> list[int]:
        at: list[int] = self.sites["index"].tolist()
        return at

    def call(self, name: str, context: int, *arguments: int) -> int:
        """Call a function of the schedule (`schedule_code`) on a context, by its host address."""
        return _schedule_function(name, len(arguments))(context, *arguments)


_MOST_LOADED = 32  # programs whose code stays loaded, beside those that run
_Key: TypeAlias = tuple[str, str, tuple[int, ...], tuple[int, ...], frozenset[int]]
_loaded: dict[_Key, NativeProgram] = {}


def native_program(
    program: Program, watched: Collection[int] = (), source: Sequence[str] = ()
) -> NativeProgram:
    """The machine code of a program; it is compiled if the cache does not have it.

    Args:
        program: The program.
        watched: See `find_stretches`.
        source: The CUDA source's lines, for messages.

    Raises:
        PtxError: The operands of an instruction do not suit its opcode.
    """
    counted = program.counted_bytes, program.lanes_in_turn
    key = program.digest, program.name, *counted, frozenset(watched)
    known = _loaded.get(key)
    if known is None:
        known = _load(program, watched, source)
        if len(_loaded) >= _MOST_LOADED:
            del _loaded[next(iter(_loaded))]
        _loaded[key] = known
    return known


def _load(program: Program, watched: Collection[int], source: Sequence[str]) -> NativeProgram:
    loops = find_polling_loops(program)
    # What a loop that polls writes is compared from iteration to iteration.
    kept = {name for loop in loops.values() for name in loop.written}
    if STACK_POINTER in program.registers:  # groups of lanes are told apart by it
        kept.add(STACK_POINTER)
    stretches = find_stretches(program, watched, kept)
    layout, sites = lay_out_frame(program), _sites(program)
    functions = _functions(stretches)
    key = hash_groups(
        [
            (_engine_digest(), describe_target(), program.digest, program.name),
            sorted(map(str, watched)),
        ]
    )
    codes = load_parts(key)
    if codes is None:
        levels = _optimization(program, functions, watched)
        codes = _compile(program, functions, layout, sites, source, levels)
        store_parts(key, codes)
    library = Library(codes, functions, runtime().addresses)
    numbers = {stretch.start: slot for slot, stretch in enumerate(stretches)}
    slot_at = np.full(len(program.steps) + 1, -1, np.int64)
    slot_at[list(numbers)] = list(numbers.values())
    order = program.order
    starts = [] if order is None else [numbers[start] for start in order.starts]
    return NativeProgram(
        program,
        layout,
        layout.parts(registers_read_first(program, stretches)),
        stretches,
        _slots(program, stretches, functions, layout, library, numbers, loops),
        slot_at,
        sites,
        loops,
        any(map(is_partial, program.steps)),
        np.array(starts, np.int64),
        library,
    )


def _functions(stretches: Sequence[Stretch]) -> dict[str, list[Stretch]]:
    """The stretches of each function that is compiled, by its name.

    A function takes LLVM as long as some ten instructions. So short stretches share one.
    """
    functions: dict[str, list[Stretch]] = {}
    room, name = 0, ""
    for stretch in stretches:
        length = stretch.stop - stretch.start
        if not length:
            continue
        if length > room:
            name, room = f"stretch{stretch.start}", _FUNCTION_INSTRUCTIONS
            functions[name] = []
        functions[name].append(stretch)
        room -= length
    return functions


@cache
def runtime() -> Library:
    """The code that all programs share: memory accesses, scheduling, and the scoreboard."""
    functions = (*MEMORY, *SCHEDULE, scoreboard_code.follow_path)
    return library_of("runtime", EMULATOR / "program", *functions)


def follow_path(
    ranges: NDArray[np.int64],
    instructions: NDArray[np.void],
    operands: NDArray[np.int64],
    registers: int,
) -> float:
    """Call `follow_path` of `scoreboard_code`; `ranges` has shape (ranges, 2)."""
    arrays = (np.ascontiguousarray(ranges), instructions, operands, np.zeros(registers))
    first, *others = (array.ctypes.data for array in arrays)
    kinds = [ctypes.c_void_p, ctypes.c_int64] + 3 * [ctypes.c_void_p]
    function = runtime().function("follow_path", ctypes.c_double, *kinds)
    return float(function(first, len(ranges), *others))


@cache
def _schedule_function(name: str, arguments: int) -> Callable[..., int]:
    kinds = [ctypes.c_void_p] + [ctypes.c_int64] * arguments
    function: Callable[..., int] = runtime().function(name, ctypes.c_int64, *kinds)
    return function


def _engine_digest() -> str:
    """A hash of what decides which code is made: the source files of the emulator."""
    return source_digest(*(EMULATOR / room for room in ("codegen", "isa", "program", "sampling")))


def _compile(
    program: Program,
    functions: Mapping[str, Sequence[Stretch]],
    layout: FrameLayout,
    sites: NDArray[np.void],
    source: Sequence[str],
    levels: Mapping[str, int],
) -> list[bytes]:
    """The object code of the functions, a module for each level of optimization."""
    numbers = {int(index): number for number, index in enumerate(sites["index"])}
    variables = {variable.name: number for number, variable in enumerate(program.globals)}
    code = ProgramCode(program, layout, numbers, variables)
    codes = []
    with _collection_off():
        for level in sorted(set(levels.values())):
            module = ir.Module(program.name)
            for name, stretches in functions.items():
                if levels[name] == level:
                    write_stretches(module, name, code, stretches, source)
            codes.append(compile_module(module, level, _PASSES if level else ()))
    return codes


@contextmanager
def _collection_off() -> Iterator[None]:
    """No garbage collection: nothing of the many objects of a module can be freed before its end.

    It would take an eighth of the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _optimization(
    program: Program, functions: Mapping[str, Sequence[Stretch]], watched: Collection[int]
) -> dict[str, int]:
    """LLVM's level of optimization for each function."""
    if _WATCHED_PROGRAM_SHARE * len(program.steps) < len(watched):
        return dict.fromkeys(functions, 0)
    if len(program.steps) <= _LARGE_PROGRAM_INSTRUCTIONS:
        return dict.fromkeys(functions, 2)
    levels, left, in_loop = {}, _LARGE_PROGRAM_INSTRUCTIONS, instructions_in_loops(program)
    for name, stretches in functions.items():
        repeats = left > 0 and any(in_loop[stretch.start] for stretch in stretches)
        levels[name] = int(repeats)
        left -= repeats * (stretches[-1].stop - stretches[0].start)
    return levels


def _sites(program: Program) -> NDArray[np.void]:
    """The record of each memory instruction."""
    records = []
    for index, step in enumerate(program.steps):
        row = step.row
        if row.kind not in ACCESS_KINDS:
            continue
        width = bytes_moved(row) // row.vector
        kind = SITE_KINDS.index("atomic" if row.kind == "reduce" else row.kind)
        records.append(
            (
                index,
                step.address.offset,
                kind,
                SPACES.index(row.space),
                width,
                row.vector,
                width * row.vector,
                step.counted_bytes,
                step.lanes_in_turn,
                reach_of(step),
                0,
                0,
            )
        )
    return np.array(records, SITE)


def _slots(
    program: Program,
    stretches: Sequence[Stretch],
    functions: Mapping[str, Sequence[Stretch]],
    layout: FrameLayout,
    library: Library,
    numbers: Mapping[int, int],
    loops: Collection[int],
) -> NDArray[np.void]:
    """The record of each slot."""
    records = np.zeros(len(stretches), STRETCH)
    codes = {
        stretch.start: (library.addresses[name], number)
        for name, members in functions.items()
        for number, stretch in enumerate(members)
    }
    order = program.order
    heads = {head: number for number, head in enumerate(program.loop_heads)}
    for record, stretch in zip(records, stretches, strict=True):
        start, stop = stretch.start, stretch.stop
        step = program.steps[start] if start < len(program.steps) else None
        kind = "end" if step is None else _slot_kind(step)
        record["start"], record["stop"] = start, stop
        record["kind"] = STRETCH_KINDS.index(kind)
        record["order"] = start if order is None else order.positions[start]
        record["guard"] = record["closes"] = -1
        record["loop"] = heads.get(start, -1)
        if step is None:
            continue
        record["next"] = numbers[max(stop, start + 1)]
        if step.instruction.guard is not None:
            record["guard"] = layout.offsets[step.instruction.guard]
            record["negated"] = step.instruction.guard_negated
        if kind == "code":
            record["code"], record["number"] = codes[start]
            record["clock"] = _CLOCK_STEP * reads_clock(step)
            record["waits"] = waits_for_members(step)
            continue
        if kind == "branch":
            record["target"] = numbers[step.target]
            if step.target <= start:
                record["polls"] = step.target in loops
                record["closes"] = heads.get(step.target, -1)
    return records


def _slot_kind(step: DecodedInstruction) -> str:
    kind = step.row.kind
    if kind in INTERPRETED_KINDS:
        return "python"
    return kind if kind in STRETCH_KINDS else "code"
