"""`memlab.run`: one launch, measured, verified and placed under the device's ceilings."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from memlab.errors import MemlabWarning, UsageError
from memlab.launching import current_time, prepare
from memlab.recipes import launch_recipe
from memlab.roofline.advice.advise import advise
from memlab.roofline.ceilings import ceilings
from memlab.roofline.placement import place_measurement
from memlab.roofline.run import Run, RunIdentity
from memlab.roofline.store.store import Store
from memlab.stored_runs import checked_label
from memlab.version import memlab_version

if TYPE_CHECKING:
    from memlab.device.measurement import Measurement, Progress
    from memlab.device.properties import DeviceProperties
    from memlab.kernels.user.kernel import UserKernel
    from memlab.launching import KernelName, PreparedLaunch

CounterSource = Literal["emulated", "ncu"]


def run(
    kernel: KernelName,
    *,
    device: str | int | None = None,
    seed: int = 0,
    counters: CounterSource = "emulated",
    cublas: bool = False,
    keep: bool = False,
    label: str = "",
    note: str = "",
    store: Path | str | None = None,
    samples: int | None = None,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> Run:
    """Run a kernel once: compile, execute, verify, count and time it, and compare it with the GPU.

    Examples:
        memlab.run("tiled", width=1024, tile=16)
        memlab.run("saxpy.cu:saxpy", grid=16, block=256, args=[2.0, x, memlab.inout(y), y.size])
        memlab.run(add, grid=16, block=256, args=[x, y, memlab.out(x.size, "f4")])

    Args:
        kernel: The name of a catalog kernel (`memlab.kernels()` lists them), `FILE.cu:ENTRY` for a
            kernel in a file, the name of a kernel in the current folder's `memlab.toml`,
            `memlab.source(text)`, or a kernel object of Numba, CuPy or Triton.
        device: A GPU's index, such as 0, or for an emulated device a datasheet's name, such as
            `h200`, or its file, such as `my-gpu.toml`. None takes `MEMLAB_DEVICE` from the
            environment, else the first GPU, else the emulated H200.
        seed: Seed of the random inputs, 0 or more.
        counters: `ncu` counts the launch in hardware too, with Nsight Compute on a GPU.
        cublas: Whether to time cuBLAS too, on the same matrices and GPU.
        keep: Whether to store the run, for later rooflines.
        label: A short name for the run, by which `memlab.runs` and the commands find it; several
            runs may have the same one.
        note: A remark to keep with the run.
        store: The file in which to store it; None takes `MEMLAB_STORE` from the environment, else
            a file in the user's data folder.
        samples: Launches that a GPU times; None takes 30 and more, until the median is known to
            0.5%.
        timeout_s: The longest time of one launch, emulated or on a GPU, seconds; None allows 60.
        memory_bytes: Memory of the host that the emulator may take, bytes; None allows the memory
            that is free.
        progress: Called with a description of the current step and its completed fraction, 0 to 1,
            or None where that is unknown.
        **parameters: The parameters of a catalog kernel, which `memlab.explain(kernel)` lists; one
            that is left out has its default.

            For a user kernel, its launch: `grid` and `block` (blocks and threads per block; a
            number or up to three), `cluster` (blocks of a thread block cluster), `shared` (dynamic
            shared memory, bytes per block) and `args`.
            An argument is text as for `--arg` on the command line, a number, a NumPy array that
            the kernel only reads, `memlab.inout(array)`, `memlab.out(shape, dtype)`, a tuple of
            these for a structure passed by value, or None for a null pointer; arrays of structures
            have a structured NumPy type. A list of arrays is an array of pointers, a list of
            tuples one of structures with pointers. `constants` fills `__constant__` variables, by
            texts or `{"w": array}`. `defines` (`{"TILE": 32}`), `include`, `std`,
            `max_registers`, `use_fast_math`, `ftz`, `prec_div`, `prec_sqrt`, `fmad` (True or
            False) and `ptxas_options` (`"-O1"`) go to the compiler. `expect` verifies outputs,
            `{"y": array}`; `reference` does so with a function that takes copies of the kernel's
            arguments and returns the outputs or overwrites them; `tolerance` is the largest
            relative error accepted.

            For a kernel of Triton, its launch as Triton's own: `grid`, also a function of the
            meta-parameters, `args`, then constants and options by their names, such as
            `BLOCK=1024, num_warps=4`; `config` chooses a configuration of `triton.autotune`.

    Returns:
        The run. `run.measurement` has the counters, the time and the verification,
        `run.placement` the ceilings and `run.advice` the advice; `print(memlab.report(run))` shows
        it as the command line does. `run.outputs["y"]` is the array that a user kernel wrote to
        its parameter y.

    Raises:
        UsageError: An unknown kernel or device, a parameter out of range, a source that does not
            compile, a label that is a number or a file's name, or a store that cannot be written.
        DeviceError: The device or the compiler is not available.
        MemlabError: The kernel failed, or took too long.
        Incomplete: The run could not be stored; its `result` is the run.

    Warns:
        MemlabWarning: There are no hardware counters or there is no cuBLAS; the run has the rest.
    """
    if counters not in get_args(CounterSource):
        raise UsageError(f"counters must be 'emulated' or 'ncu', got {counters!r}")
    label = checked_label(label)
    runs = writable_store(store) if keep else None
    prepared = prepare(
        kernel,
        parameters,
        device=device,
        seed=seed,
        samples=samples,
        timeout_s=timeout_s,
        memory_bytes=memory_bytes,
        progress=progress,
    )
    if cublas:
        from memlab import hardware

        hardware.require_cublas_product(prepared.launch)
    own = not isinstance(prepared.kernel, str)
    finished = run_prepared(prepared, counters=counters, cublas=cublas, keep_outputs=own)
    finished = replace(finished, identity=replace(finished.identity, label=label, note=note))
    return finished if runs is None else runs.add(finished)


def run_prepared(
    prepared: PreparedLaunch,
    *,
    counters: CounterSource = "emulated",
    cublas: bool = False,
    keep_outputs: bool = False,
) -> Run:
    """Run a prepared launch; the choices are those of `run`.

    Args:
        prepared: The launch.
        counters: Where the counters come from.
        cublas: Whether to time cuBLAS too.
        keep_outputs: Whether the run has its outputs.

    Raises:
        DeviceError: The compiler is not available.
        MemlabError: The kernel failed, or took too long.
    """
    measurement = prepared.device.run(
        prepared.launch, prepared.seed, prepared.progress, keep_outputs=keep_outputs
    )
    if counters == "ncu":
        measurement = _with_hardware_counters(measurement, prepared)
    if cublas:
        measurement = _with_cublas_time(measurement, prepared)
    placed = placed_run(measurement, prepared.properties)
    return replace(
        placed, identity=_repository_identity(prepared.kernel), recipe=launch_recipe(prepared)
    )


def _repository_identity(kernel: str | UserKernel) -> RunIdentity:
    """Note the commit of the repository that holds a user kernel's file."""
    if isinstance(kernel, str) or isinstance(kernel.code, str):
        return RunIdentity()  # memlab's version tells the catalog's source; a text has no file
    from memlab.kernels.user.repository import repository_state

    state = repository_state(Path(kernel.source))
    return RunIdentity(git_commit=state.commit, git_clean=state.clean)


