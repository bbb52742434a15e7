"""Functions that the driver adds to a kernel: `printf`, `malloc` and `free`.

Their machine code is in no cubin. The figures here are those of an H200 (driver 580.159.04): calls
by some lanes of some warps, of `printf` with 5 characters and no number
(`benchmarks/runtime_calls.cu`, `tests/data/h200-runtime-calls.csv`). A character more takes 16
instructions; that 32 of them are a sector of the L2 is left out. Warps that allocate at the same
time execute up to 30 times as many instructions as one, since they wait for each other; neither
those nor their reads are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace

from memlab.device.emulator.machine.tally import Tally
from memlab.device.emulator.program.program import Program
from memlab.device.machine_code.instructions import MachineCode
from memlab.device.measurement import Counters

RUNTIME = "runtime"
"""In place of a pipe: their instructions, of which the pipes were not measured."""


@dataclass(frozen=True)
class RuntimeFunction:
    """What a call of such a function takes.

    Attributes:
        call_s: The time of a call by one lane.
        further_lane_s: The time that each further lane of the warp takes.
        first_call_s: What the first call of a launch takes longer: its code is in no cache.
        serial_s: The time from a call to the next one, where many warps call.
        further_lane_serial_s: What each further lane adds to it.
        instructions: Instructions of a lane that calls alone; 0 where they are not counted.
        further_lane_instructions: What each further lane adds to those of the warp.
        together_instructions: What each further lane adds to those of each lane.
        l2_read_sectors: Sectors that a warp's call reads from the L2; 0 where they are not counted.
        l2_missed_sectors: Those of them that the L2 does not hold.
        code_bytes: What the first call of a launch reads from DRAM.
    """

    call_s: float
    further_lane_s: float
    first_call_s: float
    serial_s: float
    further_lane_serial_s: float
    instructions: float = 0.0
    further_lane_instructions: float = 0.0
    together_instructions: float = 0.0
    l2_read_sectors: int = 0
    l2_missed_sectors: int = 0
    code_bytes: int = 0


RUNTIME_FUNCTIONS = {
    "vprintf": RuntimeFunction(
        call_s=20.6e-6,
        further_lane_s=0.10e-6,
        first_call_s=6.5e-6,
        serial_s=2.25e-6,
        further_lane_serial_s=0.25e-6,
        instructions=6878.0,
        further_lane_instructions=15.0,
        together_instructions=11.75,
        l2_read_sectors=3,
        l2_missed_sectors=1,
        code_bytes=21_500,
    ),
    "malloc": RuntimeFunction(
        call_s=8.7e-6,
        further_lane_s=1.73e-6,
        first_call_s=21.9e-6,
        serial_s=2.6e-6,
        further_lane_serial_s=0.05e-6,
        code_bytes=41_500,
    ),
    "free": RuntimeFunction(
        call_s=7.6e-6,
        further_lane_s=0.34e-6,
        first_call_s=10.2e-6,
        serial_s=7.9e-6,
        further_lane_serial_s=0.03e-6,
        code_bytes=19_500,
    ),
}
"""The functions, by the names that the PTX calls them."""


@dataclass(frozen=True)
class RuntimeCall:
    """The calls of such a function by one instruction.

    Attributes:
        function: The function.
        warps: Warps that call it.
        lanes: Lanes of each that do so, in the mean.
    """

    function: RuntimeFunction
    warps: int
    lanes: float

    @property
    def call_s(self) -> float:
        """The time of a call whose code is in the caches."""
        return self.function.call_s + (self.lanes - 1) * self.function.further_lane_s

    @property
    def serial_s(self) -> float:
        """The time from a call to the next one, where many warps call."""
        return self.function.serial_s + (self.lanes - 1) * self.function.further_lane_serial_s

    @property
    def warp_instructions(self) -> float:
        """The function's instructions, summed over warps."""
        further = (self.lanes - 1) * self.function.further_lane_instructions
        return self.warps * (self.function.instructions + further)

    @property
    def thread_instructions(self) -> float:
        """The function's instructions, summed over threads."""
        further = (self.lanes - 1) * self.function.together_instructions
        return self.warps * self.lanes * (self.function.instructions + further)


def calls_s(calls: Collection[RuntimeCall], warps: int) -> float:
    """The time that calls take of a launch of so many warps: those of one, or all in turn."""
    in_turn: dict[RuntimeFunction, float] = {}
    for call in calls:
        taken_s = call.warps * call.serial_s
        in_turn[call.function] = in_turn.get(call.function, 0.0) + taken_s
    of_one = sum(call.warps * call.call_s for call in calls) / warps
    return max(of_one, *in_turn.values())


def runtime_calls(program: Program, tally: Tally) -> dict[int, RuntimeCall]:
    """The calls of such functions in a launch, by their line of the PTX."""
    functions, all_warps, all_lanes = {}, Counter[int](), Counter[int]()
    for step, warps, lanes in zip(program.steps, tally.warps, tally.lanes, strict=True):
        function = RUNTIME_FUNCTIONS.get(step.instruction.opcode)
        if function is not None and warps:
            line = step.instruction.ptx_line  # of several steps, where its function was inlined
            functions[line] = function
            all_warps[line] += warps
            all_lanes[line] += lanes
    return {
        line: RuntimeCall(function, all_warps[line], all_lanes[line] / all_warps[line])
        for line, function in functions.items()
    }


def with_reads(counters: Counters, calls: Collection[RuntimeCall]) -> Counters:
    """Add what calls of such functions read from the L2, and from DRAM."""
    read = sum(call.warps * call.function.l2_read_sectors for call in calls)
    missed = sum(call.warps * call.function.l2_missed_sectors for call in calls)
    code_bytes = sum(function.code_bytes for function in {call.function for call in calls})
    return replace(
        counters,
        lrc_read_sectors=counters.lrc_read_sectors + read,
        l2_read_sectors=counters.l2_read_sectors + read,
        l2_read_sector_hits=counters.l2_read_sector_hits + read - missed,
        dram_read_bytes=counters.dram_read_bytes + code_bytes,
    )


def calls_in(code: MachineCode, calls: dict[int, RuntimeCall]) -> dict[int, RuntimeCall]:
    """The same by the positions of the machine code's instructions."""
    return {
        number: calls[instruction.ptx_line]
        for number, instruction in enumerate(code.instructions)
        if instruction.name == "CALL" and instruction.ptx_line in calls
    }
