"""What a device has as data: the JSON documents of one device and of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from memlab.device.properties import (
    PEAK_KINDS,
    bandwidth_figures,
    clock_of_peak_hz,
    known_figures,
    peak_bandwidth_bytes_per_s,
    peak_figures,
    peak_flop_per_s,
    provenance,
    required_compute_to_global_access_ratio,
    ridge_flop_per_byte,
    version_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlab.device.properties import DeviceProperties

SCHEMA_VERSION = 1


Attributes: TypeAlias = "Mapping[str, int | None]"
"""What the driver has of a GPU, by CUDA's names and in its units; null where it refuses."""


def device_document(properties: DeviceProperties, attributes: Attributes) -> dict[str, Any]:
    """Give a device as a JSON document: figures in base units, with provenance and source.

    Args:
        properties: The device. What is not known is left out of `figures`, and null elsewhere.
        attributes: All that its driver has.
    """
    return {"schema_version": SCHEMA_VERSION, **_device(properties), "attributes": attributes}


def devices_document(
    devices: Mapping[str, DeviceProperties], attributes: Mapping[str, Attributes] | None = None
) -> dict[str, Any]:
    """Give devices, by what `--device` takes, as one JSON document: a list of them.

    Args:
        devices: Their properties.
        attributes: All that their drivers have, by the same keys; None leaves them out.
    """
    listed = [
        {"key": key, **_device(each)} | ({"attributes": attributes[key]} if attributes else {})
        for key, each in devices.items()
    ]
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
        "compute_capability": version_text(p.compute_capability),
        "figures": {
            name: {
                "value": value,
                "provenance": provenance(p, name),
                "source": p.sources.get(name),
            }
            for name, value in known_figures(p).items()
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
