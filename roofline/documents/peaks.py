"""Measured peaks as data: the JSON document that is printed and stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from reprlib import repr as shown
from typing import Any

from memlab.device.gpu.peaks.records import Footprint, Latency, Peaks, Rate
from memlab.device.measurement import DeviceSummary
from memlab.errors import UsageError
from memlab.roofline.documents.decoding import malformed_document_error, record_from_json, validated

SCHEMA_VERSION = 1
"""Raised when a key's meaning changes or a key goes; a new key does not raise it."""


def peaks_document(peaks: Peaks) -> dict[str, Any]:
    """Give peaks as a JSON document in base units.

    A rate's `value`, quartiles and theoretical values are in its `unit`, B/s or FLOP/s;
    `fraction` is of the datasheet's limit at its clock, `fraction_at_clock` at the observed one;
    `invalid` is a rate that lies above that one.
    """
    major, minor = peaks.device.compute_capability
    document = asdict(peaks) | {
        "schema_version": SCHEMA_VERSION,
        "provenance": "measured",
        "rates": [
            asdict(rate)
            | {
                "fraction": rate.fraction,
                "fraction_at_clock": rate.fraction_at_clock,
                "invalid": rate.invalid,
            }
            for rate in peaks.rates
        ],
        "latencies": [asdict(each) | {"latency_s": each.seconds} for each in peaks.latencies],
    }
    document["device"]["compute_capability"] = f"{major}.{minor}"
    head = ("schema_version", "created_at", "memlab_version", "device", "provenance")
    return {key: document.pop(key) for key in head} | document


def peaks_from_document(document: Mapping[str, Any]) -> Peaks:
    """Give back the peaks that `peaks_document` wrote; keys it does not know are passed over.

    Raises:
        UsageError: The document has another schema version, or is not one of peaks.
    """
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"the peaks document has schema_version {shown(version)}; "
            f"this memlab reads {SCHEMA_VERSION}"
        )
    try:
        device = document["device"]
        major, minor = device["compute_capability"].split(".")
        found = record_from_json(
            Peaks,
            {
                **document,
                "device": record_from_json(
                    DeviceSummary, {**device, "compute_capability": (int(major), int(minor))}
                ),
                "rates": tuple(record_from_json(Rate, each) for each in document["rates"]),
                "latencies": tuple(
                    record_from_json(Latency, each) for each in document["latencies"]
                ),
                "footprints": tuple(
                    record_from_json(Footprint, each) for each in document["footprints"]
                ),
            },
        )
        return validated(found)
    except KeyError as missing:
        raise UsageError(f"the peaks document has no {missing}") from missing
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise malformed_document_error("peaks", error) from error
