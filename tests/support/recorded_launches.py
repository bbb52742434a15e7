"""What is recorded of a launch: of `run`, `check` and `trace`, and of a kernel run by itself."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from paths import REPOSITORY
from ptx import Launched, run
from recorded_results import Record, digest, digest_array

from memlab.device.access_counts import NamedCounters
from memlab.device.budget import Budget
from memlab.device.checking.check import check_launch
from memlab.device.compiler.compile import compile_launch
from memlab.device.devices import Device, open_device
from memlab.device.emulation.device import Emulation, emulate, resident_blocks
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.machine.tally import Tally
from memlab.device.measurement import Coverage, DeviceSummary, Verification
from memlab.device.tracing.trace import trace_launch
from memlab.errors import MemlabError
from memlab.kernels.launch import Dim3, Launch
from memlab.roofline.documents.check import check_document
from memlab.roofline.documents.trace import trace_document

Architecture = tuple[int, int]

HOPPER: Architecture = (9, 0)
BUDGET = Budget(timeout_s=600)

_SEED = 1
_LOOSE_OPCODES = re.compile(r"\b(sin|cos|ex2|lg2|tanh)\.approx\b")
_FLOATS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
_MOST_CHARACTERS = 2000  # of a part of a document that is kept whole


def has_loose_floats(ptx: str) -> bool:
    """Whether a program has an approximation whose last bit may differ in another emulator.

    This is the one place that says so: of such a program the floating-point arrays, and the error
    of its outputs, are left out of the records.
    """
    return _LOOSE_OPCODES.search(ptx) is not None


# --- run ---------------------------------------------------------------------------------------


def record_run(launch: Launch, architecture: Architecture = HOPPER) -> Record:
    """All that an emulated H200 counts, models and verifies of a launch, or its error."""
    device = _h200()
    compiled = compile_launch(launch, architecture)
    loose = has_loose_floats(compiled.ptx)
    arrays: Record = {}
    verification = Execution.verification

    def keep_arrays(execution: Execution, whole: bool) -> Callable[[], Verification]:
        """The arrays as the counted blocks left them: blocks that are run later change them."""
        arrays.update(_record_buffers(execution, loose))
        return verification(execution, whole)

    head = _compilation(compiled.ptx, launch)
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        try:
            with patch.object(Execution, "verification", keep_arrays):
                emulation = emulate(launch, compiled, device.properties, _SEED, budget=BUDGET)
        except MemlabError as error:
            return head | record_error(error)
    resident = resident_blocks(launch, compiled, device.properties)
    time = emulation.time(resident, device.properties)
    return {
        **head,
        "coverage": _record_coverage(emulation.coverage),
        "counters": _nonzero(emulation.counters),
        "lines": {f"line {line.line}": _nonzero(line) for line in emulation.lines},
        "accesses": _record_accesses(emulation),
        "region": dict(vars(emulation.region)),
        "warp clocks": _rounded(emulation.work.warp_clocks),
        "mean warp clocks": _rounded(emulation.work.mean_warp_clocks),
        "time": {"median": _rounded(time.median_s)}
        | {name: _rounded(value) for name, value in time.bounds_s.items()},
        "verification": _record_verification(emulation.verification, loose),
        "arrays": arrays,
        **record_text(printed.getvalue()),
    }


def _record_coverage(coverage: Coverage) -> Record:
    error = coverage.relative_standard_error
    rounded = None if error is None else _rounded(error)
    return {**vars(coverage), "relative_standard_error": rounded}


def _record_accesses(emulation: Emulation) -> Record:
    return {
        f"line {item.counters.line} {item.space} {item.direction} {item.array}".strip(): _nonzero(
            item.counters
        )
        for item in emulation.accesses
    }


def _record_buffers(execution: Execution, loose: bool) -> Record:
    """For each array that was written: the digest of its values, how many elements, and which."""
    arrays = {}
    for buffer in execution.launch.buffers:
        floats = _FLOATS.get(buffer.dtype, "")
        written = execution.memory.elements_written(buffer.name)
        if written.size:
            arrays[buffer.name] = describe_array(
                execution.array(buffer), written, floats, loose and bool(floats)
            )
    for variable in execution.program.globals:
        written = execution.memory.elements_written(variable.name)
        if written.size:
            values = execution.memory.bytes_of(variable.name)
            arrays[variable.name] = describe_array(values, written, "", loose)
    return arrays


def describe_array(values: Any, written: Any, floats: str, loose: bool = False) -> str:
    """The digest of an array's values, how many elements were stored to, and which."""
    bits = "approximate" if loose else digest_array(values, floats)
    return f"{bits} {written.size} {digest(np.asarray(written, np.int64).tobytes())}"


def _record_verification(verification: Verification, loose: bool) -> Record:
    """Its fields; the error is rounded, because the order of a reference's sums is open."""
    values = dict(vars(verification))
    for name in ("relative_error", "tolerance"):
        value = values[name]
        values[name] = None if value is None else float(f"{value:.4g}")
    if loose:
        del values["relative_error"], values["worst"]
    return values


