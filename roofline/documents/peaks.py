"""Measured peaks as data: the JSON document that is printed and stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memlab.device.gpu.peaks.records import Peaks
from memlab.roofline.documents.codec import encode, read_document

SCHEMA_VERSION = 1
"""Raised when a key's meaning changes or a key goes; a new key does not raise it."""


def peaks_document(peaks: Peaks) -> dict[str, Any]:
    """Give peaks as a JSON document in base units.

    A rate's `value`, quartiles and theoretical values are in its `unit`, B/s or FLOP/s;
    `fraction` is the share of the datasheet's limit at the clock that it assumes,
    `fraction_at_clock` the share of the limit at the observed clock; `invalid` tells that a rate
    exceeds the latter.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "created_at": peaks.created_at,
        "memlab_version": peaks.memlab_version,
        "device": encode(peaks.device),
        "provenance": "measured",
        **encode(peaks),
        "rates": [
            encode(rate)
            | {
                "fraction": rate.fraction,
                "fraction_at_clock": rate.fraction_at_clock,
                "invalid": rate.invalid,
            }
            for rate in peaks.rates
        ],
        "latencies": [
            encode(latency) | {"latency_s": latency.seconds} for latency in peaks.latencies
        ],
    }


def peaks_from_document(document: Mapping[str, Any]) -> Peaks:
    """Give back the peaks that `peaks_document` wrote; unknown keys are ignored.

    Raises:
        UsageError: The document has another schema version, or holds no peaks.
    """
    return read_document(Peaks, document, SCHEMA_VERSION)
