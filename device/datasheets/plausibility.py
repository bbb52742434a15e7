"""Tells a figure in another unit from a plausible one: 1980 is no clock in Hz."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from memlab.errors import UsageError


@dataclass(frozen=True)
class Range:
    """What a figure can be.

    Attributes:
        ending: The end of the names of the fields.
        least: The smallest plausible value.
        most: The largest plausible value.
        unit: The unit, and an example of a conversion to it.
    """

    ending: str
    least: float
    most: float
    unit: str


RANGES = (
    Range("reserved_shared_memory_per_block_bytes", 0, 2**16, "in bytes"),
    Range("l2_cache_bytes", 2**16, 2**32, "in bytes: 4 MiB are 4_194_304"),
    Range("l1_cache_bytes_per_sm", 2**13, 2**24, "in bytes: 128 KiB are 131_072"),
    Range("total_memory_bytes", 2**27, 2**44, "in bytes: 8 GiB are 8_589_934_592"),
    Range("total_constant_memory_bytes", 2**12, 2**24, "in bytes: 64 KiB are 65_536"),
    Range("shared_memory_per_block_bytes", 2**12, 2**24, "in bytes: 48 KiB are 49_152"),
    Range("shared_memory_per_block_optin_bytes", 2**12, 2**24, "in bytes: 99 KiB are 101_376"),
    Range("shared_memory_per_multiprocessor_bytes", 2**12, 2**24, "in bytes"),
    Range("dram_access_bytes", 16, 2**10, "in bytes"),
    Range("dram_launch_bytes", 1, 2**16, "in bytes"),
    Range("_hz", 1e8, 1e11, "in Hz: 1725 MHz are 1_725_000_000"),
    Range("_bytes_per_s", 1e9, 1e15, "in bytes per second: 448 GB/s are 4.48e11"),
    Range("_bytes_per_s_by_sms", 1e6, 1e15, "in bytes per second: 448 GB/s are 4.48e11"),
    Range("_flop_per_s", 1e9, 1e18, "in FLOP per second: 40.6 TFLOP/s are 4.06e13"),
    Range("_fraction", 1e-3, 1.05, "a fraction: 92% are 0.92"),
    Range("_width_bits", 8, 2**16, "in bits"),
    Range("_clocks", 1e-3, 1e6, "in SM clocks"),
    Range("_clocks_by_threads", 1e-3, 1e6, "in SM clocks"),
    Range("_per_clock", 1e-3, 1e6, "per SM clock"),
    Range("_per_clock_per_sm", 1e-3, 1e6, "per SM clock"),
    Range("_per_clock_by_sms", 1e-3, 1e6, "per SM clock"),
    Range("_clocks_per_instruction_by_bytes", 1e-3, 1e6, "in SM clocks"),
    Range("_s", 1e-11, 1e-2, "in seconds: 1.3 µs are 1.3e-6"),
    Range("multiprocessor_count", 1, 10_000, "the number of multiprocessors"),
    Range("_lanes_per_sm", 1, 10_000, "the number of lanes"),
    Range("max_threads_per_block", 32, 2**16, "the number of threads"),
    Range("max_threads_per_multiprocessor", 32, 2**16, "the number of threads"),
    Range("max_blocks_per_multiprocessor", 1, 2**10, "the number of blocks"),
    Range("l1_queued_store_lines", 1, 2**16, "the number of lines"),
    Range("uniform_constant_lines", 1, 2**16, "the number of lines"),
    Range("max_registers_per_block", 2**10, 2**24, "the number of 32-bit registers"),
    Range("max_registers_per_multiprocessor", 2**10, 2**24, "the number of 32-bit registers"),
    Range("gpcs_by_sms", 1, 10_000, "the number of groups"),
    Range("l2_partitions", 1, 2**6, "the number of partitions"),
    Range("l2_merging_sms", 1, 10_000, "the number of groups"),
    Range("l2_most_merged_copies", 1, 2**10, "the number of reads"),
    Range("l2_merged_reads_by_sms", 1, 2**10, "reads of the L1s over reads of the L2"),
    Range("l2_merged_later_reads", 1, 2**10, "reads of the L1s over reads of the L2"),
    Range("_share", 0, 1, "a share: 54% are 0.54"),
    Range("shared_float_rounds_by_warps", 1e-3, 10, "rounds for each lane"),
    Range("pace_deviation", 0, 10, "over the time"),
    Range("tensor_type_loads", 1e-3, 1e3, "the load over that of BF16"),
)
"""The first whose ending fits a field applies to it. They are wide: they find the wrong unit, not
the wrong figure."""


KEYS = {
    "l2_merged_later_reads": "4x1x16",
    "l2_merging_sms": "16",
}
"""What keys of tables by numbers look like, where that is not one number, as in `_by_` tables."""

WHOLE_GRIDS = ("l2_merged_later_reads",)
"""Tables that are read between their keys in each number, so that they need all combinations."""


def check_figure(field: str, value: Any, file: str) -> None:
    """Refuse a figure that can only be in another unit, or that is of no number.

    Args:
        field: The field of `DeviceProperties`.
        value: The figure, or a table of figures.
        file: The file's name for the message.

    Raises:
        UsageError: The figure lies outside its range, or its table has a key of another form or
            lacks a combination.
    """
    if isinstance(value, Mapping):
        _check_keys(field, value, file)
    fitting = next((limit for limit in RANGES if field.endswith(limit.ending)), None)
    if fitting is None:
        return
    numbers = value if isinstance(value, Mapping) else {"": value}
    for key, number in numbers.items():
        if not fitting.least <= number <= fitting.most:
            where = f"{field}, {key}," if key else field
            raise UsageError(
                f"{file}: {where} must be from {fitting.least:g} to {fitting.most:g}, got "
                f"{number:g}: it is {fitting.unit}"
            )


def _check_keys(field: str, table: Mapping[str, float], file: str) -> None:
    example = KEYS.get(field, "8" if "_by_" in field else "")
    form = "x".join(["[1-9][0-9]*"] * len(example.split("x")))
    for key in table:
        if example and not re.fullmatch(form, key):
            raise UsageError(
                f"{file}: {field} must have keys of whole numbers like {example}, got {key!r}"
            )
    if field in WHOLE_GRIDS and table:
        numbers = (set(places) for places in zip(*(key.split("x") for key in table), strict=True))
        missing = {"x".join(combination) for combination in product(*numbers)} - set(table)
        if missing:
            raise UsageError(
                f"{file}: {field} must have all combinations of the numbers in its keys, got none "
                f"for {min(missing)}: add it, or remove the keys with one of its numbers"
            )
