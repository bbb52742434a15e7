"""A calibration as data: the JSON document, and the raw samples as CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memlab.roofline.documents.device import device_document

if TYPE_CHECKING:
    from memlab.device.gpu.calibration.records import Calibration

SCHEMA_VERSION = 1


def calibration_document(calibration: Calibration) -> dict[str, Any]:
    """Give a calibration as a JSON document.

    Args:
        calibration: The calibration.

    Returns:
        The device as `memlab devicequery --json` gives it, the names of the measured figures, what
        failed, and the duration in seconds.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "device": device_document(calibration.properties, {}),
        "measured": list(calibration.measured),
        "failures": [
            {"benchmark": failure.benchmark, "reason": failure.reason}
            for failure in calibration.failures
        ],
        "samples": len(calibration.samples),
        "duration_s": calibration.duration_s,
    }


def samples_csv(calibration: Calibration) -> str:
    """Give the raw samples as CSV: series, key and value; the name of a series ends in its unit."""
    rows = [f"{sample.series},{sample.key},{sample.value:.9g}" for sample in calibration.samples]
    return "\n".join(("series,key,value", *rows)) + "\n"
