"""Kernels of the catalog on this GPU beside the best that is known there, in one run.

    python -m benchmarks.bars [FOLDER] [--only WORD...]

Products stand beside cuBLAS, attention beside the fastest backend of PyTorch's
`scaled_dot_product_attention` (where PyTorch is installed), and copies and sums beside the ceilings
of DRAM that `memlab peaks` measures. Each kernel is verified before it is timed; times are memlab's
medians with cold caches. `--only` takes kernels and `products`, `attention` or `dram`. With a
folder, also writes `…-bars.csv` to it.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.gpu_results import head, prefix
from memlab.device.compiler.compile import compile_launch
from memlab.device.devices import launch_limits
from memlab.device.gpu import query as gpu_query
from memlab.device.gpu.device import measure_launch, with_datasheet
from memlab.device.gpu.library_baseline import measure_baseline
from memlab.device.gpu.peaks.measure import measure_peaks
from memlab.device.gpu.timing import TimingSettings
from memlab.device.properties import DeviceProperties
from memlab.kernels.attention import INPUTS
from memlab.kernels.catalog import CATALOG
from memlab.kernels.launch import Launch

Sizes: TypeAlias = Mapping[str, int | str]

WIDTHS = (2048, 4096, 8192)
SIXTEEN_BITS = (
    *("wgmma", "wgmma-pipelined", "wgmma-specialized", "wgmma-persistent", "wgmma-cluster"),
    "wgmma-pingpong",
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
FLUSH_BYTES = 256 * 2**20
ROUNDS = 30


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; gives 1 where an output is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bars", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    kernels = {row[0] for rows in (PRODUCTS, ATTENTION, DRAM) for row in rows}
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", choices=[*GROUPS, *sorted(kernels)]
    )
    options = parser.parse_args(words)
    properties = with_datasheet(gpu_query.query_properties(0))
    print(head(properties.name))
    rows = []
    for row in measured(properties, set(options.only)):
        rows.append(row)
        print("  ".join(str(value).ljust(20) for value in row.values()), flush=True)
    if options.folder is not None and rows:
        path = options.folder / f"{prefix(properties.name)}-bars.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return int(any(row["verified"] != "passed" for row in rows))


def measured(properties: DeviceProperties, only: set[str]) -> Iterator[dict[str, str]]:
    """A row for each kernel and size: its rate, that of its bar, and their ratio."""
    bars: dict[tuple[int | str, str], float] = {}  # of cuBLAS, by width and type
    for name, sizes in PRODUCTS:
        if not only or only & {name, "products"}:
            launch = prepared(name, sizes, properties)
            bar = sizes["width"], launch.defines.get("INPUT", "")
            if bar not in bars:
                bars[bar] = measure_baseline(0, launch, seed=0).flop_per_s
            yield _row(launch, sizes, properties, "cuBLAS", bars[bar])
    for name, sizes in ATTENTION:
        if not only or only & {name, "attention"}:
            launch = prepared(name, sizes, properties)
            times = attention_times(sizes)
            backend = min(times, key=lambda name: times[name], default="")
            bar_rate = _work(launch) / times[backend] if backend else None
            yield _row(launch, sizes, properties, backend, bar_rate)
    chosen = [(name, sizes, key) for name, sizes, key in DRAM if not only or only & {name, "dram"}]
    if chosen:
        rates = {rate.key: rate.value for rate in measure_peaks(0, properties).rates}
        for name, sizes, key in chosen:
            launch = prepared(name, sizes, properties)
            yield _row(launch, sizes, properties, key, rates[key], in_bytes=True)


def prepared(name: str, sizes: Sizes, properties: DeviceProperties) -> Launch:
    """The launch of a kernel of the catalog."""
    return CATALOG[name].prepare(dict(sizes), launch_limits(properties))


def _work(launch: Launch) -> int:
    assert launch.flop is not None
    return launch.flop


def _row(
    launch: Launch,
    sizes: Sizes,
    properties: DeviceProperties,
    bar: str,
    bar_rate: float | None,
    in_bytes: bool = False,
) -> dict[str, str]:
    compiled = compile_launch(launch, properties.compute_capability)
    time, verification, _, _ = measure_launch(
        0, launch, compiled, 0, TimingSettings(), None, lambda: None
    )
    rate = (launch.compulsory_bytes if in_bytes else _work(launch)) / time.median_s
    return {
        "kernel": launch.kernel,
        "sizes": " ".join(f"{name}={value}" for name, value in sizes.items()),
        "verified": verification.status,
        "time_us": f"{time.median_s * 1e6:.1f}",
        "rate": f"{rate / 1e12:.4g} {'TB/s' if in_bytes else 'TFLOP/s'}",
        "clock_MHz": "" if time.clock_hz is None else f"{time.clock_hz / 1e6:.0f}",
        "bar": bar,
        "bar_rate": "" if bar_rate is None else f"{bar_rate / 1e12:.4g}",
        "ratio": "" if bar_rate is None else f"{rate / bar_rate:.3f}",
    }


def attention_times(sizes: Sizes) -> dict[str, float]:
    """The median seconds of PyTorch's attention by backend, with cold caches; empty without it."""
    try:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:
        return {}
    heads, tokens, size = (int(sizes[name]) for name in ("heads", "tokens", "head_size"))
    generator = torch.Generator("cuda").manual_seed(0)
    q, k, v = (
        torch.empty((1, heads, tokens, size), device="cuda")
        .uniform_(INPUTS.low, INPUTS.high, generator=generator)
        .bfloat16()
        for _ in range(3)
    )
    flush = torch.randint(256, (FLUSH_BYTES,), dtype=torch.uint8, device="cuda")
    found: dict[str, float] = {}
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):

        def attend() -> Any:
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=sizes["causal"] == "yes"
            )

        with sdpa_kernel(backend):
            try:
                attend()
            except RuntimeError:  # this backend does not take these sizes
                continue
            seconds = []
            for _ in range(ROUNDS):
                flush.max()  # reading leaves no lines in the L2 that are to be written back
                events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
                events[0].record()
                attend()
                events[1].record()
                torch.cuda.synchronize()
                seconds.append(events[0].elapsed_time(events[1]) * 1e-3)
            found[backend.name] = statistics.median(seconds)
    return found


if __name__ == "__main__":
    sys.exit(main())
