"""The cost of boundary checks: a launch against the nearest ones whose blocks end at the edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memlab.device.measurement import flop_by_pipe
from memlab.device.properties import WARP_SIZE
from memlab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memlab.device.measurement import Counters
    from memlab.kernels.launch import Dim3, Launch

    Parameters = Mapping[str, int | str]
    Prepare = Callable[[Parameters], Launch]
    Count = Callable[[Launch], Counters]

SIZE_PROBE_OFFSET = 8192
"""A parameter is a size if the grid grows when this is added to it."""
SEARCH_RADIUS = 4096
"""How many smaller and larger sizes are tried: more than any tile or block is wide."""


@dataclass(frozen=True)
class BoundaryCase:
    """The lanes and sectors that one launch uses, and its useful work.

    Attributes:
        parameters: The kernel's parameters by name: its sizes and tile.
        threads: Threads launched.
        lane_slots: Lanes of all warp instructions: 32 per instruction.
        lanes_off: The lanes of these that were inactive.
        flop_executed: FLOPs executed.
        sectors: Sectors that the global accesses touched.
        work: The useful work: FLOPs of the algorithm or, if it has none, compulsory bytes.
    """

    parameters: Parameters
    threads: int
    lane_slots: int
    lanes_off: int
    flop_executed: int
    sectors: int
    work: int


@dataclass(frozen=True)
class BoundaryCost:
    """A launch whose blocks extend beyond the edge, and its neighbours whose blocks do not.

    Attributes:
        case: The launch itself.
        lower: The nearest smaller launch; None where there is none.
        upper: The nearest larger launch; None where there is none.
    """

    case: BoundaryCase
    lower: BoundaryCase | None
    upper: BoundaryCase | None

    def wasted_lanes(self, other: BoundaryCase) -> float:
        """The share of the lane slots that the other launch's slots per work would save."""
        return 1 - _amount_per_work(other.lane_slots, other) / _amount_per_work(
            self.case.lane_slots, self.case
        )

    def wasted_sectors(self, other: BoundaryCase) -> float:
        """The same share for sectors; it may be negative."""
        return 1 - _amount_per_work(other.sectors, other) / _amount_per_work(
            self.case.sectors, self.case
        )


def edge_case(launch: Launch, counters: Counters) -> BoundaryCase:
    """Summarize a launch with these counters."""
    slots = WARP_SIZE * counters.warp_instructions
    return BoundaryCase(
        parameters=dict(launch.parameters),
        threads=launch.blocks * launch.threads_per_block,
        lane_slots=slots,
        lanes_off=slots - counters.thread_instructions,
        flop_executed=sum(flop_by_pipe(counters).values()),
        sectors=counters.total("global").sectors,
        work=launch.flop or launch.compulsory_bytes,
    )


def boundary_cost(
    launch: Launch, counters: Counters, prepare: Prepare, count: Count
) -> BoundaryCost | None:
    """Compare a launch with the nearest ones whose blocks end at the edge.

    Args:
        launch: A launch of a catalog kernel, whose parameters are its sizes and its tile.
        counters: Its counters.
        prepare: Makes a launch from parameters, or raises UsageError.
        count: Executes a launch and returns its counters.

    Returns:
        The comparison; None where no block of the launch reaches over the edge.
    """
    multiples = nearest_multiples(launch.parameters, prepare)
    if multiples is None:
        return None

    def neighbour(parameters: Parameters | None) -> BoundaryCase | None:
        if parameters is None:
            return None
        launch = prepare(parameters)
        return edge_case(launch, count(launch))

    lower, upper = map(neighbour, multiples)
    return BoundaryCost(edge_case(launch, counters), lower, upper)


def nearest_multiples(
    parameters: Parameters, prepare: Prepare
) -> tuple[Parameters | None, Parameters | None] | None:
    """Find the nearest sizes at which no block extends beyond the edge.

    A size is a parameter that the grid grows with. Blocks end at the edge if one more element
    needs another block. Nothing else about a kernel is needed.

    Args:
        parameters: The parameters of the launch.
        prepare: Makes a launch from parameters, or raises UsageError.

    Returns:
        Smaller and larger parameters, None where there are none; None instead of both if the
        blocks already end at the edge, or if no parameter is a size.
    """
    lower, upper = dict(parameters), dict(parameters)
    missing_lower = missing_upper = False
    for name, value in parameters.items():
        if not isinstance(value, int):
            continue
        ends = _ends_at_edge(parameters, name, value, prepare)
        if ends is None:
            continue
        below = range(value, max(value - SEARCH_RADIUS, 0), -1)
        smaller = next((size for size in below if ends(size)), None)
        larger = next((size for size in range(value, value + SEARCH_RADIUS) if ends(size)), None)
        missing_lower |= smaller is None
        missing_upper |= larger is None
        lower[name], upper[name] = smaller or value, larger or value
    if lower == upper == parameters:
        return None
    return None if missing_lower else lower, None if missing_upper else upper


def _ends_at_edge(
    parameters: Parameters, name: str, value: int, prepare: Prepare
) -> Callable[[int], bool] | None:
    """Make the predicate that blocks end at the edge; None where a parameter is not a size."""

    def grid(size: int) -> Dim3 | None:
        try:
            return prepare({**parameters, name: size}).grid
        except UsageError:
            return None

    current, larger = grid(value), grid(value + SIZE_PROBE_OFFSET)
    if current is None or larger is None:
        return None
    growing = [axis for axis in range(3) if larger[axis] > current[axis]]
    if not growing or any(larger[axis] < current[axis] for axis in range(3)):
        return None

    def ends(size: int) -> bool:
        exact, more = grid(size), grid(size + 1)
        return bool(exact and more and all(more[axis] > exact[axis] for axis in growing))

    return ends


def _amount_per_work(amount: int, case: BoundaryCase) -> float:
    return amount / case.work
