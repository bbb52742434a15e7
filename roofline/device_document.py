"""What a device has as data: the JSON documents of one device and of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memlab.device.properties import (
    PEAK_KINDS,
    bandwidth_figures,
    clock_of_peak_hz,
    dotted,
    figures,
    peak_bandwidth_bytes_per_s,
    peak_figures,
    peak_flop_per_s,
    provenance,
    required_compute_to_global_access_ratio,
    ridge_flop_per_byte,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlab.device.properties import DeviceProperties

SCHEMA_VERSION = 1


def device_document(properties: DeviceProperties) -> dict[str, Any]:
    """Give a device as a JSON document: figures in base units, with provenance and source.

    Args:
        properties: The device. What is not known is left out of `figures`, and null elsewhere.
    """
    return {"schema_version": SCHEMA_VERSION, **_device(properties)}


def devices_document(devices: Mapping[str, DeviceProperties]) -> dict[str, Any]:
    """Give devices, by what `--device` takes, as one JSON document."""
    listed = [{"key": key, **_device(each)} for key, each in devices.items()]
    return {"schema_version": SCHEMA_VERSION, "devices": listed}


def _device(properties: DeviceProperties) -> dict[str, Any]:
    p = properties
    bandwidth = bandwidth_figures(p)
    peaks = {kind: peak_figures(p, kind) for kind in PEAK_KINDS}

    def derived(value: float | None, names: tuple[str, ...]) -> dict[str, Any] | None:
        if value is None:
            return None
        return {"value": value, "provenance": provenance(p, *names), "from": names}

    def peak(kind: str, names: tuple[str, ...]) -> dict[str, Any] | None:
        known = derived(peak_flop_per_s(p, kind), names)
        return known and known | {"clock_hz": clock_of_peak_hz(p, kind)}

    return {
        "name": p.name,
        "compute_capability": dotted(p.compute_capability),
        "figures": {
            name: {
                "value": value,
                "provenance": provenance(p, name),
                "source": p.sources.get(name),
            }
            for name, value in figures(p).items()
        },
        "peak_memory_bandwidth_bytes_per_s": derived(peak_bandwidth_bytes_per_s(p), bandwidth),
        "peak_flop_per_s": {kind: peak(kind, names) for kind, names in peaks.items()},
        "ridge_flop_per_byte": {
            kind: derived(ridge_flop_per_byte(p, kind), names + bandwidth)
            for kind, names in peaks.items()
        },
        "required_compute_to_global_access_ratio": derived(
            required_compute_to_global_access_ratio(p), peaks["fp32"] + bandwidth
        ),
    }
