"""Devices as text: the output of CUDA's deviceQuery, further figures, and a list."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from memlab.device import properties as figures
from memlab.roofline.ceilings import ceiling_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rich.table import Table

    from memlab.device.properties import DeviceProperties

LABEL_WIDTH = 46
"""Columns that CUDA's deviceQuery gives to a label."""

UNKNOWN = "N/A"
"""Stands for a figure that neither the driver nor the datasheet gives."""

WIDE_COLUMNS = 70
"""Width of the full list of devices."""

COMPUTE_MODES = (
    "Default (multiple host threads can use ::cudaSetDevice() with device simultaneously)",
    "Exclusive (only one host thread in one process is able to use ::cudaSetDevice() with this "
    "device)",
    "Prohibited (no host thread can use ::cudaSetDevice() with this device)",
    "Exclusive Process (many threads in one process is able to use ::cudaSetDevice() with this "
    "device)",
)
"""As CUDA's deviceQuery spells `CUcomputemode`."""

FURTHER_LIMITS = {
    "Opt-in shared memory per block:": "max_shared_memory_per_block_optin_bytes",
    "Reserved shared memory per block:": "reserved_shared_memory_per_block_bytes",
    "Total number of registers per multiprocessor:": "max_registers_per_multiprocessor",
    "Maximum number of blocks per multiprocessor:": "max_blocks_per_multiprocessor",
}
"""Limits that CUDA's deviceQuery leaves out, by label."""


def datasheet_line(properties: DeviceProperties, no_gpu: bool = False) -> str:
    """Say that the listing is of a datasheet, not of a GPU.

    Args:
        properties: The properties.
        no_gpu: Whether they are shown since there is no GPU, rather than by their name.
    """
    reason = "No GPU can be used here" if no_gpu else "Not a GPU"
    return f"{reason}: this is the datasheet of the {properties.name}."


def device_query_lines(devices: Mapping[str, DeviceProperties]) -> Iterator[str]:
    """Write devices' properties as CUDA's deviceQuery does, line by line.

    Args:
        devices: Properties by the name that `--device` takes; unknown ones read `N/A`.
    """
    index_of = {key: _gpu_index(key) for key in devices}
    indices = {
        *index_of.values(),
        *(_gpu_index(peer) for p in devices.values() for peer in p.peer_access),
    }
    first = next(iter(devices.values()))
    driver, runtime = _value_text(first.driver_version), _value_text(first.runtime_version)
    yield "CUDA Device Query (Runtime API) version (CUDART static linking)"
    yield ""
    yield f"Detected {len(indices)} CUDA Capable device(s)"
    for key, p in devices.items():
        yield ""
        yield f'Device {index_of[key]}: "{p.name}"'
        yield _label_line("CUDA Driver Version / Runtime Version", f"{driver} / {runtime}")
        yield from (_label_line(label, value) for label, value in _compute_rows(p))
        yield from (_label_line(label, value) for label, value in _memory_rows(p))
        yield from (_label_line(label, value) for label, value in _support_rows(p))
        yield "  Compute Mode:"
        yield f"     < {UNKNOWN if p.compute_mode is None else COMPUTE_MODES[p.compute_mode]} >"
    for key, p in devices.items():
        for peer, reached in p.peer_access.items():
            name = f"{devices[peer].name} " if peer in devices else ""
            yield (
                f"> Peer access from {p.name} (GPU{index_of[key]}) -> "
                f"{name}(GPU{_gpu_index(peer)}) : "
                f"{_yes_no_text(reached)}"
            )
    yield ""
    yield (
        f"deviceQuery, CUDA Driver = CUDART, CUDA Driver Version = {driver}, "
        f"CUDA Runtime Version = {runtime}, NumDevs = {len(indices)}"
    )
    yield "Result = PASS"


def _gpu_index(key: str) -> int:
    """Return the index of a GPU from its name, `cuda:1`; a datasheet has index 0."""
    _, colon, digits = key.rpartition(":")
    return int(digits) if colon else 0


def _compute_rows(p: DeviceProperties) -> tuple[tuple[str, str], ...]:
    count, lanes = p.multiprocessor_count, p.fp32_lanes_per_sm
    cores = None if count is None or lanes is None else count * lanes
    multiprocessors = (
        f"({_value_text(count, '03')}) Multiprocessors, ({_value_text(lanes, '03')}) CUDA Cores/MP:"
    )
    return (
        ("CUDA Capability Major/Minor version number:", figures.version_text(p.compute_capability)),
        ("Total amount of global memory:", _memory(p.total_memory_bytes)),
        (multiprocessors, f"{_value_text(cores)} CUDA Cores"),
        ("GPU Max Clock rate:", _clock(p.clock_rate_hz)),
        ("Memory Clock rate:", _scaled_text(p.memory_clock_rate_hz, 1e6, ".0f", " Mhz")),
        ("Memory Bus Width:", _value_with_unit(p.global_memory_bus_width_bits, "-bit")),
        ("L2 Cache Size:", _value_with_unit(p.l2_cache_bytes, " bytes")),
    )


