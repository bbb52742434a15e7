"""Runs small PTX texts with the emulator and with the tools of `check`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.checking.findings import TOOLS
from memlab.device.emulator.checks.checker import Checker
from memlab.device.emulator.checks.observations import Site
from memlab.device.emulator.machine.context import Workspace
from memlab.device.emulator.machine.machine import Chunk
from memlab.device.emulator.machine.memory import GlobalMemory
from memlab.device.emulator.machine.observer import Observer
from memlab.device.emulator.machine.tally import Tally
from memlab.device.emulator.machine.threads import Grid
from memlab.device.emulator.program.program import Program, load_program
from memlab.device.emulator.ptx.parser import parse_ptx


class Launched:
    """A finished run: the arrays as the kernel left them, the program, its tally and its memory."""

    def __init__(
        self, arrays: dict[str, Any], program: Program, tally: Tally, memory: GlobalMemory
    ) -> None:
        self.arrays, self.program, self.tally, self.memory = arrays, program, tally, memory

    def __getitem__(self, name: str) -> Any:
        return self.arrays[name]

    def counted(self, opcode: str) -> dict[str, int]:
        """The tally of the only instruction with an opcode."""
        (index,) = (
            index
            for index, step in enumerate(self.program.steps)
            if step.instruction.opcode == opcode
        )
        by_loop = ("rounds", "rests")
        return {
            name: values[index] for name, values in vars(self.tally).items() if name not in by_loop
        }


def kernel(body: str, parameters: str = "", functions: str = "", target: str = "sm_100") -> str:
    """A module with one entry, `k`; `parameters` such as `.u64 a, .u32 n`."""
    declarations = ", ".join(
        f".param {parameter.strip()}" for parameter in parameters.split(",") if parameter.strip()
    )
    return (
        f".version 8.8\n.target {target}\n.address_size 64\n{functions}\n"
        f".visible .entry k({declarations})\n{{\n{body}\n}}\n"
    )


def run(
    text: str,
    arrays: Mapping[str, Any],
    scalars: Sequence[Any] | Mapping[str, Any] = (),
    *,
    entry: str = "k",
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (32, 1, 1),
    dynamic_shared_bytes: int = 0,
    blocks: Sequence[tuple[int, int, int]] | None = None,
    chunk: int | None = None,
    source: Sequence[str] = (),
    order: Sequence[str] = (),
    observers: Sequence[Observer] = (),
) -> Launched:
    """Run all blocks; parameters are the arrays' addresses, then the scalars.

    Args:
        text: The PTX.
        arrays: What lies in global memory; `__device__` variables are found by their name.
        scalars: NumPy scalars or bytes, for the parameters behind the arrays.
        entry: The kernel.
        grid: Blocks.
        block: Threads of a block.
        dynamic_shared_bytes: Size of the `extern __shared__` array.
        blocks: Which blocks to run instead of all.
        chunk: How many blocks run at a time; None for all.
        source: Lines for messages.
        order: Names of arrays and scalars (then a mapping), where they are mixed.
        observers: Watch the run.
    """
    program = load_program(parse_ptx(text), entry, source)
    memory = fill_memory(program, arrays)
    launch = Grid(
        grid, block, dynamic_shared_bytes, parameter_space(program, memory, arrays, scalars, order)
    )
    if blocks is None:
        blocks = blocks_of(grid)
    patterns, tally = Workspace(), Tally.of(program)
    for first in range(0, len(blocks), chunk or len(blocks)):
        some = np.array(blocks[first : first + (chunk or len(blocks))])
        started = Chunk(program, launch, some, memory, patterns, observers=observers, source=source)
        started.execute()
        tally.add(started.take_tally())
    return Launched(arrays_left(program, memory, arrays), program, tally, memory)


WORD_THREADS = 88
READ_WORD = f""".reg .pred %p<9>; .reg .b32 %r<32>; .reg .b64 %a<9>;
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, {WORD_THREADS}, %r1;
ld.param.u64 %a1, [in]; mul.wide.u32 %a2, %r3, 4; add.u64 %a1, %a1, %a2;
ld.global.u32 %r4, [%a1];
"""
"""Loads the word of a thread of a block of `WORD_THREADS` to %r4."""
LOOP_BY_WORD = (
    READ_WORD
    + """mov.u32 %r5, 0;
HEAD: add.s32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, %r4; @%p1 bra HEAD;
ret;"""
)
"""A loop with as many trips as the thread's word says."""


