"""Kernels of the catalog on this GPU beside the best that is known there, in one run.

    python -m benchmarks.bars [FOLDER] [--only WORD...]

Products stand beside cuBLAS, and attention beside the fastest backend of PyTorch's
`scaled_dot_product_attention`: both take turns on the same arrays (see `beside_library`), since
power limits the clock, and the ratio is the median of the pairs of turns, with its interval. Copies
and sums stand beside the ceilings of DRAM that `memlab peaks` measures. Each
kernel is verified before it is timed; times are medians with cold caches. The first lines name the
GPU, the compiler, the clocks and the power limit. `--only` takes kernels and `products`,
`attention` or `dram`. With a folder, also writes each row to `…-bars.csv` there as soon as it is
measured.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from benchmarks.beside_library import Library, Ratio, Turn, cublas_product, summary, time_beside
from benchmarks.gpu_results import conditions, head, prefix
from benchmarks.pytorch_attention import pytorch_attention
from memlab.device.compiler.compile import CompiledKernel, compile_launch
from memlab.device.devices import launch_limits
from memlab.device.gpu import query as gpu_query
from memlab.device.gpu.device import measure_launch, with_datasheet
from memlab.device.gpu.peaks.measure import measure_peaks
from memlab.device.gpu.timing import TimingSettings
from memlab.device.properties import DeviceProperties
from memlab.errors import MemlabError
from memlab.kernels.catalog import CATALOG
from memlab.kernels.launch import Launch

if TYPE_CHECKING:
    from memlab.device.measurement import Verification

Sizes: TypeAlias = Mapping[str, int | str]

WIDTHS = (2048, 4096, 8192)
SIXTEEN_BITS = (
    *("wgmma", "wgmma-pipelined", "wgmma-specialized", "wgmma-persistent", "wgmma-cluster"),
    *("wgmma-pingpong", "wgmma-overlapped"),
)
PRODUCTS: tuple[tuple[str, Sizes], ...] = tuple(
    (name, {"width": width, **more})
    for width in WIDTHS
    for name, more in (
        ("warp-tiled", {}),
        ("wgmma-tf32", {}),
        *((name, {"dtype": dtype}) for dtype in ("bf16", "fp16") for name in SIXTEEN_BITS),
    )
)
TOKENS, COLUMNS = 4096, 2048  # of a sequence; of all heads of a token, in a batch of 4
ATTENTION: tuple[tuple[str, Sizes], ...] = tuple(
    (
        "attention-wgmma",
        {"tokens": TOKENS, "heads": 4 * COLUMNS // size, "head_size": size, "causal": causal},
    )
    for size in (64, 128)
    for causal in ("no", "yes")
)
EDGE = 16384  # of matrices of 1 GiB
DRAM: tuple[tuple[str, Sizes, str], ...] = (
    ("copy-vectorized", {"n": EDGE * EDGE}, "dram_copy"),
    ("row-sum-block", {"width": EDGE}, "dram_read"),
    ("column-sum-block", {"width": EDGE}, "dram_read"),
    ("transpose-vectorized", {"width": EDGE}, "dram_copy"),
    ("transpose-padded", {"width": EDGE}, "dram_copy"),
    ("blur-vectorized", {"width": EDGE, "height": EDGE}, "dram_copy"),
    ("blur-tiled", {"width": EDGE, "height": EDGE}, "dram_copy"),
)
GROUPS = ("products", "attention", "dram")
SEED = 0


@dataclass(frozen=True)
class Row:
    """One kernel at one size beside its bar.

    Attributes:
        kernel: Its name in the catalog.
        sizes: Its parameters.
        verified: `passed`, `failed`, or `error` where it could not be measured.
        time_us: Its median time, microseconds.
        rate: FLOP/s or B/s, with its unit.
        clock_mhz: The SM clock, MHz: the median of all samples.
        registers: Per thread; they tell which version of the compiler the code is from.
        bar: What it stands beside.
        bar_rate: The rate of that, in the unit of `rate`.
        bar_clock_mhz: The SM clock while the library ran, MHz.
        ratio: Of the rates, this kernel's to its bar's: beside a library the median of all pairs of
            turns, otherwise that of `rate` and `bar_rate`.
        ratio_low: The lower end of its confidence interval (95%), beside a library.
        ratio_high: The upper end.
        power_w: What the board drew beside a library, watts.
        bar_power_w: What it drew while the library ran, watts.
        compiler: Who made the machine code.
        detail: The element with the largest error, or why there is no time.
    """

    kernel: str
    sizes: str
    verified: str
    time_us: str = ""
    rate: str = ""
    clock_mhz: str = ""
    registers: str = ""
    bar: str = ""
    bar_rate: str = ""
    bar_clock_mhz: str = ""
    ratio: str = ""
    ratio_low: str = ""
    ratio_high: str = ""
    power_w: str = ""
    bar_power_w: str = ""
    compiler: str = ""
    detail: str = ""

    def values(self) -> list[str]:
        """Its values, in the order of `HEADINGS`."""
        return [getattr(self, name) for name in HEADINGS]


HEADINGS = tuple(field.name for field in fields(Row))
"""The columns of the table and of the CSV."""


@dataclass(frozen=True)
class Bar:
    """What a kernel stands beside.

    Attributes:
        name: `cuBLAS`, a backend of PyTorch, or a ceiling.
        rate: FLOP/s or B/s.
        clock_hz: The SM clock, Hz; None if it was not read.
        power_w: What the board drew, watts; None if it was not read.
        ratio: The kernel's rate divided by `rate`, if pairs of turns tell it; None otherwise.
    """

    name: str
    rate: float
    clock_hz: float | None = None
    power_w: float | None = None
    ratio: Ratio | None = None


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; gives 1 where an output is wrong or a kernel could not be measured."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bars",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", nargs="?", type=Path)
    kernels = {row[0] for rows in (PRODUCTS, ATTENTION, DRAM) for row in rows}
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", choices=[*GROUPS, *sorted(kernels)]
    )
    options = parser.parse_args(words)
    properties = with_datasheet(gpu_query.query_properties(0))
    print(head(properties.name))
    print(conditions(properties))
    print(_line(HEADINGS), flush=True)
    failed = False
    with ExitStack() as stack:
        writer = None
        if options.folder is not None:
            path = options.folder / f"{prefix(properties.name)}-bars.csv"
            # Line-buffered, so that an interrupted run leaves the rows that it measured.
            file = path.open("w", buffering=1, encoding="utf-8", newline="")
            writer = csv.writer(stack.enter_context(file), lineterminator="\n")
            writer.writerow(HEADINGS)
        for row in measured(properties, set(options.only)):
            failed |= row.verified != "passed"
            print(_line(replace(row, compiler="").values()), flush=True)  # the head names it
            if writer is not None:
                writer.writerow(row.values())
    return int(failed)


def measured(properties: DeviceProperties, only: set[str]) -> Iterator[Row]:
    """A row for each kernel and size: its rate, that of its bar, and their ratio."""
    for name, sizes in PRODUCTS:
        if not only or only & {name, "products"}:
            yield row(name, sizes, properties, cublas_product)
    for name, sizes in ATTENTION:
        if not only or only & {name, "attention"}:
            yield row(name, sizes, properties, pytorch_attention)
    chosen = [(name, sizes, key) for name, sizes, key in DRAM if not only or only & {name, "dram"}]
    if chosen:
        rates = {rate.key: rate.value for rate in measure_peaks(0, properties).rates}
        for name, sizes, key in chosen:
            yield row(name, sizes, properties, Bar(key, rates[key]))


def prepared(name: str, sizes: Sizes, properties: DeviceProperties) -> Launch:
    """The launch of a kernel of the catalog."""
    return CATALOG[name].prepare(dict(sizes), launch_limits(properties))


def work(launch: Launch) -> int:
    """The FLOPs of a launch."""
    assert launch.flop is not None
    return launch.flop


def row(
    name: str,
    sizes: Sizes,
    properties: DeviceProperties,
    beside: Library | Bar,
) -> Row:
    """Measure a kernel.

    Args:
        name: The kernel.
        sizes: Its parameters.
        properties: The GPU's.
        beside: A library, which is measured in turns with it; or a ceiling in B/s, and the
            kernel's rate is that of its compulsory bytes.
    """
    found = Row(name, " ".join(f"{key}={value}" for key, value in sizes.items()), "error")
    try:
        launch = prepared(name, sizes, properties)
        compiled = compile_launch(launch, properties.compute_capability)
        if isinstance(beside, Bar):
            bar = beside
            timed, verification = time_alone(launch, compiled)
            rate, unit = launch.compulsory_bytes / timed.seconds, "TB/s"
        else:
            turns, verification = time_beside(beside, launch, compiled, SEED)
            timed, library = summary(turns.own), summary(turns.library)
            rate, unit = work(launch) / timed.seconds, "TFLOP/s"
            bar = Bar(
                turns.name,
                work(launch) / library.seconds,
                library.clock_hz,
                library.power_w,
                turns.ratio,
            )
    except MemlabError as error:
        return replace(found, detail=str(error))
    ratio = bar.ratio or Ratio(rate / bar.rate)
    return replace(
        found,
        verified=verification.status,
        time_us=f"{timed.seconds * 1e6:.1f}",
        rate=f"{rate / 1e12:.4g} {unit}",
        clock_mhz=_number(timed.clock_hz, 1e6),
        registers=str(compiled.resources.registers_per_thread or ""),
        bar=bar.name,
        bar_rate=f"{bar.rate / 1e12:.4g}",
        bar_clock_mhz=_number(bar.clock_hz, 1e6),
        ratio=_thousandths(ratio.median),
        ratio_low=_thousandths(ratio.low),
        ratio_high=_thousandths(ratio.high),
        power_w=_number(timed.power_w),
        bar_power_w=_number(bar.power_w),
        compiler=compiled.compiler,
        detail="" if verification.status == "passed" else verification.worst,
    )


def time_alone(launch: Launch, compiled: CompiledKernel) -> tuple[Turn, Verification]:
    """Verify and time a kernel as `memlab run` does."""
    time, verification, _, _ = measure_launch(
        0, launch, compiled, SEED, TimingSettings(), None, lambda: None
    )
    return Turn(time.median_s, time.clock_hz), verification


def _line(values: Iterable[str]) -> str:
    return "  ".join(value.ljust(12) for value in values).rstrip()


def _number(value: float | None, unit: float = 1.0) -> str:
    return "" if value is None else f"{value / unit:.0f}"


def _thousandths(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f}"


if __name__ == "__main__":
    sys.exit(main())
