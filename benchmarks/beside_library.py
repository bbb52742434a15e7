"""A kernel and a library timed in turns on the same arrays of a GPU, by a worker.

Power limits the clock in large products, and what a GPU draws depends on what ran before and on its
temperature. So both take turns: kernel, library, library, kernel, and so on, on the same random
inputs, each launch with the L2 flushed before it. A turn begins with launches that are not counted,
until the clock and the power are those of this kernel alone: one that draws less power keeps the
advantage that it has in use. A pair of neighboring turns gives a ratio; drift changes both turns of
a pair alike, and the order within a pair changes from pair to pair.

A library may have several implementations: each takes a turn first, and the fastest goes on.

`benchmarks.bars` calls it; it is a module of its own because a worker imports its task.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from memlab.device.gpu.device import compared_positions, hand_over_outputs, prepare_on_gpu
from memlab.device.gpu.driver import pycuda_device
from memlab.device.gpu.nvml import energy_reader
from memlab.device.gpu.session import GpuSession
from memlab.device.gpu.timing import TimingSettings, median_interval
from memlab.device.gpu.worker import Worker
from memlab.device.inputs import make_inputs
from memlab.device.verification import verify
from memlab.kernels import cublas

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memlab.device.compiler.compile import CompiledKernel
    from memlab.device.gpu.worker import WorkerLink
    from memlab.device.measurement import Verification
    from memlab.kernels.launch import Launch

Implementations: TypeAlias = Mapping[str, Callable[[], None]]
"""Functions that queue a library's work once, by name."""
Library: TypeAlias = (
    "Callable[[Launch, Mapping[str, int]], AbstractContextManager[Implementations]]"
)
"""Prepares a library for the work of a launch, with its arrays' addresses on the GPU by name."""

PAIRS = 9
"""Pairs of turns: the interval of the median is then from the second smallest to the second largest
ratio (96%)."""
SETTLE_S, TURN_S = 0.1, 0.1
TURN = TimingSettings(
    minimum_s=TURN_S, cap_s=TURN_S, settle_s=SETTLE_S, settle_cap_s=SETTLE_S, relative_interval=0.0
)
"""A turn: launches that are not counted, then samples, of each a fixed time."""


@dataclass(frozen=True)
class Turn:
    """Launches of one kernel in a row.

    Attributes:
        seconds: The median of its samples.
        clock_hz: The SM clock, Hz, median of the samples; None if it cannot be read.
        power_w: What the board drew in the mean, the launches that are not counted included,
            watts; None if it does not tell.
    """

    seconds: float
    clock_hz: float | None = None
    power_w: float | None = None


class Ratio(NamedTuple):
    """A ratio of rates and its confidence interval; None where it is not known."""

    median: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Turns:
    """The turns of a kernel and of a library.

    Attributes:
        own: Those of the kernel, in order.
        library: Those of the library, each beside that of the kernel.
        name: The library's implementation.
    """

    own: Sequence[Turn]
    library: Sequence[Turn]
    name: str

    @property
    def ratio(self) -> Ratio:
        """The median of the pairs' ratios: above 1 where the kernel is faster."""
        pairs = zip(self.own, self.library, strict=True)
        ratios = [library.seconds / own.seconds for own, library in pairs]
        low, high = median_interval(ratios) or (min(ratios), max(ratios))
        return Ratio(statistics.median(ratios), low, high)


def summary(turns: Sequence[Turn]) -> Turn:
    """The medians of some turns."""
    return Turn(
        statistics.median(turn.seconds for turn in turns),
        _median(turn.clock_hz for turn in turns),
        _median(turn.power_w for turn in turns),
    )


@contextmanager
def cublas_product(launch: Launch, addresses: Mapping[str, int]) -> Iterator[Implementations]:
    """Prepare cuBLAS for the product of a matrix kernel with row-major matrices.

    Raises:
        CublasError: cuBLAS or its binding is not installed, or cuBLAS refuses.
    """
    with cublas.prepare_gemm(launch, addresses) as product:
        yield {"cuBLAS": product}


def time_beside(
    library: Library, launch: Launch, compiled: CompiledKernel, seed: int
) -> tuple[Turns, Verification]:
    """Verify a kernel, then time it and a library in turns.

    Args:
        library: What prepares the library.
        launch: A launch whose work the library can do.
        compiled: Its code.
        seed: Seed of the inputs and of the rows that are verified.

    Raises:
        MemlabError: The kernel faulted or did not end, or the library is not installed.
    """
    sent = replace(launch, references={})  # which another process may not be able to import
    positions = compared_positions(launch, seed)
    with Worker(run_beside, library, sent, compiled, seed, positions, TURN) as worker:
        inputs = make_inputs(launch, seed)
        compared, _ = worker.take()
        verification = verify(launch, inputs, compared)
        worker.resume()
        turns: Turns = worker.result()
    return turns, verification


def run_beside(
    link: WorkerLink,
    library: Library,
    launch: Launch,
    compiled: CompiledKernel,
    seed: int,
    positions: Mapping[str, NDArray[np.int64]],
    settings: TimingSettings,
) -> Turns:
    """The worker's task: the turns of the kernel and of the library's fastest implementation."""
    with GpuSession(0, link, settings.timeout_s) as session, ExitStack() as stack:
        ready = prepare_on_gpu(session, launch, compiled, seed)
        hand_over_outputs(link, session, launch, ready, positions)
        addresses = {name: int(memory) for name, memory in ready.memory.items()}
        implementations = stack.enter_context(library(launch, addresses))
        read_joules = energy_reader(pycuda_device(0).pci_bus_id(), stack)

        def turn(once: Callable[[], None], what: str) -> Turn:
            return take_turn(session, once, what, read_joules, settings)

        def seconds(name: str) -> float:
            return turn(implementations[name], name).seconds

        several = len(implementations) > 1
        fastest = min(implementations, key=seconds) if several else next(iter(implementations))

        def own() -> Turn:
            return turn(ready.run_once, launch.kernel)

        def other() -> Turn:
            return turn(implementations[fastest], fastest)

        pairs = [
            (own(), other()) if pair % 2 == 0 else (other(), own())[::-1] for pair in range(PAIRS)
        ]
    turns = list(zip(*pairs, strict=True))
    return Turns(turns[0], turns[1], fastest)


def take_turn(
    session: GpuSession,
    launch: Callable[[], None],
    what: str,
    read_joules: Callable[[], float | None],
    settings: TimingSettings,
) -> Turn:
    """Time one kernel for a while.

    Args:
        session: The GPU.
        launch: Queues the kernel once.
        what: Its name, for messages.
        read_joules: Reads the energy that the GPU has taken, joules.
        settings: When the turn ends.
    """
    before, began = read_joules(), time.monotonic()
    samples = session.time(launch, settings, what=what)
    after, ended = read_joules(), time.monotonic()
    power_w = None
    if before is not None and after is not None:
        power_w = (after - before) / (ended - began)
    return Turn(samples.median_s, samples.clock_hz, power_w)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
