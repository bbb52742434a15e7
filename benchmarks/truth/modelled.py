"""Launches on an emulated device, several at a time, with a cache of what the emulator counted."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from time import process_time

from benchmarks.truth.cases import Case
from benchmarks.truth.operations import emulated_operations
from memlab.device import time_model
from memlab.device.compiler.compile import CompiledKernel, compile_launch
from memlab.device.datasheets import loader
from memlab.device.emulation.device import Emulation, emulate, resident_blocks
from memlab.device.model_errors import kind_of
from memlab.device.properties import DeviceProperties
from memlab.errors import MemlabError
from memlab.kernels.launch import Launch

SEED = 0
COUNTED_BY = (
    "multiprocessor_count",
    "l1_cache_bytes_per_sm",
    "l2_cache_bytes",
    "l2_partitions",
    "l2_merged_reads_by_sms",
    "l2_merged_later_reads",
    "l2_merging_sms",
    "gpcs_by_sms",
    "l2_most_merged_copies",
    "l2_merged_apart_share",
    "l2_coalescer_clocks",
    "pace_deviation",
    "dram_access_bytes",
    "dram_launch_bytes",
)
"""The figures of a device that counters depend on besides its compute capability."""


@dataclass(frozen=True)
class Modelled:
    """One launch on the emulated device.

    Attributes:
        time_s: The modelled time, seconds.
        low_s: The lower end of its interval, seconds.
        high_s: The upper end.
        bound: The bound that takes longest in the model.
        roofline_s: The plain roofline's time, seconds.
        counters_s: The time by counters alone, as without machine code, seconds.
        counters: Counters by the names of `memlab.device.measurement.Counters`, and `OPERATIONS`.
        cpu_s: The processor's time that the emulation and the models took, seconds.
        verified: Whether the result was right, as `Verification.status` says.
        failure: Why the launch was not emulated; empty if it was.
        stalls: The clocks of a warp per issued instruction, by state.
    """

    time_s: float = 0.0
    low_s: float = 0.0
    high_s: float = 0.0
    bound: str = ""
    roofline_s: float = 0.0
    counters_s: float = 0.0
    counters: Mapping[str, float] = field(default_factory=dict)
    cpu_s: float = 0.0
    verified: str = ""
    failure: str = ""
    stalls: Mapping[str, float] = field(default_factory=dict)


def modelled_launches(
    cases: Sequence[Case], properties: DeviceProperties | None, jobs: int, cache: Path | None
) -> Iterator[tuple[str, Modelled]]:
    """Emulate launches in processes of their own; yields names and results as they come.

    Args:
        cases: The launches.
        properties: The device; None for those that were measured.
        jobs: How many run at a time.
        cache: A folder that keeps each launch's emulation, from which a later call models the
            time anew; None for none. It must be emptied when what is counted changes.
    """
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        pending = {pool.submit(modelled, case, properties, cache): case.name for case in cases}
        for future in as_completed(pending):
            yield pending[future], future.result()


def modelled(
    case: Case, properties: DeviceProperties | None = None, cache: Path | None = None
) -> Modelled:
    """Emulate one launch and model its time."""
    began_s = process_time()
    properties = properties or loader.load_datasheet(case.device)
    try:
        launch = case.launch()
        compiled = compile_launch(launch, properties.compute_capability)
        emulation = _emulation(launch, compiled, properties, cache)
        occupancy = resident_blocks(launch, compiled, properties)
        found = emulation.model(occupancy, properties)
    except MemlabError as error:
        return Modelled(failure=str(error))
    time = found.time
    flop, read_bytes = emulation.flop(launch), emulation.counters.dram_read_bytes
    return Modelled(
        time.median_s,
        time.interval_low_s or 0.0,
        time.interval_high_s or 0.0,
        kind_of(time.bounds_s),
        time_model.plain_roofline_time_s(flop, read_bytes, properties),
        time_model.model_time(emulation.work, occupancy, properties).median_s,
        emulation.counters.by_nsight_compute() | emulated_operations(emulation),
        process_time() - began_s,
        verified=emulation.verification.status,
        stalls=found.stalls,
    )


def _emulation(
    launch: Launch, compiled: CompiledKernel, properties: DeviceProperties, cache: Path | None
) -> Emulation:
    if cache is None:
        return emulate(launch, compiled, properties, SEED)
    file = cache / f"{_key(launch, compiled, properties)}.pickle"
    if file.exists():
        kept: Emulation = pickle.loads(file.read_bytes())
        return kept
    emulation = emulate(launch, compiled, properties, SEED)
    cache.mkdir(parents=True, exist_ok=True)
    file.write_bytes(pickle.dumps(emulation))
    return emulation


def _key(launch: Launch, compiled: CompiledKernel, properties: DeviceProperties) -> str:
    """A name for a launch: a hash of its code, geometry and arguments, and of the device."""
    geometry = (launch.grid, launch.block, launch.dynamic_shared_bytes, launch.arguments)
    device = tuple(getattr(properties, name) for name in COUNTED_BY)
    text = repr((launch.kernel, *geometry, device))
    return sha256(compiled.cubin + text.encode()).hexdigest()[:24]
