"""The properties of a GPU from the driver, as `DeviceProperties`; no context is needed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from memlab.device.gpu import driver as gpu_driver
from memlab.device.gpu import kernel_driver, libcuda
from memlab.device.gpu.driver import read_attribute, translated_errors
from memlab.device.properties import DeviceProperties
from memlab.errors import DeviceError

QUERY_SOURCE = "queried: cuDeviceGetAttribute"

# For each field, the attribute that gives it, named as in `CUdevice_attribute` and PyCUDA, and the
# factor from the attribute's unit to the field's.
NUMERIC_ATTRIBUTES = {
    "multiprocessor_count": ("MULTIPROCESSOR_COUNT", 1),
    "clock_rate_hz": ("CLOCK_RATE", 1000),
    "memory_clock_rate_hz": ("MEMORY_CLOCK_RATE", 1000),
    "global_memory_bus_width_bits": ("GLOBAL_MEMORY_BUS_WIDTH", 1),
    "l2_cache_bytes": ("L2_CACHE_SIZE", 1),
    "max_texture1d_width": ("MAXIMUM_TEXTURE1D_WIDTH", 1),
    "max_texture2d_width": ("MAXIMUM_TEXTURE2D_WIDTH", 1),
    "max_texture2d_height": ("MAXIMUM_TEXTURE2D_HEIGHT", 1),
    "max_texture3d_width": ("MAXIMUM_TEXTURE3D_WIDTH", 1),
    "max_texture3d_height": ("MAXIMUM_TEXTURE3D_HEIGHT", 1),
    "max_texture3d_depth": ("MAXIMUM_TEXTURE3D_DEPTH", 1),
    "max_texture1d_layered_width": ("MAXIMUM_TEXTURE1D_LAYERED_WIDTH", 1),
    "max_texture1d_layered_layers": ("MAXIMUM_TEXTURE1D_LAYERED_LAYERS", 1),
    "max_texture2d_layered_width": ("MAXIMUM_TEXTURE2D_LAYERED_WIDTH", 1),
    "max_texture2d_layered_height": ("MAXIMUM_TEXTURE2D_LAYERED_HEIGHT", 1),
    "max_texture2d_layered_layers": ("MAXIMUM_TEXTURE2D_LAYERED_LAYERS", 1),
    "total_constant_memory_bytes": ("TOTAL_CONSTANT_MEMORY", 1),
    "max_shared_memory_per_block_bytes": ("MAX_SHARED_MEMORY_PER_BLOCK", 1),
    "max_shared_memory_per_block_optin_bytes": ("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", 1),
    "max_shared_memory_per_multiprocessor_bytes": ("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR", 1),
    "reserved_shared_memory_per_block_bytes": ("RESERVED_SHARED_MEMORY_PER_BLOCK", 1),
    "max_registers_per_block": ("MAX_REGISTERS_PER_BLOCK", 1),
    "max_registers_per_multiprocessor": ("MAX_REGISTERS_PER_MULTIPROCESSOR", 1),
    "warp_size": ("WARP_SIZE", 1),
    "max_threads_per_multiprocessor": ("MAX_THREADS_PER_MULTIPROCESSOR", 1),
    "max_threads_per_block": ("MAX_THREADS_PER_BLOCK", 1),
    "max_blocks_per_multiprocessor": ("MAX_BLOCKS_PER_MULTIPROCESSOR", 1),
    "max_pitch_bytes": ("MAX_PITCH", 1),
    "texture_alignment_bytes": ("TEXTURE_ALIGNMENT", 1),
    "async_engine_count": ("ASYNC_ENGINE_COUNT", 1),
    "surface_alignment_bytes": ("SURFACE_ALIGNMENT", 1),
    "pci_domain_id": ("PCI_DOMAIN_ID", 1),
    "pci_bus_id": ("PCI_BUS_ID", 1),
    "pci_device_id": ("PCI_DEVICE_ID", 1),
    "compute_mode": ("COMPUTE_MODE", 1),
}
UNKNOWN_IF_ZERO = (
    "multiprocessor_count",
    "clock_rate_hz",
    "memory_clock_rate_hz",
    "global_memory_bus_width_bits",
    "l2_cache_bytes",
)
"""Fields whose value 0 means unknown: some integrated GPUs return it."""

FP32_LANES_PER_SM = {
    **dict.fromkeys(((7, 0), (7, 2), (7, 5), (8, 0)), 64),
    **dict.fromkeys(((8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (10, 1), (10, 3)), 128),
    **dict.fromkeys(((11, 0), (12, 0), (12, 1)), 128),
}
"""By compute capability: CUDA Samples 13.0, Common/helper_cuda.h, `_ConvertSMVer2Cores`."""
LANES_SOURCE = "datasheet: CUDA Samples, helper_cuda.h, by compute capability"

EXTENT_ATTRIBUTES = {"max_block_dim": "MAX_BLOCK_DIM", "max_grid_dim": "MAX_GRID_DIM"}
FLAG_ATTRIBUTES: dict[str, str | int] = {
    "kernel_exec_timeout": "KERNEL_EXEC_TIMEOUT",
    "integrated": "INTEGRATED",
    "can_map_host_memory": "CAN_MAP_HOST_MEMORY",
    "ecc_enabled": "ECC_ENABLED",
    "unified_addressing": "UNIFIED_ADDRESSING",
    "managed_memory": "MANAGED_MEMORY",
    "compute_preemption_supported": "COMPUTE_PREEMPTION_SUPPORTED",
    "cooperative_launch": 95,
    "cooperative_multi_device_launch": 96,
}
UNNAMED_ATTRIBUTES = {"COOPERATIVE_LAUNCH": 95, "COOPERATIVE_MULTI_DEVICE_LAUNCH": 96}
"""Attributes without a name in PyCUDA, with their numbers in `CUdevice_attribute`."""


def query_properties(index: int) -> DeviceProperties:
    """Query the properties of a GPU; one that the driver refuses is None.

    Args:
        index: The GPU's number, from 0.

    Raises:
        DeviceError: There is no such GPU, or no way to use one.
    """
    with translated_errors(f"the query of GPU {index}"):
        return _query_driver(index)


def query_attributes(index: int) -> dict[str, int | None]:
    """Query every attribute that PyCUDA has a name for, and `UNNAMED_ATTRIBUTES`.

    Args:
        index: The GPU's number, from 0.

    Returns:
        Values in the driver's units, by the names of `CUdevice_attribute` without their common
        prefix, in its order; None if the driver refuses.

    Raises:
        DeviceError: There is no such GPU, or no way to use one.
    """
    device = gpu_driver.pycuda_device(index)
    names: dict[str, Any] = gpu_driver.pycuda_driver().device_attribute.names
    numbers = {name: int(value) for name, value in names.items()} | UNNAMED_ATTRIBUTES
    ordered = sorted(numbers.items(), key=lambda item: (item[1], item[0]))
    return {name: read_attribute(device, number) for name, number in ordered}


def _query_driver(index: int) -> DeviceProperties:
    driver, device = gpu_driver.pycuda_driver(), gpu_driver.pycuda_device(index)
    numbers = {
        field: value * unit
        for field, (name, unit) in NUMERIC_ATTRIBUTES.items()
        if (value := read_attribute(device, name)) is not None
        if value or field not in UNKNOWN_IF_ZERO
    }
    extents = {
        field: values
        for field, name in EXTENT_ATTRIBUTES.items()
        if None not in (values := tuple(read_attribute(device, f"{name}_{axis}") for axis in "XYZ"))
    }
    flags = {
        field: bool(value)
        for field, name in FLAG_ATTRIBUTES.items()
        if (value := read_attribute(device, name)) is not None
    }
    version = driver.get_driver_version()
    major, minor, *_ = driver.get_version()
    values_and_sources: dict[str, tuple[Any, str]] = {
        "total_memory_bytes": (device.total_memory(), "queried: cuDeviceTotalMem"),
        "driver_version": (
            f"{version // 1000}.{version % 1000 // 10}",
            "queried: cuDriverGetVersion",
        ),
        "runtime_version": (f"{major}.{minor}", "queried: the CUDA that PyCUDA was built with"),
    }
    ratio = read_attribute(device, "SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO")
    for field, count in fma_lanes_per_sm(device.compute_capability(), ratio).items():
        values_and_sources[field] = (count, LANES_SOURCE)
    if uuid := libcuda.gpu_uuid(index):
        values_and_sources["uuid"] = (uuid, "queried: cuDeviceGetUuid")
    with suppress(DeviceError):
        values_and_sources["driver_release"] = (
            kernel_driver.driver_release(),
            f"queried: {kernel_driver.PROC_FOLDER}/version",
        )
    if peers := _peer_access(index):
        values_and_sources["peer_access"] = (peers, "queried: cuDeviceCanAccessPeer")
    attributes: dict[str, Any] = {**numbers, **extents, **flags}
    sources = dict.fromkeys(("compute_capability", *attributes), QUERY_SOURCE)
    return DeviceProperties(
        name=device.name(),
        compute_capability=device.compute_capability(),
        sources=sources | {field: source for field, (_, source) in values_and_sources.items()},
        **attributes,
        **{field: value for field, (value, _) in values_and_sources.items()},
    )


def fma_lanes_per_sm(compute_capability: tuple[int, int], ratio: int | None) -> dict[str, int]:
    """FMA lanes of a multiprocessor, which no attribute gives, by field; empty if unknown.

    Args:
        compute_capability: Major and minor.
        ratio: The driver's ratio of single-precision to double-precision speed.
    """
    single = FP32_LANES_PER_SM.get(compute_capability)
    if single is None:
        return {}
    double = {"fp64_lanes_per_sm": single // ratio} if ratio else {}
    return {"fp32_lanes_per_sm": single, **double}


def _peer_access(index: int) -> dict[str, bool]:
    """Whether this GPU can access the memory of other GPUs, by key, if the driver tells."""
    driver = gpu_driver.pycuda_driver()
    device = driver.Device(index)
    access = {}
    for other in range(driver.Device.count()):
        if other != index:
            with suppress(driver.Error):
                access[f"cuda:{other}"] = bool(device.can_access_peer(driver.Device(other)))
    return access
