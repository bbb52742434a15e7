"""User kernels with four million elements: the time, and whether all counters are right."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from benchmarks.commands import MEMLAB, cost
from benchmarks.report import Figure
from memlab.device.compiler import cache
from memlab.device.compiler.compile import compile_kernel
from memlab.device.compiler.translation_unit import TranslationUnit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from ten_kernels import KERNELS

HEADERS = ("cuda_fp16.h", "cuda_bf16.h", "mma.h", "cooperative_groups.h", "cuda/std/array")
ENTRY = "_Z1kPf"  # `void k(float *)`, mangled
ELEMENTS = 4_000_000
MOST_S = 10.0


def runs() -> list[Figure]:
    """Time whole commands, and compare their counters with those computed from the addresses.

    Raises:
        RuntimeError: A command failed, for example because its result is wrong.
    """
    figures = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        for make in KERNELS:
            case, document = make(ELEMENTS), folder / f"{make.__name__}.json"
            options = ("--device", "h200", "--no-store", "-q", "--output", str(document))
            run_cost = cost([*MEMLAB, *case.words(folder), *options])
            counters = json.loads(document.read_text())["counters"]
            different = sum(
                counters[f"global_{count}"] != value for count, value in vars(case.traffic).items()
            )
            figures.append(Figure(f"{case.name}: wall", run_cost.wall_s, "s", MOST_S))
            figures.append(Figure(f"{case.name}: wrong counts", different, "of 4", 0))
    return figures


def headers() -> list[Figure]:
    """Time the compilation of several of CUDA's headers, without and with the cache."""
    includes = "".join(f"#include <{name}>\n" for name in HEADERS)
    source = includes + "__global__ void k(float *x) { *x = 1; }\n"
    unit = TranslationUnit(source, "headers.cu", (9, 0), name_expression="k")
    with TemporaryDirectory() as folder, patch.dict(os.environ, {cache.CACHE_VARIABLE: folder}):
        times_s = []
        for _ in range(2):
            started = time.perf_counter()
            compile_kernel(unit, ENTRY)
            times_s.append(time.perf_counter() - started)
    return [
        Figure("five of CUDA's headers, compiled: wall", times_s[0], "s"),
        Figure("the same from the cache: wall", times_s[1], "s"),
    ]
