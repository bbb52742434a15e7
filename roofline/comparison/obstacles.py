"""Why two times must not be compared, and what else a reader of a comparison must know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from memlab.device.measurement import CLOCK_DRIFT_LIMIT
from memlab.device.model_errors import kind_of
from memlab.roofline.ceilings import ceiling_label

if TYPE_CHECKING:
    from memlab.device.measurement import Measurement
    from memlab.roofline.run import Run

CLOCK_TOLERANCE = 0.01
"""SM clocks that differ by more make two times incomparable: a kernel bound by arithmetic would
differ by as much, which is the threshold of a verdict."""


def wrong_outputs(a: Run, b: Run) -> list[str]:
    """Name the runs whose verification failed: the time of a wrong program means nothing."""
    wrong = []
    for side, run in (("A", a), ("B", b)):
        verification = run.measurement.verification
        if verification.status == "failed":
            detail = f": {verification.worst}" if verification.worst else ""
            wrong.append(f"the output of {side} is wrong{detail}")
    return wrong


def does_same_work(first: Measurement, second: Measurement) -> bool:
    """Tell whether both launches do the same work.

    A catalog kernel's FLOPs are those of its algorithm. Those of a user kernel are what its code
    executes, so they may change with it; the bytes of its arguments then decide alone.
    """
    if first.compulsory_bytes != second.compulsory_bytes:
        return False
    of_user = any("grid" in side.parameters for side in (first, second))
    return of_user or first.flop == second.flop


def time_obstacles(first: Measurement, second: Measurement) -> Iterator[str]:
    """Name the reasons that forbid to compare two times."""
    if not does_same_work(first, second):
        yield (
            f"the sizes of the work differ: {first.flop:,} and {second.flop:,} FLOP, "
            f"{first.compulsory_bytes:,} and {second.compulsory_bytes:,} compulsory bytes"
        )
    times = first.time, second.time
    provenances = [time.provenance for time in times]
    if len(set(provenances)) > 1:
        yield f"A's time is {provenances[0]}, B's is {provenances[1]}"
        return
    if provenances[0] != "measured":
        return
    yield from _hardware_obstacles(first, second)
    clocks = [time.clock_hz for time in times]
    if clocks[0] and clocks[1] and abs(clocks[0] / clocks[1] - 1) > CLOCK_TOLERANCE:
        yield f"the SM clocks differ: {clocks[0] / 1e6:.0f} and {clocks[1] / 1e6:.0f} MHz"
    for side, time in zip("AB", times, strict=True):
        if time.clock_drift is not None and time.clock_drift > CLOCK_DRIFT_LIMIT:
            yield (
                f"the SM clock of {side} moved by {100 * time.clock_drift:.1f}% while it was "
                "timed (throttling)"
            )


def _hardware_obstacles(first: Measurement, second: Measurement) -> Iterator[str]:
    a, b = first.device, second.device
    if a.name != b.name:
        yield f"the GPUs differ: {a.name} and {b.name}"
    elif a.uuid and b.uuid and a.uuid != b.uuid:
        yield f"two GPUs of one model: {a.uuid} and {b.uuid}"
    if a.driver and b.driver and a.driver != b.driver:
        yield f"the drivers differ: {a.driver} and {b.driver}"


def reader_notes(a: Run, b: Run) -> Iterator[str]:
    """Name other differences that explain figures, or limit what they say."""
    first, second = a.measurement, b.measurement
    if first.kernel != second.kernel:
        yield f"two kernels: {first.kernel} and {second.kernel}"
    if first.device.key != second.device.key and "measured" not in (
        first.time.provenance,
        second.time.provenance,
    ):
        yield (
            f"two devices: {first.device.key} and {second.device.key}; "
            "differences are of the device and of the code"
        )
    if a.memlab_version != b.memlab_version:
        yield (
            f"two versions of memlab, {a.memlab_version} and {b.memlab_version}: "
            "counters and models may differ for that reason"
        )
    compilers = first.code.compiler, second.code.compiler
    if all(compilers) and len(set(compilers)) > 1:
        yield f"two compilers: {compilers[0]} and {compilers[1]}"
    kinds = [kind_of(side.time.bounds_s) for side in (first, second)]
    modelled = first.time.provenance == second.time.provenance == "modelled"
    if modelled and kinds[0] != kinds[1]:
        names = [ceiling_label(kind) for kind in kinds]
        yield (
            f"the model's bounds differ ({names[0]} and {names[1]}), so the errors of the two "
            "modelled times do not cancel"
        )
    for side, run in (("A", a), ("B", b)):
        coverage = run.measurement.coverage
        if coverage.not_counted:
            yield f"{side} has no counters: {coverage.not_counted}"
        elif coverage.remark:
            yield f"the counters of {side}: {coverage.remark}"