def _memory_rows(p: DeviceProperties) -> tuple[tuple[str, str], ...]:
    two = _extent((p.max_texture2d_width, p.max_texture2d_height))
    three = _extent((p.max_texture3d_width, p.max_texture3d_height, p.max_texture3d_depth))
    layered = _extent((p.max_texture2d_layered_width, p.max_texture2d_layered_height))
    layers1d, layers2d = p.max_texture1d_layered_layers, p.max_texture2d_layered_layers
    return (
        (
            "Maximum Texture Dimension Size (x,y,z)",
            f"1D={_extent([p.max_texture1d_width])}, 2D={two}, 3D={three}",
        ),
        (
            "Maximum Layered 1D Texture Size, (num) layers",
            f"1D={_extent([p.max_texture1d_layered_width])}, {_value_text(layers1d)} layers",
        ),
        (
            "Maximum Layered 2D Texture Size, (num) layers",
            f"2D={layered}, {_value_text(layers2d)} layers",
        ),
        (
            "Total amount of constant memory:",
            _value_with_unit(p.total_constant_memory_bytes, " bytes"),
        ),
        (
            "Total amount of shared memory per block:",
            _value_with_unit(p.max_shared_memory_per_block_bytes, " bytes"),
        ),
        (
            "Total shared memory per multiprocessor:",
            _value_with_unit(p.max_shared_memory_per_multiprocessor_bytes, " bytes"),
        ),
        ("Total number of registers available per block:", _value_text(p.max_registers_per_block)),
        ("Warp size:", _value_text(p.warp_size)),
        (
            "Maximum number of threads per multiprocessor:",
            _value_text(p.max_threads_per_multiprocessor),
        ),
        ("Maximum number of threads per block:", _value_text(p.max_threads_per_block)),
        ("Max dimension size of a thread block (x,y,z):", _extent(p.max_block_dim)),
        ("Max dimension size of a grid size    (x,y,z):", _extent(p.max_grid_dim)),
        ("Maximum memory pitch:", _value_with_unit(p.max_pitch_bytes, " bytes")),
        ("Texture alignment:", _value_with_unit(p.texture_alignment_bytes, " bytes")),
    )


def _support_rows(p: DeviceProperties) -> tuple[tuple[str, str], ...]:
    location = (p.pci_domain_id, p.pci_bus_id, p.pci_device_id)
    return (
        ("Concurrent copy and kernel execution:", _copy_engines(p.async_engine_count)),
        ("Run time limit on kernels:", _yes_no_text(p.kernel_exec_timeout)),
        ("Integrated GPU sharing Host Memory:", _yes_no_text(p.integrated)),
        ("Support host page-locked memory mapping:", _yes_no_text(p.can_map_host_memory)),
        ("Alignment requirement for Surfaces:", _yes_no_text(p.surface_alignment_bytes)),
        ("Device has ECC support:", _yes_no_text(p.ecc_enabled, "Enabled", "Disabled")),
        ("Device supports Unified Addressing (UVA):", _yes_no_text(p.unified_addressing)),
        ("Device supports Managed Memory:", _yes_no_text(p.managed_memory)),
        ("Device supports Compute Preemption:", _yes_no_text(p.compute_preemption_supported)),
        ("Supports Cooperative Kernel Launch:", _yes_no_text(p.cooperative_launch)),
        (
            "Supports MultiDevice Co-op Kernel Launch:",
            _yes_no_text(p.cooperative_multi_device_launch),
        ),
        (
            "Device PCI Domain ID / Bus ID / location ID:",
            " / ".join(_value_text(part) for part in location),
        ),
    )


def attribute_lines(attributes: Mapping[str, int | None], whose: str = "") -> Iterator[str]:
    """Write every attribute of a GPU by CUDA's name for it, in the driver's units.

    Args:
        attributes: Values by CUDA's names, None where the driver refuses one; empty for a
            datasheet.
        whose: ` of cuda:1` where several devices are shown, else empty.
    """
    yield f"Every attribute{whose} (CU_DEVICE_ATTRIBUTE_...), in the driver's units:"
    yield from (_label_line(name, _value_text(value)) for name, value in attributes.items())
    if not attributes:
        yield "  None: this is a datasheet, and no driver's GPU."