def run_with_words(body: str, words: NDArray[np.uint32], chunk: int | None = None) -> Launched:
    """Run a body that begins with `READ_WORD`; words of shape (blocks, WORD_THREADS)."""
    grid, block = (len(words), 1, 1), (WORD_THREADS, 1, 1)
    return run(kernel(body, ".u64 in"), {"in": words}, grid=grid, block=block, chunk=chunk)


def blocks_of(grid: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """The coordinates of all blocks, in launch order."""
    return [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]


def fill_memory(program: Program, arrays: Mapping[str, Any]) -> GlobalMemory:
    """Global memory with the arrays, followed by the `__device__` variables."""
    variables = {variable.name: variable for variable in program.globals}
    sizes = {name: (np.asarray(a).nbytes, np.asarray(a).itemsize) for name, a in arrays.items()}
    memory = GlobalMemory(
        sizes | {variable.name: (variable.size, 1) for variable in variables.values()}
    )
    for name, array in arrays.items():
        memory.bytes_of(name)[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for variable in variables.values():
        memory.bytes_of(variable.name)[:] = np.frombuffer(
            variable.initial or bytes(variable.size), np.uint8
        )
    return memory


def parameter_space(
    program: Program,
    memory: GlobalMemory,
    arrays: Mapping[str, Any],
    scalars: Sequence[Any] | Mapping[str, Any] = (),
    order: Sequence[str] = (),
) -> bytes:
    """The parameter space: the arrays' addresses, then the scalars, at the parameters' offsets."""
    arguments: dict[str, Any] = {name: np.uint64(memory.find(name).address) for name in arrays}
    arguments |= scalars if isinstance(scalars, Mapping) else dict(enumerate(scalars))
    values = [arguments[name] for name in order or arguments]
    values = [
        value if isinstance(value, bytes) else np.asarray(value).tobytes() for value in values
    ]
    space = bytearray(program.parameter_bytes)
    for variable, value in zip(program.parameter_variables, values, strict=True):
        offset = program.parameters[variable.name]
        space[offset : offset + variable.size] = value.ljust(variable.size, b"\0")
    return bytes(space)


def arrays_left(
    program: Program, memory: GlobalMemory, arrays: Mapping[str, Any]
) -> dict[str, Any]:
    """The arrays and variables as they are in memory."""
    left = {
        name: memory.bytes_of(name).view(np.asarray(array).dtype).reshape(np.shape(array)).copy()
        for name, array in arrays.items()
    }
    return left | {
        variable.name: memory.bytes_of(variable.name).copy() for variable in program.globals
    }


@dataclass(frozen=True, order=True)
class Mistake:
    """A mistake that a tool of `check` has found.

    Attributes:
        tool: The tool.
        kind: Its kind of mistake.
        space: The state space; empty where there is none.
        array: The number of the array in its space; -1 where there is none.
        offset: Bytes from the start of the array; the address itself where there is none.
        count: How many threads made it, each as often as it did.
        at: Source line, block and thread of the first.
        other: The same of the other thread; None where there is none.
    """

    tool: str
    kind: str
    space: str
    array: int
    offset: int
    count: int
    at: tuple[int, int, int]
    other: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Checked:
    """A checked run: the mistakes in the order of detection, the arrays and the checker."""

    mistakes: tuple[Mistake, ...]
    arrays: Mapping[str, Any]
    checker: Checker

    def of(self, tool: str) -> list[Mistake]:
        """The mistakes that one tool has found."""
        return [mistake for mistake in self.mistakes if mistake.tool == tool]


def numbered(body: str) -> str:
    """The same PTX with the number of each line, from 1, as its source line."""
    return "\n".join(f".loc 1 {n} 1\n{line}" for n, line in enumerate(body.splitlines(), 1))


def check(
    text: str,
    arrays: Mapping[str, Any],
    scalars: Sequence[Any] | Mapping[str, Any] = (),
    *,
    grid: int = 1,
    block: int = 32,
    dynamic_shared_bytes: int = 0,
    chunk: int | None = None,
    inputs: Collection[str] = (),
    outputs: Collection[str] = (),
    tools: Collection[str] = TOOLS,
) -> Checked:
    """Run all blocks, `chunk` of them at a time, through the tools of `check`.

    Args:
        text: The PTX; its entry is `k`.
        arrays: As of `run`.
        scalars: As of `run`.
        grid: Blocks.
        block: Threads of a block.
        dynamic_shared_bytes: As of `run`.
        chunk: How many blocks run at a time; None for all.
        inputs: The arrays that are only read.
        outputs: The arrays that hold nothing at first.
        tools: The tools to check with.
    """
    program = load_program(parse_ptx(text), "k")
    memory = fill_memory(program, arrays)
    extents = {
        "global": [
            (allocation.address, allocation.address + allocation.size)
            for allocation in memory.allocations
        ],
        "shared": _extents(program, program.shared, dynamic_shared_bytes),
        "local": _extents(program, program.local),
        "const": _extents(program, program.const),
    }
    parameters = parameter_space(program, memory, arrays, scalars)
    launch = Grid((grid, 1, 1), (block, 1, 1), dynamic_shared_bytes, parameters)
    checker = Checker(program, launch, memory, extents, inputs, outputs, tools)
    blocks = np.array(blocks_of((grid, 1, 1)))
    for first in range(0, grid, chunk or grid):
        some = blocks[first : first + (chunk or grid)]
        Chunk(program, launch, some, memory, Workspace(), observers=[checker]).execute()

    def site(place: Site) -> tuple[int, int, int]:
        line, (x, _, _), thread = checker.place(place)
        return line, x, thread

    mistakes = tuple(
        Mistake(
            seen.tool,
            seen.kind,
            seen.space,
            seen.array,
            seen.address - (extents[seen.space][seen.array][0] if seen.array >= 0 else 0),
            seen.count,
            site(seen.at),
            None if seen.other is None else site(seen.other),
        )
        for seen in checker.observations()
    )
    return Checked(mistakes, arrays_left(program, memory, arrays), checker)


def _extents(
    program: Program, variables: Mapping[str, int], dynamic: int = 0
) -> list[tuple[int, int]]:
    """The address ranges of variables; the array sized at launch is last."""
    return [
        (start, start + (program.sizes[name] or dynamic))
        for name, start in sorted(variables.items(), key=lambda item: item[1])
    ]


def map_lanes(
    lines: str,
    inputs: Sequence[Any],
    output: Any,
    declarations: str = "",
    target: str = "sm_100",
) -> Any:
    """Run straight-line code once per lane, on thousands of values.

    Args:
        lines: PTX that reads `%i0`, `%i1`, … and writes `%o`; the names end in nothing else.
        inputs: Arrays of one length, their element a lane each.
        output: The result's dtype.
        declarations: More `.reg` lines.
        target: The architecture.
    """
    count = len(inputs[0])
    threads = min(1024, count)
    blocks = -(-count // threads)
    padded = blocks * threads
    arrays = {}
    body = [".reg .pred %bit; .reg .b32 %t<4>; .reg .b64 %at<9>; .reg .b16 %small;", declarations]
    body.append("mov.u32 %t0, %tid.x; mov.u32 %t1, %ctaid.x; mov.u32 %t2, %ntid.x;")
    body.append("mad.lo.u32 %t3, %t1, %t2, %t0;")
    for number, values in enumerate(inputs):
        values = np.asarray(values)
        arrays[f"in{number}"] = np.resize(values, padded)
        width = values.dtype.itemsize
        register = f"%i{number}"
        body.append(f"ld.param.u64 %at{number}, [in{number}];")
        body.append(f"mul.wide.u32 %at8, %t3, {width}; add.u64 %at{number}, %at{number}, %at8;")
        if values.dtype == bool:
            body.append(f".reg .pred {register}; ld.global.u8 %small, [%at{number}];")
            body.append(f"setp.ne.u16 {register}, %small, 0;")
        else:
            kind = f"{8 * max(width, 2)}"
            body.append(
                f".reg .b{kind} {register}; ld.global.b{8 * width} {register}, [%at{number}];"
            )
    dtype = np.dtype(output)
    bits = 8 * dtype.itemsize
    body.append(f".reg .{'pred' if dtype.kind == 'b' else f'b{max(bits, 16)}'} %o;")
    body.append(lines)
    body.append(f"ld.param.u64 %at7, [out]; mul.wide.u32 %at8, %t3, {dtype.itemsize};")
    body.append("add.u64 %at7, %at7, %at8;")
    if dtype.kind == "b":
        body.append("selp.u16 %small, 1, 0, %o; st.global.u8 [%at7], %small;")
    else:
        body.append(f"st.global.b{bits} [%at7], %o;")
    body.append("ret;")
    arrays["out"] = np.zeros(padded, dtype)
    parameters = ", ".join(f".u64 {name}" for name in arrays)
    text = kernel("\n".join(body), parameters, target=target)
    return run(text, arrays, grid=(blocks, 1, 1), block=(threads, 1, 1))["out"][:count]
