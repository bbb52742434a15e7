"""The order in which a warp operates on barriers, as a guide through the flow graph.

The counts of a warp's edges leave open which way a branch took when. But the sites at which the
warp operated on barriers are known in order. So the flow graph is an automaton that has to accept
this sequence: between two operations, only blocks without a site are passed. The states from which
the rest of the sequence can be followed tell which ways are open at a branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from memlab.device.machine_code.flow_graph import EXIT


@dataclass(frozen=True)
class Site:
    """An instruction that operates on barriers.

    Attributes:
        position: Its position in the machine code.
        number: The site: instructions that come from one line of the PTX are the same one.
        is_guarded: Whether it has a predicate, so that it may do nothing.
    """

    position: int
    number: int
    is_guarded: bool


@dataclass(frozen=True)
class SiteGraph:
    """Which sites follow each other in a flow graph.

    A set of sites' instructions is a mask of bits, by their place in `sites`; the last bit is the
    end of the kernel.

    Attributes:
        sites: The instructions.
        in_block: Their places, by block.
        first: The instructions that may be the next ones where a block begins, by block.
        following: Those behind each instruction, by its place.
        returns: The blocks to which a function returns, by the blocks that leave it.
    """

    sites: tuple[Site, ...]
    in_block: Mapping[int, tuple[int, ...]]
    first: Sequence[int]
    following: Sequence[int]
    returns: Mapping[int, frozenset[int]]

    @property
    def end(self) -> int:
        """The mask of the end."""
        return 1 << len(self.sites)

    def behind(self, source: int, destination: int) -> int:
        """The instructions that may be the next ones on an edge."""
        if destination >= 0:
            return self.first[destination]
        if source in self.returns:
            return _union(self.first[block] for block in self.returns[source])
        return self.end


def site_graph(
    blocks: Sequence[tuple[int, int]],
    edges: Iterable[tuple[int, int]],
    calls: Mapping[int, int],
    sites: Iterable[Site],
    detours: Iterable[tuple[int, int]] = (),
) -> SiteGraph:
    """Find which sites follow each other.

    Args:
        blocks: The instructions of each basic block: the first, and the one behind the last.
        edges: The edges, by the blocks that they join.
        calls: The function that a block calls at its end, by its first block.
        sites: The instructions that operate on barriers.
        detours: Edges that no thread takes, but a warp whose lanes parted.
    """
    ordered = tuple(sorted(sites, key=lambda site: site.position))
    in_block = {
        number: tuple(p for p, site in enumerate(ordered) if start <= site.position < stop)
        for number, (start, stop) in enumerate(blocks)
    }
    after: list[set[int]] = [set() for _ in blocks]
    for source, destination in edges:
        if source >= 0:
            after[source].add(destination)
    returns = _returns(after, calls)
    end = 1 << len(ordered)
    leads: list[set[int]] = []
    for block, onward in enumerate(map(set, after)):
        if block in calls:
            onward = {calls[block]}
        if EXIT in onward and block in returns:
            onward = onward - {EXIT} | returns[block]
        leads.append(onward)
    for source, destination in detours:
        leads[source].add(destination)

    def passed(places: Sequence[int], then: int) -> int:
        """The next ones in front of some places, behind which others are."""
        for place in reversed(places):
            then = 1 << place | (then if ordered[place].is_guarded else 0)
        return then

    first, changed = [0] * len(blocks), True
    while changed:
        changed = False
        for block in range(len(blocks) - 1, -1, -1):
            then = _union(first[place] if place >= 0 else end for place in leads[block])
            mask = passed(in_block[block], then)
            if mask != first[block]:
                first[block], changed = mask, True
    following = [0] * len(ordered)
    for block, places in in_block.items():
        then = _union(first[place] if place >= 0 else end for place in leads[block])
        for number, own in enumerate(places):
            following[own] = passed(places[number + 1 :], then)
    return SiteGraph(ordered, in_block, first, following, returns)


def _returns(after: Sequence[set[int]], calls: Mapping[int, int]) -> dict[int, frozenset[int]]:
    """The blocks behind the calls of a function, by the blocks of the function that leave it."""
    found: dict[int, set[int]] = {}
    for caller, function in calls.items():
        seen, waiting = {function}, [function]
        while waiting:
            block = waiting.pop()
            if EXIT in after[block]:
                found.setdefault(block, set()).update(p for p in after[caller] if p >= 0)
            new = {place for place in after[block] if place >= 0} - seen
            seen |= new
            waiting += new
    return {block: frozenset(places) for block, places in found.items()}


def _union(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


@dataclass
class Guide:
    """Follows the operations of a warp along its path.

    Attributes:
        graph: The sites of the flow graph.
        open: The instructions that may make each operation, so that the later ones can follow; at
            last the end. Shorter than the sequence if the flow graph does not accept all of it.
        idle: The executions of sites that make no operation, as their predicate is off: the site,
            and how many operations the warp has made there before.
        next: The number of the next operation.
        is_lost: Whether the path has left the sequence.
    """

    graph: SiteGraph
    open: Sequence[int]
    idle: list[tuple[int, int]] = field(default_factory=list)
    next: int = 0
    is_lost: bool = False
    _made: dict[int, int] = field(default_factory=dict)

    def is_open(self, source: int, destination: int) -> bool:
        """Whether an edge leads to the next operation."""
        if self.is_lost or self.next >= len(self.open):
            return True
        return bool(self.graph.behind(source, destination) & self.open[self.next])

    def enter(self, block: int) -> None:
        """Execute a block."""
        for place in self.graph.in_block[block]:
            if self.is_lost or self.next >= len(self.open):
                return
            site = self.graph.sites[place]
            if self.open[self.next] >> place & 1:
                self.next += 1
                self._made[site.number] = self._made.get(site.number, 0) + 1
            elif site.is_guarded:
                self.idle.append((site.number, self._made.get(site.number, 0)))
            else:
                self.is_lost = True


def guide(graph: SiteGraph, sequence: Sequence[int], start: int = 0) -> Guide:
    """Prepare to follow a sequence of operations.

    Args:
        graph: The sites of the flow graph. Those at which the warp never operates are left out.
        sequence: The site of each operation, in order.
        start: The block in which the path begins.
    """
    masks: dict[int, int] = {}
    for place, site in enumerate(graph.sites):
        masks[site.number] = masks.get(site.number, 0) | 1 << place
    known: dict[int, int] = {}

    def behind(states: int) -> int:
        if states not in known:
            known[states] = _union(
                graph.following[place] for place in range(len(graph.sites)) if states >> place & 1
            )
        return known[states]

    forward: list[int] = []
    reached = graph.first[start]
    for number in sequence:
        states = reached & masks.get(number, 0)
        if not states:
            break
        forward.append(states)
        reached = behind(states)
    complete = len(forward) == len(sequence) and reached & graph.end
    found, then = [], graph.end if complete else reached
    if complete:
        found.append(graph.end)
    leading: dict[tuple[int, int], int] = {}
    for states in reversed(forward):
        if (states, then) not in leading:
            leading[states, then] = _union(
                1 << place
                for place in range(len(graph.sites))
                if states >> place & 1 and graph.following[place] & then
            )
        then = leading[states, then] or states
        found.append(then)
    return Guide(graph, found[::-1])
