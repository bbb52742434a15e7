"""The properties of devices as data: the JSON documents of one device and of several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from memlab.device.properties import (
    INTEGER_KINDS,
    PEAK_KINDS,
    bandwidth_figures,
    clock_of_peak_hz,
    known_figures,
    peak_bandwidth_bytes_per_s,
    peak_figures,
    peak_flop_per_s,
    peak_integer_op_per_s,
    provenance,
    required_compute_to_global_access_ratio,
    ridge_flop_per_byte,
    version_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memlab.device.properties import DeviceProperties

SCHEMA_VERSION = 1


Attributes: TypeAlias = "Mapping[str, int | None]"
"""A GPU's attributes from its driver, by CUDA's names and in its units; None where it refuses."""


def device_document(properties: DeviceProperties, attributes: Attributes) -> dict[str, Any]:
    """Give a device as a JSON document: figures in base units, with provenance and source.

    Args:
        properties: The device. Unknown figures are left out of `figures`, and null elsewhere.
        attributes: All attributes from its driver.
    """
    return {"schema_version": SCHEMA_VERSION, **_device(properties), "attributes": attributes}


def devices_document(
    devices: Mapping[str, DeviceProperties], attributes: Mapping[str, Attributes] | None = None
) -> dict[str, Any]:
    """Give several devices as one JSON document.

    Args:
        devices: The devices' properties, by the value of `--device` that chooses each.
        attributes: All attributes from their drivers, by the same keys; None leaves them out.
    """
    listed = [
        {"key": key, **_device(device)} | ({"attributes": attributes[key]} if attributes else {})
        for key, device in devices.items()
    ]
    return {"schema_version": SCHEMA_VERSION, "devices": listed}


def _device(properties: DeviceProperties) -> dict[str, Any]:
    p = properties
    bandwidth = bandwidth_figures(p)
    peaks = {kind: peak_figures(p, kind) for kind in PEAK_KINDS}
    integer_peaks = {kind: peak_figures(p, kind) for kind in INTEGER_KINDS}

    def derived(value: float | None, names: tuple[str, ...]) -> dict[str, Any] | None:
        if value is None:
            return None
        return {"value": value, "provenance": provenance(p, *names), "from": names}

    def peak(
        kind: str, names: tuple[str, ...], rate: Callable[[DeviceProperties, str], float | None]
    ) -> dict[str, Any] | None:
        known = derived(rate(p, kind), names)
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
        "peak_flop_per_s": {
            kind: peak(kind, names, peak_flop_per_s) for kind, names in peaks.items()
        },
        "peak_integer_op_per_s": {
            kind: peak(kind, names, peak_integer_op_per_s) for kind, names in integer_peaks.items()
        },
        "ridge_flop_per_byte": {
            kind: derived(ridge_flop_per_byte(p, kind), names + bandwidth)
            for kind, names in peaks.items()
        },
        "required_compute_to_global_access_ratio": derived(
            required_compute_to_global_access_ratio(p), peaks["fp32"] + bandwidth
        ),
    }
