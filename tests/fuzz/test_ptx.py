"""Broken PTX is refused, faults or runs, and never breaks the emulator."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache

import pytest
from fuzzing import cases
from hypothesis import given
from hypothesis import strategies as st

from memlab.device.budget import Budget
from memlab.device.checking.check import check_launch
from memlab.device.compiler.compile import CompiledKernel, compile_launch
from memlab.device.datasheets import loader
from memlab.device.devices import launch_limits
from memlab.device.emulation.device import emulate
from memlab.device.emulator.program.program import load_program
from memlab.device.emulator.ptx import parser
from memlab.device.measurement import DeviceSummary
from memlab.device.tracing.trace import trace_launch
from memlab.errors import MemlabError
from memlab.kernels.catalog import CATALOG
from memlab.kernels.launch import Launch

H200 = loader.load_datasheet("h200")
SUMMARY = DeviceSummary(H200.name, "emulated", (9, 0), "h200")
BUDGET = Budget(timeout_s=0.3, memory_bytes=2**30)
"""Limits for kernels that never end or request all memory."""
LAUNCHES = {
    "naive": {"width": 9, "tile": 4},
    "tiled": {"width": 9, "tile": 4},
    "blur": {"width": 9, "height": 9},
    "transpose-padded": {"width": 33},
    "filter-local": {"n": 64},
    "filter-constant": {"n": 64},
    "tensor-tf32": {"width": 16},
    "double-buffered": {"width": 16},
    "warp-tiled": {"width": 16},
}
ODD = ["", "0", "-1", "017", "0x", "0f7F800000", "9" * 20, "%r", "%r99", "%p1", "%f1", "%rd1"]
ODD += ["%tid.x", "_", "!", "@", "@!%p1", "{", "}", ";", "[", "]", "(", ")", "|", "//", "/*", "*/"]
ODD += [".param", ".shared", ".reg", ".b128", ".pred", ".align", ".s32", ".v2", "\0", "é", "²"]


@cache
def compiled() -> tuple[tuple[Launch, CompiledKernel], ...]:
    """Small launches of some kernels."""
    launches = [
        CATALOG[name].prepare(parameters, launch_limits(H200))
        for name, parameters in LAUNCHES.items()
    ]
    return tuple((launch, compile_launch(launch, H200.compute_capability)) for launch in launches)


@cache
def words() -> tuple[str, ...]:
    """All words of their PTX."""
    return tuple(sorted({word for _, kernel in compiled() for word in kernel.ptx.split()}))


@st.composite
def broken(draw: st.DrawFn) -> tuple[Launch, CompiledKernel]:
    """A kernel with exchanged words, moved lines or changed characters in its PTX."""
    launch, sound = draw(st.sampled_from(compiled()))
    lines = sound.ptx.splitlines()
    place = st.integers(0, len(lines) - 1)
    for _ in range(draw(st.integers(1, 3))):
        at, other = draw(place), draw(place)
        parts = lines[at].replace(",", " ,").split() or [""]
        word = draw(st.integers(0, len(parts) - 1))
        match draw(st.sampled_from(("word", "swap", "line", "twice", "gone", "cut", "noise"))):
            case "word":
                parts[word] = draw(st.sampled_from(words()) | st.sampled_from(ODD))
                lines[at] = " ".join(parts)
            case "swap":
                second = draw(st.integers(0, len(parts) - 1))
                parts[word], parts[second] = parts[second], parts[word]
                lines[at] = " ".join(parts)
            case "line":
                lines[at], lines[other] = lines[other], lines[at]
            case "twice":
                lines[at] += "\n" + lines[other]
            case "gone":
                lines[at] = ""
            case "cut":
                lines[at] = lines[at][: draw(st.integers(0, 20))]
            case "noise":
                middle = draw(st.integers(0, len(lines[at])))
                noise = draw(st.sampled_from(ODD) | st.text(max_size=4))
                lines[at] = lines[at][:middle] + noise + lines[at][middle + len(noise) % 2 :]
    if draw(st.integers(0, 19)) == 0:
        lines = lines[: draw(place)]
    return launch, replace(sound, ptx="\n".join(lines))


@given(broken())
@cases(100)
def test_broken_ptx_is_refused_or_loads(case: tuple[Launch, CompiledKernel]) -> None:
    launch, changed = case
    with suppress(MemlabError):
        load_program(parser.parse_ptx(changed.ptx), launch.entry)


@pytest.mark.parametrize("way", ["run", "check", "trace"])
@given(case=broken())
@cases(50)
def test_broken_ptx_runs_or_ends_in_an_error(way: str, case: tuple[Launch, CompiledKernel]) -> None:
    launch, changed = case
    with suppress(MemlabError):
        match way:
            case "run":
                emulate(launch, changed, H200, 0, budget=BUDGET)
            case "check":
                check_launch(launch, changed, SUMMARY, budget=BUDGET)
            case "trace":
                trace_launch(launch, changed, (0, 0, 0), (0, 0, 0), H200.name, budget=BUDGET)
