"""The control flow of machine code: basic blocks, and the edges between them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from memlab.device.machine_code.instructions import MachineCode, MachineInstruction

ENTRY, EXIT = -1, -2
"""Where an edge begins that enters the kernel, and where one ends that leaves it."""

_BRANCHES = frozenset({"BRA", "JMP"})
_INDIRECT = frozenset({"BRX", "BRXU", "JMX"})
_CALLS = frozenset({"CALL"})
_ENDS = frozenset({"EXIT", "RET", "KILL"})


@dataclass(frozen=True)
class BasicBlock:
    """Instructions that are executed together.

    Attributes:
        start: The position of the first one.
        stop: The position behind the last one.
    """

    start: int
    stop: int


@dataclass(frozen=True)
class Edge:
    """A way from one block to another.

    Attributes:
        source: The block that it leaves; `ENTRY` where the kernel begins.
        destination: The block that it enters; `EXIT` where the thread ends or a function returns.
    """

    source: int
    destination: int


@dataclass(frozen=True)
class Call:
    """A block that ends in a call: the function runs as often as the block.

    Attributes:
        block: The block.
        function: The first block of the function.
    """

    block: int
    function: int


@dataclass(frozen=True)
class FlowGraph:
    """The control flow of a kernel and the functions that it calls.

    Attributes:
        code: The machine code.
        blocks: The basic blocks, in the order of their addresses.
        edges: The edges.
        calls: The calls. The edge of a call leads to the block behind it.
    """

    code: MachineCode
    blocks: tuple[BasicBlock, ...]
    edges: tuple[Edge, ...]
    calls: tuple[Call, ...]

    def instructions(self, block: int) -> Sequence[MachineInstruction]:
        """The instructions of a block."""
        return self.code.instructions[self.blocks[block].start : self.blocks[block].stop]

    def block_at(self, position: int) -> int:
        """The block that holds the instruction at a position."""
        return bisect_right(self._starts, position) - 1

    def reached_from(self, block: int) -> frozenset[int]:
        """The blocks that a block leads to, and itself; calls lead to the block behind them."""
        found, waiting = {block}, [block]
        while waiting:
            after = self._after.get(waiting.pop(), ())
            new = [each for each in after if each >= 0 and each not in found]
            found.update(new)
            waiting += new
        return frozenset(found)

    @cached_property
    def _after(self) -> dict[int, list[int]]:
        """Where edges lead to, by the block that they leave."""
        after: dict[int, list[int]] = {}
        for edge in self.edges:
            after.setdefault(edge.source, []).append(edge.destination)
        return after

    @cached_property
    def loops(self) -> tuple[tuple[int, frozenset[int]], ...]:
        """The natural loops with their headers: those that a back edge leads to."""
        before: dict[int, set[int]] = {}
        for edge in self.edges:
            before.setdefault(edge.destination, set()).add(edge.source)
        found: dict[int, set[int]] = {}
        for source, header in self._back_edges:
            body, waiting = found.setdefault(header, {header}), [source]
            while waiting:
                block = waiting.pop()
                if block not in body and block >= 0:
                    body.add(block)
                    waiting.extend(before.get(block, ()))
        return tuple((header, frozenset(body)) for header, body in sorted(found.items()))

    @cached_property
    def rare_blocks(self) -> frozenset[int]:
        """Blocks for rare cases: calls of the compiler's own functions, and diverged warps."""
        names = self.code.functions
        calls = {
            call.block
            for call in self.calls
            if "__internal_" in names.get(self.instructions(call.function)[0].address, "")
        }
        diverged = {
            edge.destination
            for edge in self.edges
            if edge.source >= 0
            and edge.destination not in (EXIT, edge.source + 1)
            and self.instructions(edge.source)[-1].opcode.startswith("BRA.DIV")
        }
        return frozenset(calls | diverged)

    @cached_property
    def _starts(self) -> list[int]:
        return [block.start for block in self.blocks]

    @cached_property
    def _back_edges(self) -> list[tuple[int, int]]:
        """The edges that lead to a block on the way from the entry to their source."""
        after = self._after
        back, state = [], dict[int, int]()  # 1 on the way, 2 done
        for root in [ENTRY, *(call.function for call in self.calls)]:
            if root in state:
                continue
            state[root] = 1
            stack = [(root, iter(after.get(root, ())))]
            while stack:
                block, following = stack[-1]
                for place in following:
                    if place == EXIT:
                        continue
                    if state.get(place) == 1:
                        back.append((block, place))
                    elif place not in state:
                        state[place] = 1
                        stack.append((place, iter(after.get(place, ()))))
                        break
                else:
                    state[block] = 2
                    stack.pop()
        return back


def flow_graph(code: MachineCode) -> FlowGraph:
    """Find the basic blocks and edges of machine code."""
    steps, positions = code.instructions, code.positions
    starts = {0, *(positions[address] for address in code.functions if address in positions)}
    for index, step in enumerate(steps):
        if step.name in _BRANCHES | _INDIRECT | _CALLS | _ENDS:
            starts.add(index + 1)
            starts.update(positions[target] for target in _targets(step) if target in positions)
    starts.discard(len(steps))
    ordered = sorted(starts)
    blocks = tuple(
        BasicBlock(start, stop)
        for start, stop in zip(ordered, [*ordered[1:], len(steps)], strict=True)
    )
    number = {block.start: index for index, block in enumerate(blocks)}
    edges, calls = {Edge(ENTRY, 0): None}, []
    for index, block in enumerate(blocks):
        last = steps[block.stop - 1]
        leads_on = not (always_leaves(last) or (_is_jump(code, last) and not last.predicate))
        if last.name in _BRANCHES | _INDIRECT or _is_jump(code, last):
            for target in _targets(last):
                edges[Edge(index, number[positions[target]])] = None
        elif last.name in _ENDS:
            edges[Edge(index, EXIT)] = None
        elif last.name in _CALLS and last.target is not None and last.target in positions:
            calls.append(Call(index, number[positions[last.target]]))
        if leads_on and index + 1 < len(blocks):
            edges[Edge(index, index + 1)] = None
        elif leads_on:
            edges[Edge(index, EXIT)] = None
    return FlowGraph(code, blocks, tuple(edges), tuple(calls))


def always_leaves(step: MachineInstruction) -> bool:
    """Whether no thread goes on to the instruction behind this one."""
    if step.name not in _BRANCHES | _INDIRECT | _ENDS or not step.is_unconditional:
        return False
    # A branch may have another condition as its first operand.
    return not (step.name in _BRANCHES and len(step.operands) > 1)


def _is_jump(code: MachineCode, step: MachineInstruction) -> bool:
    """Whether a call does not return: ptxas also uses one as a branch that keeps warps together."""
    return step.name in _CALLS and step.target is not None and step.target not in code.functions


def _targets(step: MachineInstruction) -> tuple[int, ...]:
    """The addresses that a branch or a call leads to."""
    return step.targets or ((step.target,) if step.target is not None else ())