def memory_lab_lines(properties: DeviceProperties, whose: str = "") -> Iterator[str]:
    """Write the figures for judging a kernel's use of memory, each with its provenance.

    Args:
        properties: The device; unknown figures read `N/A`.
        whose: ` of cuda:1` where several devices are shown, else empty.
    """
    p = properties

    def line(label: str, text: str, *names: str) -> str:
        known = UNKNOWN not in text
        return _label_line(label, f"{text} [{figures.provenance(p, *names)}]" if known else UNKNOWN)

    yield f"For the study of memory{whose}:"
    for label, name in FURTHER_LIMITS.items():
        unit = " bytes" if name.endswith("_bytes") else ""
        yield line(label, _value_with_unit(getattr(p, name), unit), name)
    bandwidth = figures.bandwidth_figures(p)
    peak = figures.peak_bandwidth_bytes_per_s(p)
    yield line("Peak memory bandwidth:", _scaled_text(peak, 1e9, ".1f", " GB/s"), *bandwidth)
    for kind in figures.PEAK_KINDS:
        rate = _scaled_text(figures.peak_flop_per_s(p, kind), 1e12, ".4g", " TFLOP/s at ")
        clock = _scaled_text(figures.clock_of_peak_hz(p, kind), 1e6, ".0f", " MHz")
        yield line(f"Peak {ceiling_label(kind)}:", rate + clock, *figures.peak_figures(p, kind))
    for kind in figures.INTEGER_KINDS:
        rate = _scaled_text(figures.peak_integer_op_per_s(p, kind), 1e12, ".4g", " TOP/s at ")
        clock = _scaled_text(figures.clock_of_peak_hz(p, kind), 1e6, ".0f", " MHz")
        yield line(f"Peak {ceiling_label(kind)}:", rate + clock, *figures.peak_figures(p, kind))
    for kind in figures.PEAK_KINDS:
        ridge = _scaled_text(figures.ridge_flop_per_byte(p, kind), 1, ".4g", " FLOP/B")
        yield line(
            f"Ridge point {ceiling_label(kind)}:", ridge, *figures.peak_figures(p, kind), *bandwidth
        )
    ratio = _scaled_text(
        figures.required_compute_to_global_access_ratio(p), 1, ".4g", " FLOP per access"
    )
    names = (*figures.peak_figures(p, "fp32"), *bandwidth)
    yield line("Compute-to-global-memory-access ratio needed:", ratio, *names)
    assumed = [name for name, text in p.sources.items() if text.startswith("analytic: assumed")]
    if assumed:
        yield ""
        yield from textwrap.wrap(f"Assumed, not known: {', '.join(assumed)}.", 79)


def devices_table(devices: Mapping[str, DeviceProperties], width: int) -> Table:
    """Make a table with one row per device.

    Args:
        devices: Properties by the name that `--device` takes.
        width: Columns of the terminal; a narrow one shows no names and no memory sizes.
    """
    from rich.table import Table

    left_out = ("name", "memory") if width < WIDE_COLUMNS else ()
    table = Table(box=None, pad_edge=False)
    for title in ("device", "name", "cc", "memory", "bandwidth", "FP32"):
        if title not in left_out:
            right = title in ("memory", "bandwidth", "FP32")
            table.add_column(title, justify="right" if right else "left", no_wrap=title != "name")
    for key, p in devices.items():
        cells = {
            "device": key,
            "name": p.name,
            "cc": figures.version_text(p.compute_capability),
            "memory": _scaled_text(p.total_memory_bytes, 2**30, ".1f", " GiB"),
            "bandwidth": _scaled_text(figures.peak_bandwidth_bytes_per_s(p), 1e9, ".0f", " GB/s"),
            "FP32": _scaled_text(figures.peak_flop_per_s(p, "fp32"), 1e12, ".1f", " TFLOP/s"),
        }
        table.add_row(*(text for title, text in cells.items() if title not in left_out))
    return table


def _label_line(label: str, value: str) -> str:
    # CUDA's deviceQuery writes these two labels with their blanks, one fewer than the column.
    width = 0 if label.startswith("Max dimension") else LABEL_WIDTH
    return f"  {label:<{width}} {value}"


def _value_text(value: object, spec: str = "") -> str:
    return UNKNOWN if value is None else format(value, spec)


def _value_with_unit(value: object, unit: str) -> str:
    return UNKNOWN if value is None else f"{value}{unit}"


def _scaled_text(value: float | None, scale: float, spec: str, unit: str) -> str:
    return UNKNOWN if value is None else f"{value / scale:{spec}}{unit}"


def _yes_no_text(value: object, yes: str = "Yes", no: str = "No") -> str:
    return UNKNOWN if value is None else yes if value else no


def _extent(sizes: Iterable[int | None] | None) -> str:
    return UNKNOWN if sizes is None else f"({', '.join(_value_text(size) for size in sizes)})"


def _memory(size: int | None) -> str:
    return UNKNOWN if size is None else f"{size / 2**20:.0f} MBytes ({size} bytes)"


def _clock(rate_hz: int | None) -> str:
    return UNKNOWN if rate_hz is None else f"{rate_hz / 1e6:.0f} MHz ({rate_hz / 1e9:.2f} GHz)"


def _copy_engines(count: int | None) -> str:
    return UNKNOWN if count is None else f"{_yes_no_text(count)} with {count} copy engine(s)"
