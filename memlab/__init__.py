"""memlab: how well a CUDA kernel uses memory, and how close that brings it to the GPU's limits.

For a notebook or a script:

    import memlab

    memlab.devicequery("a100").total_memory_bytes
    run = memlab.run("tiled", width=1024, tile=16)
    memlab.run("saxpy.cu:saxpy", grid=16, block=256, args=[2.0, x, memlab.inout(y), y.size])
    memlab.run("saxpy.cu", grid=16, block=256, args=[...], reference=lambda a, x, y, n: a * x + y)
    memlab.check("tiled", width=100).findings
    memlab.roofline().figure()

Each function is the command of the same name and returns dataclasses; `frame` makes pandas
frames of runs.
"""

from __future__ import annotations

from os import PathLike, fsdecode
from typing import TYPE_CHECKING, Any

# Importing a package puts its name into its parent: it is done here, before `def roofline`, so
# that no later import replaces the function. The package itself is empty.
from memlab import roofline as _roofline_room  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas

    from memlab.device.checking.findings import CheckReport
    from memlab.device.measurement import Occupancy
    from memlab.device.properties import DeviceProperties
    from memlab.device.tracing.records import Trace
    from memlab.kernels.user.arguments import ArraySpecification
    from memlab.kernels.user.kernel import UserKernel
    from memlab.lab import Roofline
    from memlab.roofline.analysis.analysis import Analysis
    from memlab.roofline.run import Run

__all__ = [
    "analyze",
    "check",
    "devicequery",
    "frame",
    "inout",
    "occupancy",
    "out",
    "roofline",
    "run",
    "trace",
]

# The rooms are imported where they are used: `memlab --help` must not wait for NumPy.


def devicequery(device: str | int | None = None) -> DeviceProperties:
    """What a device has: see `memlab.lab.device_properties`."""
    from memlab import lab

    return lab.device_properties(device)


def run(
    kernel: str | Path,
    *,
    device: str | int | None = None,
    seed: int = 0,
    store: Path | None = None,
    keep: bool = False,
    samples: int | None = None,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
    **parameters: Any,
) -> Run:
    """Run a kernel: of the catalog, e.g. `run("tiled", width=1024, tile=16)`, or one's own.

    Args:
        kernel: Its name in the catalog, `FILE.cu:ENTRY`, or its name in the current folder's
            `memlab.toml`.
        device: A GPU's index, such as 0, or a datasheet's name, such as `h200`; None takes
            `MEMLAB_DEVICE` from the environment, else the first GPU, else the emulated H200.
        seed: Of the random inputs.
        store: The file to keep the run in, with `keep`; None takes the user's.
        keep: Whether to keep the run for `roofline`.
        samples: How many launches a GPU times; None takes as many as the median needs.
        timeout_s: How long one launch may take, emulated or on a GPU, seconds; None allows a
            minute.
        memory_bytes: How much of the host's memory the emulator may take; None allows what is
            free.
        **parameters: The kernel's own parameters; of one's own, the fields of
            `memlab.kernels.user.kernel.OwnKernel`: `grid`, `block`, `args`, `defines` and so on. An
            argument is a text as after `--arg`, or a number; a NumPy array, which is only read;
            `inout(array)`; `out(shape, dtype)`; a tuple for a structure; None for a null pointer.
            `defines` may be a mapping, `{"TILE": 32}`. `expect` says what outputs must hold, by
            name: `{"y": array}`, in any real type and the output's shape. `reference` is a
            function that computes them: it takes the kernel's arguments in its order, copies of
            the arrays as before the launch and numbers, and returns an array for each output (a
            tuple, or a mapping by name; None for one that is not to be verified) or fills them
            in place; as text it is `FILE.py:FUNCTION`.

    Raises:
        memlab.errors.MemlabError: See `memlab.lab.run`.
    """
    from memlab import lab

    return lab.run(
        *_resolve_target(kernel, parameters),
        device=device,
        seed=seed,
        store=store,
        keep=keep,
        samples=samples,
        timeout_s=timeout_s,
        memory_bytes=memory_bytes,
    )


def inout(array: object) -> ArraySpecification:
    """An argument of one's own kernel: an array that the kernel reads and overwrites.

    The kernel gets a copy; this array stays as it is.

    Args:
        array: What NumPy takes for an array, in the kernel's shape and type.

    Raises:
        memlab.errors.UsageError: It is empty, or of no type that kernels take.
    """
    from memlab.kernels.user import python_values

    return python_values.array_argument(array, "inout")