def placed_run(measurement: Measurement, properties: DeviceProperties) -> Run:
    """Make a run of a measurement: add its place under the ceilings, and advice."""
    placement = place_measurement(measurement, ceilings(properties))
    return Run(
        id=None,
        created_at=current_time().isoformat(timespec="seconds"),
        memlab_version=memlab_version(),
        measurement=measurement,
        placement=placement,
        advice=advise(measurement, placement, properties),
    )


def writable_store(path: Path | str | None) -> Store:
    """Open the store, before the work whose result it takes.

    Raises:
        UsageError: It cannot be written.
    """
    store = Store(path)
    store.check()
    return store


def _with_hardware_counters(measurement: Measurement, prepared: PreparedLaunch) -> Measurement:
    from memlab import hardware
    from memlab.device.nvidia_tools.ncu import ProfilerError

    try:
        return replace(measurement, counters_ncu=hardware.hardware_counters(prepared))
    except ProfilerError as error:
        _warn(f"no hardware counters: {error}")
        return measurement


def _with_cublas_time(measurement: Measurement, prepared: PreparedLaunch) -> Measurement:
    from memlab import hardware
    from memlab.kernels.cublas import CublasError

    try:
        return replace(measurement, library_time={"cublas": hardware.cublas_time(prepared)})
    except CublasError as error:
        _warn(f"no cuBLAS: {error}")
        return measurement


def _warn(message: str) -> None:
    warnings.warn(message, MemlabWarning, stacklevel=5)  # the caller of `run`
