"""The machine code of a launch as records: each instruction with its PTX, source and counts."""

from __future__ import annotations

from dataclasses import dataclass

from memlab.device.measurement import Coverage, DeviceSummary, InstructionCounters
from memlab.presentation import Presentable


@dataclass(frozen=True)
class ListedInstruction:
    """One instruction of the machine code.

    Attributes:
        address: Its address in the code of the kernel, bytes.
        text: The instruction as nvdisasm prints it, with its guard.
        pipe: The pipe that executes it, as Nsight Compute names it.
        stall: Clocks until the warp may issue the next one; None where the control bits of the
            architecture are not known.
        waits: The dependence counters that it waits for, 0 to 5.
        block: The number of its basic block.
        target: The address that it branches to; None for other instructions.
        warps: Executions by warps in the whole grid.
        threads: Executions by threads, with those whose predicate is off.
        ptx_line: The line in the PTX that it comes from; 0 where that is unknown.
        source_line: The line in the CUDA source; 0 where that is unknown.
    """

    address: int
    text: str
    pipe: str
    stall: int | None
    waits: tuple[int, ...]
    block: int
    target: int | None
    warps: int
    threads: int
    ptx_line: int
    source_line: int


@dataclass(frozen=True, repr=False)
class MachineListing(Presentable):
    """The machine code of a launch with its counts.

    Attributes:
        kernel: The kernel's name.
        parameters: Its parameters by name.
        device: The device that it was compiled for.
        coverage: The part of the grid that was executed for the counts.
        source_name: The name of the source file.
        source: The lines of the CUDA source.
        ptx: The lines of the PTX.
        instructions: The instructions, in the order of their addresses.
        counters: Their sums.
    """

    kernel: str
    parameters: dict[str, int | str]
    device: DeviceSummary
    coverage: Coverage
    source_name: str
    source: tuple[str, ...]
    ptx: tuple[str, ...]
    instructions: tuple[ListedInstruction, ...]
    counters: InstructionCounters

    @property
    def has_control(self) -> bool:
        """Whether the control bits of the architecture are known."""
        return any(step.stall is not None for step in self.instructions)

    def ptx_text(self, line: int) -> str:
        """The PTX instruction in a line; empty where the line is unknown or holds none."""
        text = self.ptx[line - 1].strip() if 0 < line <= len(self.ptx) else ""
        return text if text.endswith(";") else ""

    def source_text(self, line: int) -> str:
        """A line of the source; empty where the line is unknown."""
        return self.source[line - 1] if 0 < line <= len(self.source) else ""
