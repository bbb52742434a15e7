"""The emulator in place of a GPU session: launches are executed, every one takes the same time."""

from dataclasses import replace

import numpy as np

from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.translation_unit import CompilerOutput, TranslationUnit
from memlab.device.emulator.machine.context import Workspace
from memlab.device.emulator.machine.machine import Chunk
from memlab.device.emulator.machine.memory import GlobalMemory
from memlab.device.emulator.machine.threads import Grid
from memlab.device.emulator.program.program import load_program
from memlab.device.emulator.ptx.parser import parse_ptx
from memlab.device.gpu.peaks import latencies as peak_latencies
from memlab.device.gpu.peaks import rates as peak_rates
from memlab.device.gpu.timing import Sample, Samples

MEMORY_BYTES = 2**23
STREAM_BYTES = 2**18
PEAK_SIZES = {
    peak_rates: {
        "STREAM_BYTES": STREAM_BYTES,
        "STREAM_GRANULARITY_BYTES": 2**15,
        "CHECKED_BYTES": STREAM_BYTES // 2,
        "MIN_L2_MULTIPLE": 2,
        "CALIBRATION_TRIPS": 1,
    },
    peak_latencies: {
        "LATENCY_STEPS": 63 * 16,
        "CHAIN_STEPS": 63 * 16,
        "L2_TESTED_LINES": 64,
        "L1_FOOTPRINT": 2**12,
        "SMALLEST_FOOTPRINT": 2**15,
        "LARGEST_FOOTPRINT": 2**18,
        "SWEEP_BYTES_PER_SM": 2**17,
    },
}
"""Sizes of the micro-benchmarks of peaks with which the emulator needs only seconds, by module."""


class Pointer(int):
    """An address on the emulated GPU."""


class EmulatedSession:
    """Replaces `GpuSession`; every launch takes `rates.TARGET_LAUNCH_S`."""

    multiprocessors, l2_bytes = 1, 2**17

    def __init__(self, index, link, memlab_kernels):
        self._data, self._used, self.launched = np.zeros(MEMORY_BYTES, np.uint8), 0, []
        self._base = GlobalMemory({"all": (MEMORY_BYTES, 1)}).find("all").address

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def clock_hz(self):
        return 1e9

    def load(self, ptx, entry):
        return entry, load_program(parse_ptx(ptx.decode()), entry, ())

    def free_bytes(self):
        return MEMORY_BYTES - self._used

    def array(self, content):
        size = content if isinstance(content, int) else content.nbytes
        start = self._used
        self._used += -(-size // 1024) * 1024
        self._data[start : start + size] = (
            0xFF if isinstance(content, int) else content.reshape(-1).view(np.uint8)
        )
        return Pointer(self._base + start)

    def read(self, pointer, into):
        start = pointer - self._base
        into.reshape(-1).view(np.uint8)[:] = self._data[start : start + into.nbytes]
        return into

    def launch(self, function, grid, block, arguments, shared_bytes=0):
        entry, program = function
        self.launched.append(entry)
        variables = {variable.name: variable for variable in program.globals}
        sizes = {name: (variable.size, 1) for name, variable in variables.items()}
        memory = GlobalMemory({"all": (MEMORY_BYTES, 1), **sizes})
        memory.bytes_of("all")[:] = self._data
        for name, variable in variables.items():
            initial = variable.initial or bytes(variable.size)
            memory.bytes_of(name)[:] = np.frombuffer(initial, np.uint8)
        space = bytearray(program.parameter_bytes)
        for variable, given in zip(program.parameter_variables, arguments, strict=True):
            value = np.uint64(given) if isinstance(given, Pointer) else given
            offset = program.parameters[variable.name]
            space[offset : offset + variable.size] = value.tobytes().ljust(variable.size, b"\0")
        blocks = np.array([(x, 0, 0) for x in range(grid[0])])
        launch = Grid(grid, block, shared_bytes, bytes(space))
        Chunk(program, launch, blocks, memory, Workspace()).execute()
        self._data[:] = memory.bytes_of("all")

    def time(self, launch, settings, flush, what, report=None):
        launch()
        if report:
            report()
        return Samples((Sample(peak_rates.TARGET_LAUNCH_S, 1e9),))


class Reports:
    """A link that records its reports."""

    def __init__(self):
        self.heard = []

    def report(self, what, fraction=None):
        self.heard.append((what, fraction))


def ptx_for_cubin(unit: TranslationUnit) -> CompilerOutput:
    """Compile to PTX for the emulator, except code for a single architecture."""
    output = compile_unit(replace(unit, options=()))
    return replace(output, cubin=output.ptx.encode())
