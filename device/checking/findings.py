"""The findings of `memlab check`: the records.

The tools have the names of NVIDIA's Compute Sanitizer. Its findings use the same records
(`nvidia_tools/sanitizer.py`), so that both can be compared.
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
    """A place in the program, and the thread that was there.

    Attributes:
        line: The line of the source, from 1; 0 if the compiler gave none.
        text: The text of the line, without indentation.
        block: The block's index in the grid, x, y, z; None if the place belongs to no one block.
        thread: The thread's index in the block, x, y, z; None if it belongs to no one thread.
    """

    line: int
    text: str
    block: Dim3 | None
    thread: Dim3 | None


@dataclass(frozen=True)
class CheckFinding:
    """One mistake, with its number of occurrences; the first one is described.

    Attributes:
        tool: The tool that found it.
        kind: The kind of mistake. memcheck: `out of bounds`, `misaligned`, `not writable` (a write
            to a constant, or to an input of the launch), `ended block` (an access to the shared
            memory of another block, which need not wait for it), `barrier in another block` (than
            the destination of an asynchronous copy), `use after free`, `double free`, `invalid
            free`, `trap`, `rank in descriptor` (of a `wgmma`). initcheck: `uninitialized
            read`, `never written`. racecheck: the hazards `RAW` (read after write), `WAR` and
            `WAW`, `stale read` (through the read-only cache, of what the same launch wrote),
            `missing proxy fence` (a bulk copy or `wgmma` reads what threads stored), `missing map
            fence` (a tensor copy reads a map that threads wrote), and `RAW or WAR` from a tool that
            does not distinguish them. synccheck: `divergent barrier`, `barrier not reached`,
            `cluster barrier not reached`, `grid barrier not reached`, `invalid mask`, `inactive
            source lane`, `endless wait` (for an mbarrier), `missing wait` and `missing fence` (of a
            product of a warpgroup). Kinds that only Compute Sanitizer knows keep its words.
        message: The mistake in one sentence, without its place.
        space: The state space of the address (`global`, `shared`, `local`, `const`, `param`);
            empty if there is none.
        element: The address in the program's names: `P[1030] of 1024 elements`; empty if there is
            none.
        at: The place of the mistake.
        other: The other access of a race, or the thread that a barrier waited for.
        count: The number of occurrences, summed over threads.
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
        """The lines that identify the mistake: both lines of a race, in any order."""
        if self.tool == "racecheck" and self.other is not None:
            return frozenset((self.at.line, self.other.line))
        return frozenset((self.at.line,))


@dataclass(frozen=True, repr=False)
class CheckReport(Presentable):
    """The result of checking a launch.

    Attributes:
        kernel: The kernel's name.
        parameters: The kernel's parameters, with defaults filled in.
        source_name: The source file of the lines.
        device: The device that the launch was compiled for.
        grid: Blocks in x, y, z.
        block: Threads per block in x, y, z.
        tools: The tools that were used.
        coverage: The number of blocks that were executed.
        findings: The findings, in the order of `TOOLS`, then of lines.
        verification: The comparison of the outputs with the references, where there are any.
        notes: What is no mistake by itself, but may be meant otherwise: outputs with elements that
            no thread wrote, where the data decides which; tensor copies that write behind the rows
            of their tensors; allocations of the heap that are not freed.
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
    notes: tuple[str, ...] = ()