def out(shape: int | Sequence[int], dtype: object) -> ArraySpecification:
    """An argument of one's own kernel: an array that the kernel only writes.

    Args:
        shape: Elements in each dimension, row-major.
        dtype: NumPy's type or its name, or memlab's: `numpy.float32`, `float32`, `f32`.

    Raises:
        memlab.errors.UsageError: It has no elements, or is of no type that kernels take.
    """
    from memlab.kernels.user import python_values

    return python_values.output_argument(shape, dtype)


def analyze(
    kernel: str | Path,
    *,
    device: str | int | None = None,
    seed: int = 0,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
    **parameters: Any,
) -> Analysis:
    """Count what a kernel does to memory, line by line: see `run` and `memlab.lab.analyze`."""
    from memlab import lab

    return lab.analyze(
        *_resolve_target(kernel, parameters),
        device=device,
        seed=seed,
        timeout_s=timeout_s,
        memory_bytes=memory_bytes,
    )


def check(
    kernel: str | Path,
    *,
    device: str | int | None = None,
    seed: int = 0,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
    **parameters: Any,
) -> CheckReport:
    """Find wrong accesses, races and barriers in a kernel: see `run` and `memlab.lab.check`."""
    from memlab import lab

    return lab.check(
        *_resolve_target(kernel, parameters),
        device=device,
        seed=seed,
        timeout_s=timeout_s,
        memory_bytes=memory_bytes,
    )


def trace(
    kernel: str | Path,
    *,
    block_index: int | Sequence[int] = (0, 0, 0),
    thread_index: int | Sequence[int] = (0, 0, 0),
    device: str | int | None = None,
    seed: int = 0,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
    **parameters: Any,
) -> Trace:
    """Follow one thread, chosen by its indices: see `run` and `memlab.lab.trace`.

    An index is a number or up to three, in x, y and z; what is left out is 0.
    """
    from memlab import lab
    from memlab.launching import parse_index

    return lab.trace(
        *_resolve_target(kernel, parameters),
        block=parse_index("block_index", block_index),
        thread=parse_index("thread_index", thread_index),
        device=device,
        seed=seed,
        timeout_s=timeout_s,
        memory_bytes=memory_bytes,
    )


def occupancy(
    kernel: str | Path, *, device: str | int | None = None, **parameters: Any
) -> Occupancy:
    """Say how many of a kernel's blocks an SM holds, and what limits them: see `run`."""
    from memlab import lab
    from memlab.device import occupancy as device_occupancy

    properties = lab.device_properties(device)
    launch, needed = lab.compile_for_device(*_resolve_target(kernel, parameters), properties)
    return device_occupancy.compute_occupancy(
        properties, device_occupancy.block_requirements(launch, needed)
    )


def roofline(device: str | int | None = None, *, store: Path | None = None) -> Roofline:
    """Gather a device's recorded runs under its roofs: see `memlab.lab.roofline`."""
    from memlab import lab

    return lab.roofline(device=device, store=store)


def frame(*runs: Run) -> pandas.DataFrame:
    """Runs as a pandas frame: a row each, base units with the unit in the column's name.

    Raises:
        memlab.errors.UsageError: One is no run.
    """
    from memlab.errors import UsageError
    from memlab.roofline.documents import frames
    from memlab.roofline.run import Run

    for each in runs:
        if not isinstance(each, Run):
            raise UsageError(
                f"frame takes runs one by one, got an object of type {type(each).__name__}: of a "
                "list write frame(*runs)"
            )
    return frames.runs_frame(runs)


def _resolve_target(
    kernel: str | Path, parameters: dict[str, Any]
) -> tuple[str | UserKernel, dict[str, Any]]:
    """The kernel that a name means, with what was chosen of it, and parameters of the catalog."""
    from memlab.errors import UsageError
    from memlab.kernels import catalog
    from memlab.kernels.user import kernel as user_kernel
    from memlab.kernels.user import project

    if not isinstance(kernel, str | PathLike):
        raise UsageError(
            f"a kernel is named by a text, got an object of type {type(kernel).__name__}: give a "
            "name of the catalog such as 'tiled', or 'FILE.cu:ENTRY'"
        )
    name = fsdecode(kernel)
    named = None if name in catalog.CATALOG else project.find_user_kernel(name)
    return (
        (name, parameters)
        if named is None
        else (user_kernel.apply_launch_options(named, parameters), {})
    )
