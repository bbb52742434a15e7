"""One point of a sweep: the job that is sent to where it runs, its key, and its outcome."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlab.device.compiler.headers import find_headers
from memlab.device.properties import device_summary
from memlab.errors import DeviceError, MemlabError, UsageError
from memlab.kernels import catalog
from memlab.kernels.user.arguments.specifications import ExpectedOutput, Specification
from memlab.kernels.user.kernel import (
    UserKernel,
    compile_options,
    is_compiled,
    is_object,
    read_source,
)
from memlab.roofline.documents.runs import run_document
from memlab.version import memlab_version

if TYPE_CHECKING:
    from memlab.device.devices import Device
    from memlab.device.measurement import Progress
    from memlab.roofline.sweep.records import RowStatus
    from memlab.roofline.sweep.space import Value


_FILE = re.compile(r"@[^,\[\]]+|^.+\.py:")
"""The files in the text of an option: `@x.npy`, and the program of `reference.py:function`."""


@dataclass(frozen=True)
class RunOptions:
    """The options of `memlab.run` that are the same for all points.

    Attributes:
        seed: See `memlab.run`.
        samples: See `memlab.run`.
        timeout_s: See `memlab.run`.
        memory_bytes: See `memlab.run`.
        energy: Whether the energy of a launch is measured too.
    """

    seed: int = 0
    samples: int | None = None
    timeout_s: float | None = None
    memory_bytes: int | None = None
    energy: bool = False


@dataclass(frozen=True)
class PointJob:
    """A point, ready to be run in any process.

    Attributes:
        number: Its number in the space.
        kernel: The catalog kernel, or the user kernel with its expressions computed.
        parameters: The parameters of a catalog kernel.
        device: The device; None for the default one of the process that runs it.
        options: The options of the run.
        source_sha256: The hash of the text of a user kernel's file; empty for a catalog kernel.
        folder: The folder to which the kernel's paths are relative.
        cores: The processor cores that the emulator may use; empty for all.
    """

    number: int
    kernel: str | UserKernel
    parameters: Mapping[str, Value]
    device: str | int | None
    options: RunOptions
    source_sha256: str = ""
    folder: str = field(default_factory=os.getcwd)
    cores: tuple[int, ...] = ()


@dataclass(frozen=True)
class PointOutcome:
    """What came of a point, as plain data that any version can send.

    Attributes:
        status: See `RowStatus`.
        reason: Why it is not done; empty if it is.
        document: The document of its run; None where there is none.
        energy_j: Energy of one launch, joules; None where it was not measured.
        host: The machine that ran it.
        exit_code: The exit code of the error that it met; 0 for none.
    """

    status: RowStatus
    reason: str = ""
    document: Mapping[str, Any] | None = None
    energy_j: float | None = None
    host: str = ""
    exit_code: int = 0


def source_hash(kernel: str | UserKernel) -> str:
    """The SHA-256 of the text of a user kernel's file, hexadecimal; empty for a catalog kernel.

    Raises:
        UsageError: The file cannot be read.
    """
    return "" if isinstance(kernel, str) else _sha256(read_source(kernel))


def point_key(job: PointJob, device_facts: str) -> str:
    """The key of a point: equal where its run would be the same.

    It covers the version of memlab, the source with its headers, macros and compiler options, the
    launch with the files that it names, the options of the run, and the device.

    Args:
        job: The point.
        device_facts: What tells the device from others: a datasheet's figures, a GPU's name and
            driver.

    Raises:
        UsageError: The source or a header cannot be read.
    """
    kernel = job.kernel
    content: dict[str, Any] = {
        "memlab": memlab_version(),
        "device": device_facts,
        "options": asdict(job.options),
    }
    if isinstance(kernel, str):
        found = catalog.find_kernel(kernel)
        content["kernel"] = [kernel, _sha256(found.source), sorted(job.parameters.items())]
    else:
        source = read_source(kernel)
        options = compile_options(kernel)
        headers = () if is_compiled(kernel) else find_headers(source, kernel.source, options).own
        content["kernel"] = [
            _sha256(source),
            [[name, hashlib.sha256(text).hexdigest()] for name, text in headers],
            {
                option.name: _option_facts(getattr(kernel, option.name))
                for option in fields(kernel)
                if option.name not in ("source", "name", "restrict")
            },
        ]
    if not isinstance(kernel, str) and is_object(kernel):
        content["once"] = secrets.token_hex()  # nothing tells all that its function uses
    return _sha256(json.dumps(content, sort_keys=True, default=repr))


def run_job(job: PointJob) -> PointOutcome:
    """Run a point in another process: in its folder, on its cores, if the source is the same."""
    needs_files = not isinstance(job.kernel, str) or str(job.device).endswith(".toml")
    try:
        if needs_files:
            os.chdir(job.folder)
    except OSError as error:
        return _lost(f"the folder {job.folder} is not there ({error.strerror}): share it")
    try:
        if source_hash(job.kernel) != job.source_sha256:
            return _lost("the kernel's file has another text there: share its folder")
    except MemlabError as error:
        return _lost(str(error))
    if job.cores:
        os.sched_setaffinity(0, job.cores)
    return run_point(job)


def run_point(
    job: PointJob, device: Device | None = None, progress: Progress | None = None
) -> PointOutcome:
    """Run a point; every error of memlab becomes its outcome.

    Args:
        job: The point.
        device: The open device; None to open the one that the point names.
        progress: Called with the current step and its completed fraction.
    """
    from memlab.device.devices import open_device
    from memlab.launching import emulation_budget, prepare_on, timing_settings
    from memlab.running import run_prepared
    from memlab.sweeps.gpu_lock import gpu_lock

    options = job.options
    host = socket.gethostname()
    try:
        settings = timing_settings(options.samples, options.timeout_s)
        budget = emulation_budget(options.timeout_s, options.memory_bytes)
        opened = device or open_device(job.device, settings, budget)
        prepared = prepare_on(
            opened, job.kernel, job.parameters, options.seed, settings, budget, progress, job.device
        )
        with gpu_lock(prepared.device_summary.uuid):
            run = run_prepared(prepared)
            energy_j = None
            if options.energy:
                from memlab.hardware import launch_energy_j

                energy_j = launch_energy_j(prepared)
    except UsageError as error:
        return PointOutcome("impossible", str(error), host=host, exit_code=error.exit_code)
    except DeviceError as error:
        return PointOutcome("lost", str(error), host=host, exit_code=error.exit_code)
    except MemlabError as error:
        return PointOutcome("fault", str(error), host=host, exit_code=error.exit_code)
    verification = run.measurement.verification
    status: RowStatus = "wrong" if verification.status == "failed" else "done"
    reason = (
        ""
        if status == "done"
        else f"wrong output: {verification.wrong:,} of {verification.checked:,} elements, "
        f"relative error {verification.relative_error:.3g}"
    )
    return PointOutcome(status, reason, run_document(run), energy_j, host, int(status == "wrong"))


def device_facts(device: Device) -> str:
    """What tells a device from others: a datasheet's figures, or a GPU's name and driver."""
    if device.kind == "emulated":
        return f"emulated {_sha256(repr(device.properties))}"
    summary = device_summary(device.properties, device.kind, device.key)
    return f"{summary.name}, driver {summary.driver}"


def _lost(reason: str) -> PointOutcome:
    host = socket.gethostname()
    return PointOutcome("lost", f"{host}: {reason}", host=host, exit_code=DeviceError.exit_code)


def _option_facts(value: Any) -> Any:
    """An option of a user kernel, told from others: files and arrays by their content."""
    if isinstance(value, tuple):
        return [_option_facts(part) for part in value]
    if isinstance(value, str):
        return [value, *(_file_facts(file) for file in _FILE.findall(value))]
    if isinstance(value, ExpectedOutput):
        return [value.which, hashlib.sha256(value.values.tobytes()).hexdigest()]
    if isinstance(value, Specification):
        return value.text  # that of an array has its checksum
    code = getattr(value, "__code__", None)
    if code is not None:
        return [value.__qualname__, _sha256(code.co_code.hex() + repr(code.co_consts))]
    return value


def _file_facts(file: str) -> Any:
    """A file that an option names: a program by its text, data by length and time of change."""
    path = Path(file.lstrip("@").removesuffix(":"))
    try:
        if file.endswith(":"):
            return _sha256(path.read_text("utf-8", "replace"))
        state = path.stat()
    except (OSError, ValueError):
        return None  # the run says so
    return [state.st_size, state.st_mtime_ns]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
