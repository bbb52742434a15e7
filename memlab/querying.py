"""`memlab.devicequery`, `peaks`, `calibrate` and `doctor`: the devices and the machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memlab.device.datasheets import loader
from memlab.device.devices import (
    emulation_reason,
    gpu_index,
    open_device,
    selected_devices,
    usable_gpu_names,
)
from memlab.device.doctor.diagnosis import DiagnosisItem, diagnose
from memlab.device.doctor.probes import probe_machine
from memlab.errors import DeviceError, UsageError
from memlab.launching import current_time
from memlab.results import DoctorReport
from memlab.roofline.store.store import Store
from memlab.running import writable_store
from memlab.version import memlab_version

if TYPE_CHECKING:
    from pathlib import Path

    from memlab.device.gpu.calibration.records import Calibration
    from memlab.device.gpu.peaks.records import Peaks
    from memlab.device.measurement import Progress
    from memlab.device.properties import DeviceProperties


def devicequery(device: str | int | None = None) -> DeviceProperties:
    """Return a device's limits, sizes, clocks and rates.

    Args:
        device: A GPU's index, such as 0, a datasheet's name, such as `h200`, or its file, such as
            `my-gpu.toml`. None takes `MEMLAB_DEVICE` from the environment, else the first GPU, else
            the H200's datasheet.

    Returns:
        The properties, in base units with the unit in the name: `total_memory_bytes`,
        `clock_rate_hz`. An unknown figure is None; `properties.sources` tells where each of the
        others comes from.

    Raises:
        UsageError: There is no such device.
        DeviceError: The GPU is not available.
    """
    return open_device(device).properties


def peaks(
    *,
    device: str | int | None = None,
    keep: bool = False,
    store: Path | str | None = None,
    progress: Progress | None = None,
) -> Peaks:
    """Measure a GPU's ceilings and latencies with micro-benchmarks.

    Args:
        device: A GPU's index, such as 0. None takes `MEMLAB_DEVICE` from the environment, else the
            first GPU.
        keep: Whether to store the peaks, so that later rooflines of the GPU draw them.
        store: The file in which to store them; None takes `MEMLAB_STORE` from the environment, else
            a file in the user's data folder.
        progress: Called with a description of the current step and its completed fraction, 0 to 1,
            or None where that is unknown.

    Returns:
        The peaks: `peaks.rates` (B/s and FLOP/s), `peaks.latencies` (cycles) and
        `peaks.footprints`, both by the size of the memory that is read.

    Raises:
        UsageError: An unknown device, or a store that cannot be written.
        DeviceError: The device is emulated, or the GPU cannot be used.
        MemlabError: A micro-benchmark gave a wrong result.
        Incomplete: The peaks could not be stored; its `result` is the peaks.
    """
    from memlab.device.gpu.peaks.measure import measure_peaks

    if reason := emulation_reason(None if device is None else str(device)):
        raise DeviceError(f"peaks are measured on a GPU, but {reason}: see 'memlab doctor'")
    opened = open_device(device)
    if opened.kind != "cuda":
        raise DeviceError(
            f"peaks are measured on a GPU, and {opened.key} is emulated: choose a GPU with "
            f"--device 0, or see its datasheet with 'memlab devicequery --device {opened.key}'"
        )
    kept = writable_store(store) if keep else None
    measured = replace(
        measure_peaks(gpu_index(opened.key), opened.properties, progress),
        created_at=current_time().isoformat(timespec="seconds"),
        memlab_version=memlab_version(),
    )
    if kept is not None:
        kept.add_peaks(measured)
    return measured


def calibrate(device: str | int | None = None, *, progress: Progress | None = None) -> Calibration:
    """Measure a GPU's datasheet, with which any machine can emulate it.

    Args:
        device: A GPU's index, such as 0. None takes `MEMLAB_DEVICE` from the environment, else the
            first GPU.
        progress: Called with a description of the current step and its completed fraction, 0 to 1.

    Returns:
        The calibration: `calibration.properties` is the datasheet, `calibration.measured` names the
        figures that were measured, `calibration.failures` lists what could not be.
        `calibration.datasheet()` is the text for a file that `device="my-gpu.toml"` takes.

    Raises:
        UsageError: An unknown device.
        DeviceError: The device is emulated, or the GPU cannot be used.
        MemlabError: Nothing could be measured.
    """
    from memlab.device.gpu.calibration.calibrate import calibrate_gpu

    if reason := emulation_reason(None if device is None else str(device)):
        raise DeviceError(f"a GPU is calibrated, but {reason}: see 'memlab doctor'")
    opened = open_device(device)
    if opened.kind != "cuda":
        raise DeviceError(
            f"a GPU is calibrated, and {opened.key} is emulated: choose a GPU with --device 0, or "
            f"see its datasheet with 'memlab devicequery --device {opened.key}'"
        )
    date = current_time().date().isoformat()
    return calibrate_gpu(gpu_index(opened.key), opened.properties, date, progress)


def doctor(store: Path | str | None = None) -> DoctorReport:
    """Find out what works on this machine, and what to do about the rest.

    Args:
        store: The file of the stored runs, which is checked too; None takes `MEMLAB_STORE` from the
            environment, else a file in the user's data folder.

    Returns:
        The report: `report.items` has one item for each part (driver, GPUs, PyCUDA, compiler,
        hardware counters, emulator, store), `report.gpu_works` and `report.emulator_works` the
        conclusion.
    """
    machine = probe_machine()
    diagnosis = diagnose(machine)
    return DoctorReport(
        items=(*diagnosis.findings, _store_item(store)),
        gpu_works=diagnosis.gpu_works,
        emulator_works=diagnosis.emulator_works,
        machine=machine,
    )


def _store_item(path: Path | str | None) -> DiagnosisItem:
    runs = Store(path)
    try:
        runs.check()
    except UsageError as error:
        # Kernels still run, with --no-store or another --store.
        problem, _, advice = str(error).rpartition(": ")
        return DiagnosisItem("store", "note", problem or str(error), advice if problem else "")
    return DiagnosisItem("store", "works", f"{runs.path}, writable")


def available_device_names() -> list[str]:
    """List the names that `device` takes on this machine: usable GPUs, then datasheets."""
    return [*usable_gpu_names(), *loader.datasheet_names()]


def properties_by_device(device: str | None = None) -> dict[str, DeviceProperties]:
    """Return the properties of a device or, where none is named, of every GPU.

    Args:
        device: As for `devicequery`.

    Returns:
        Properties by the name that `device` takes.

    Raises:
        UsageError, DeviceError: As `devicequery`.
    """
    opened = [open_device(name) for name in selected_devices(device)]
    return {gpu.key: gpu.properties for gpu in opened}


def device_attributes(key: str) -> dict[str, int | None]:
    """Return every attribute that the driver has of a GPU, in the driver's units.

    Args:
        key: A key of `properties_by_device`.

    Returns:
        Values by CUDA's names (`CUdevice_attribute`) without `CU_DEVICE_ATTRIBUTE_`; None where
        the driver refuses one. Empty for a datasheet, which has no driver.

    Raises:
        DeviceError: The GPU cannot be used.
    """
    if key in loader.datasheet_names() or loader.is_datasheet_path(key):
        return {}
    from memlab.device.gpu import query as gpu_query

    return gpu_query.query_attributes(gpu_index(key))
