"""What `memlab check` found of a launch: the records.

The tools and their names are those of NVIDIA's Compute Sanitizer, whose findings come in the same
records (`device/sanitizer.py`), so that both can stand side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from memlab.device.measurement import Coverage, DeviceSummary, Verification
from memlab.kernels.launch import Dim3
from memlab.presentation import Presentable

Tool: TypeAlias = Literal["memcheck", "initcheck", "racecheck", "synccheck"]

TOOLS: tuple[Tool, ...] = get_args(Tool)
"""All tools, in the order of reports."""


@dataclass(frozen=True)
class SourceLocation:
    """Where in the program, and by which thread.

    Attributes:
        line: Line of the source, from 1; 0 where the compiler gave none.
        text: That line, without its indentation.
        block: The block's index in the grid, x, y, z; None where it is no one block's.
        thread: The thread's index in the block, x, y, z; None where it is no one thread's.
    """

    line: int
    text: str
    block: Dim3 | None
    thread: Dim3 | None


@dataclass(frozen=True)
class CheckFinding:
    """One mistake, however often it was made; the first occurrence is described.

    Attributes:
        tool: Which tool found it.
        kind: Of memcheck `out of bounds`, `misaligned`, `not writable` (a write to a constant, or
            to an array that the launch says is only read), `trap`; of initcheck `uninitialized
            read`, `never written`; of racecheck the hazards `RAW` (read after write), `WAR`,
            `WAW`, and `RAW or WAR` from who does not tell them apart; of synccheck `divergent
            barrier`, `barrier not reached`, `invalid mask`, `inactive source lane`. What Compute
            Sanitizer alone knows keeps its words: `missing wait`.
        message: What is wrong, in a sentence without its place.
        space: State space of the address (`global`, `shared`, `local`, `const`, `param`); empty
            where there is none.
        element: The address in the program's own names: `P[1030] of 1024 elements`; empty where
            there is none.
        at: Where it happened.
        other: The other access of a race, or the thread that a barrier waited for.
        count: How often it happened, counted by thread.
    """

    tool: Tool
    kind: str
    message: str
    space: str
    element: str
    at: SourceLocation
    other: SourceLocation | None = None
    count: int = 1

    @property
    def lines(self) -> frozenset[int]:
        """The lines that the mistake is known by: of a race both, whichever comes first."""
        if self.tool == "racecheck" and self.other is not None:
            return frozenset((self.at.line, self.other.line))
        return frozenset((self.at.line,))


@dataclass(frozen=True, repr=False)
class CheckReport(Presentable):
    """What a launch was checked for, and what was found.

    Attributes:
        kernel: The kernel's name.
        parameters: What was chosen, with defaults filled in.
        source_name: The file that the lines are of.
        device: What it was compiled for.
        grid: Blocks in x, y, z.
        block: Threads of a block in x, y, z.
        tools: What it was checked with.
        coverage: How many blocks were executed.
        findings: In the order of `TOOLS`, then of lines.
        verification: Whether the outputs are right, where there is a reference.
    """

    kernel: str
    parameters: Mapping[str, int | str]
    source_name: str
    device: DeviceSummary
    grid: Dim3
    block: Dim3
    tools: tuple[Tool, ...]
    coverage: Coverage
    findings: tuple[CheckFinding, ...]
    verification: Verification
