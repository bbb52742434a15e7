"""One launch in the emulator: its memory, which blocks run, and what they counted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.compile import Compiled
from memlab.device.emulator import caches, parser, sampling
from memlab.device.emulator.counters import Patterns, Tally, Trace
from memlab.device.emulator.machine import Chunk
from memlab.device.emulator.memory import GlobalMemory
from memlab.device.emulator.program import Program, load, with_constants
from memlab.device.emulator.recording import Recorder
from memlab.device.emulator.threads import Grid
from memlab.device.inputs import POISON_BYTE, element_type, make_inputs
from memlab.device.measurement import Progress, Verification
from memlab.device.verification import Found, verify
from memlab.errors import UsageError
from memlab.kernels.launch import Buffer, Launch

WHOLE_GRID_LANE_INSTRUCTIONS = 300_000_000
"""Launches up to this size run whole, in about a second; of larger ones, blocks are sampled."""
SAMPLE_LANE_INSTRUCTIONS = 800_000_000
"""Samples of larger blocks are smaller, so that they too take a few seconds."""
CHUNK_LANES = 16_384
"""Lanes at once: registers of this length stay in a CPU's L2 cache, and calls are few."""


def check_host_memory(launch: Launch) -> None:
    """Refuse arrays that the host cannot hold.

    Raises:
        UsageError: Names the bytes needed and available.
    """
    needed = sum(each.nbytes for each in launch.buffers)
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > available:
        raise UsageError(
            f"emulating this launch needs {needed} bytes of host memory for its arrays; "
            f"{available} are free: use smaller sizes, or a GPU with --device 0"
        )


@dataclass(frozen=True)
class Probe:
    """What a block and its neighbours showed."""

    stream: caches.Stream
    path: list[tuple[int, int]]
    lane_instructions_per_block: float


class Execution:
    """One launch in the emulator, with its memory."""

    def __init__(self, launch: Launch, program: Program, seed: int, source: list[str]) -> None:
        self.launch, self.seed, self.source = launch, seed, source
        sizes = {each.name: (each.nbytes, each.element_bytes) for each in launch.buffers}
        sizes |= {each.name: (each.size, 4) for each in program.globals}
        self.memory = GlobalMemory(sizes)
        self.inputs = make_inputs(launch, seed, {b.name: self.array(b) for b in launch.buffers})
        for buffer in launch.outputs:
            if buffer.name in self.inputs:  # the kernel writes over what it reads: keep that
                self.inputs[buffer.name] = self.inputs[buffer.name].copy()
        self.program = with_constants(
            program, {c.name: self.inputs[c.name] for c in launch.constants}
        )
        self.grid = Grid(launch.grid, launch.block, launch.dynamic_shared_bytes, self._parameters())
        self.patterns = Patterns()
        self.reset()

    @classmethod
    def of(cls, launch: Launch, compiled: Compiled, seed: int) -> Execution:
        """Load a compiled launch and draw its inputs.

        Raises:
            PtxError: It has an instruction that the emulator does not know.
            UsageError: The host has too little memory for the arrays.
        """
        check_host_memory(launch)
        source = launch.source.splitlines()
        program = load(parser.parse(compiled.ptx), launch.entry, source)
        return cls(launch, program, seed, source)

    def array(self, buffer: Buffer) -> NDArray[Any]:
        """A buffer's elements, as a view of the emulated memory."""
        raw = self.memory.bytes_of(buffer.name)
        return raw.view(element_type(buffer.dtype)).reshape(buffer.shape)

    def reset(self) -> None:
        """Give the arrays that the kernel writes, and module variables, their initial values."""
        for buffer in self.launch.outputs:
            if buffer.name in self.inputs:
                self.array(buffer)[...] = self.inputs[buffer.name]
            else:
                self.memory.bytes_of(buffer.name)[:] = POISON_BYTE
        given = {each.name for each in self.launch.constants}
        for variable in self.program.globals:
            initial = variable.initial or bytes(variable.size)
            if variable.name in given:
                initial = self.inputs[variable.name].tobytes()
            self.memory.bytes_of(variable.name)[:] = np.frombuffer(initial, np.uint8)
        self.memory.forget_writes()

    def probe(self) -> Probe:
        """Run a block in the middle of the grid and its neighbours, recording all they do.

        The memory is then as it was before.
        """
        probes = caches.probe_blocks(self.launch.grid, sampling.center(self.launch.grid))
        trace = Trace()
        tally = self._run(probes, trace)
        self.reset()
        return Probe(
            stream=caches.record(self.program, trace, probes),
            path=trace.path,
            lane_instructions_per_block=sum(tally.lanes) / len(probes),
        )

    def count(self, cost_per_block: float, report: Progress) -> tuple[int, Tally]:
        """Run the grid, or a sample of it; give the blocks run and whole-grid counts."""
        if cost_per_block * self.launch.blocks <= WHOLE_GRID_LANE_INSTRUCTIONS:
            parts = [sampling.Stratum(sampling.all_blocks(self.launch.grid), self.launch.blocks)]
        else:
            most = SAMPLE_LANE_INSTRUCTIONS / cost_per_block
            parts = sampling.strata(self.launch.grid, self.seed, most)
        wanted = sum(len(part.blocks) for part in parts)
        total, done = Tally.zeros(len(self.program.steps)), 0
        for part in parts:
            counted = Tally.zeros(len(self.program.steps))
            for blocks in self._chunks(part.blocks):
                counted.add(self._run(blocks, None))
                done += len(blocks)
                report("emulating", done / wanted)
            total.add(counted, part.size, len(part.blocks))
        return wanted, total

    def verify(self, whole: bool) -> Verification:
        """Compare the outputs of the blocks that ran with the references."""
        found = {}
        for output in self.launch.outputs:
            values = self.array(output).reshape(-1)
            index = np.arange(values.size) if whole else self.memory.elements_written(output.name)
            found[output.name] = Found(index, values[index])
        return verify(self.launch, self.inputs, found)

    def record(self, blocks: NDArray[np.int64], recorder: Recorder) -> Tally:
        """Run some blocks while a recorder watches, and count them."""
        counted = Tally.zeros(len(self.program.steps))
        for chunk in self._chunks(blocks):
            counted.add(self._run(chunk, None, recorder))
        return counted

    def _run(
        self,
        blocks: NDArray[np.int64],
        trace: Trace | None,
        recorder: Recorder | None = None,
    ) -> Tally:
        chunk = Chunk(
            self.program,
            self.grid,
            blocks,
            self.memory,
            self.patterns,
            trace,
            self.source,
            recorder,
        )
        return chunk.run()

    def _chunks(self, blocks: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        step = max(1, CHUNK_LANES // self.grid.padded_threads)
        for start in range(0, len(blocks), step):
            yield blocks[start : start + step]

    def _parameters(self) -> bytes:
        space = bytearray(self.program.parameter_bytes)
        for argument, variable in zip(
            self.launch.arguments, self.program.parameter_variables, strict=True
        ):
            if isinstance(argument, Buffer):
                value = np.uint64(self.memory.find(argument.name).address).tobytes()
            else:
                value = np.array(argument.value, element_type(argument.dtype)).tobytes()
            start = self.program.parameters[variable.name]
            space[start : start + variable.size] = value.ljust(variable.size, b"\0")
        return bytes(space)