def _nonzero(counters: NamedCounters) -> Record:
    """The counts that are not 0, by their flat names."""
    named = counters.by_name()
    return {name: n for name, n in named.items() if n and name not in ("line", "text")}


def _rounded(value: float) -> float:
    return float(f"{value:.12g}")


# --- check and trace ---------------------------------------------------------------------------


def record_check(launch: Launch, architecture: Architecture = HOPPER) -> Record:
    """The whole document of a check, or its error."""
    compiled = compile_launch(launch, architecture)
    device = DeviceSummary("NVIDIA H200", "emulated", architecture, "h200")
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        try:
            report = check_launch(launch, compiled, device, _SEED, budget=BUDGET)
        except MemlabError as error:
            return _compilation(compiled.ptx, launch) | record_error(error)
    document = check_document(report)
    loose = has_loose_floats(compiled.ptx)
    document["verification"] = _record_verification(report.verification, loose)
    return (
        _compilation(compiled.ptx, launch)
        | _without_paths(document)
        | record_text(printed.getvalue())
    )


def record_trace(launch: Launch, block: Dim3, thread: Dim3) -> Record:
    """The document of a trace; of its long parts the digest."""
    compiled = compile_launch(launch, HOPPER)
    traced = trace_launch(launch, compiled, block, thread, "h200", BUDGET, seed=_SEED)
    document = _without_paths(trace_document(traced))
    short = {}
    for name, part in document.items():
        text = json.dumps(part)
        short[name] = part
        if len(text) > _MOST_CHARACTERS:
            short[name] = f"{len(part)} entries {digest(text)}"
    return _compilation(compiled.ptx, launch) | short


# --- A kernel by itself ------------------------------------------------------------------------


def record_kernel(text: str, arrays: Mapping[str, Any], scalars: Any, **launch: Any) -> Record:
    """The counters and arrays of a kernel in PTX; the arguments are those of `ptx.run`."""
    loose = has_loose_floats(text)
    launched = run(text, arrays, scalars, **launch)
    return _compilation(text) | {
        "counters": record_tally(launched.tally),
        "arrays": record_arrays(
            launched,
            arrays,
            {name: _FLOATS.get(np.asarray(array).dtype.name, "") for name, array in arrays.items()},
            loose,
        ),
    }


_LEFT_OUT = ("rounds", "rests", "taken_lanes", "taken_warps", "parted_warps")


def record_tally(tally: Tally) -> Record:
    """For each counter its sum, and the digest of its counts by instruction.

    Those of loops and branches are left out: `test_loop_trips` and `test_branches` count them.
    """
    return {
        name: f"{sum(counts)} {digest(','.join(map(str, counts)))}"
        for name, counts in vars(tally).items()
        if any(counts) and name not in _LEFT_OUT
    }


def record_arrays(
    launched: Launched,
    before: Mapping[str, Any],
    floats: Mapping[str, str],
    loose: bool = False,
) -> Record:
    """The arrays that were written, by name; `floats` has the types of those of such numbers."""
    arrays = {}
    for name in launched.arrays:
        written = launched.memory.elements_written(name)
        kind = floats.get(name, "")
        if written.size or not np.array_equal(before.get(name, launched[name]), launched[name]):
            arrays[name] = describe_array(launched[name], written, kind, loose and bool(kind))
    return arrays


# --- Parts of records --------------------------------------------------------------------------


@cache
def _h200() -> Device:
    return open_device("h200")


def _compilation(ptx: str, launch: Launch | None = None) -> Record:
    """The compiler's version, the digest of the source, and that of the PTX without comments."""
    lines = [line for line in ptx.splitlines() if not line.startswith("//") and ".file" not in line]
    source = {} if launch is None else {"source": digest(f"{launch.source} {launch.defines}")}
    return {"compiler": compiler(), **source, "ptx": digest("\n".join(lines))}


@cache
def compiler() -> str:
    """The version of NVRTC."""
    try:
        return metadata.version("nvidia-cuda-nvrtc")
    except metadata.PackageNotFoundError:
        return "unknown"


def record_error(error: MemlabError) -> Record:
    """The message of an error."""
    return _without_paths({"message": f"{type(error).__name__}: {error}"})


def record_text(text: str) -> Record:
    """The length and the digest of what a kernel printed, if anything."""
    return {"printed": f"{len(text)} characters {digest(text)}"} if text else {}


def _without_paths(document: Record) -> Record:
    """A document with paths that begin at the repository."""
    return without_folder(document, REPOSITORY)


def without_folder(document: Record, folder: Path | str) -> Record:
    """A document with the path of a folder taken out."""
    place = json.dumps(f"{folder}/")[1:-1]
    result: Record = json.loads(json.dumps(document).replace(place, ""))
    return result
