"""Points on Dask workers: processes of this machine, or those of a cluster.

The client decides which worker runs which point and gives each worker one at a time, so that no GPU
is timed twice at once and the death of a worker costs one point. It alone keeps the results.
"""

from __future__ import annotations

import logging
import os
import platform
import re
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from memlab.device.devices import (
    DEFAULT_DATASHEET,
    DEVICE_VARIABLE,
    GPU_PREFIX,
    gpu_index,
    open_device,
    usable_gpu_names,
)
from memlab.device.properties import device_summary
from memlab.errors import DeviceError, MemlabError, MemlabWarning, UsageError
from memlab.sweeps.points import PointJob, PointOutcome, run_job
from memlab.sweeps.pools import OwnProcess, no_energy_error
from memlab.version import memlab_version

if TYPE_CHECKING:
    from memlab.device.measurement import Progress
    from memlab.sweeps.definition import SweepDefinition
    from memlab.sweeps.local_workers import LocalWorkers

CONNECT_TIMEOUT_S = 10.0
"""How long a scheduler may take to answer, seconds."""
POLL_S = 0.3
"""How often the list of workers is read while points run, seconds."""
NO_WORKER_TIMEOUT_S = 60.0
"""How long a sweep waits for a worker where none is there, seconds."""
MAX_ATTEMPTS = 2
"""A point whose worker died is tried once more."""


_ADDRESS = re.compile(r"(?:(?:tcp|tls|ws|wss|ucx)://)?[^\s/]+:\d{1,5}")


@dataclass(frozen=True)
class WorkerFacts:
    """What a worker says of itself.

    Attributes:
        memlab: The version of memlab.
        python: The version of Python.
        host: The machine.
        gpu_uuid: The UUID of its first GPU; empty without one.
        gpu_name: That GPU's name.
        driver: That GPU's driver.
        trouble: Why its GPU cannot be used; empty otherwise.
    """

    memlab: str
    python: str
    host: str
    gpu_uuid: str = ""
    gpu_name: str = ""
    driver: str = ""
    trouble: str = ""


@dataclass
class _Running:
    job: PointJob
    future: Any
    attempt: int


def worker_facts(with_gpu: bool) -> WorkerFacts:
    """Describe the worker that calls this.

    Args:
        with_gpu: Whether its GPU is needed.
    """
    facts = WorkerFacts(memlab_version(), platform.python_version(), socket.gethostname())
    if not with_gpu:
        return facts
    try:
        device = open_device(f"{GPU_PREFIX}0")
    except MemlabError as error:
        return replace(facts, trouble=str(error))
    summary = device_summary(device.properties, device.kind, device.key)
    return replace(
        facts,
        gpu_uuid=summary.uuid or "",
        gpu_name=summary.name,
        driver=summary.driver or "",
    )


def open_cluster(
    definition: SweepDefinition,
    workers: int | None,
    scheduler: str | None,
    progress: Progress | None = None,
) -> DaskPool:
    """Start local workers, or connect to a cluster.

    Args:
        definition: The sweep.
        workers: The number of processes to start here.
        scheduler: The address of a cluster's scheduler.
        progress: Called while workers start.

    Raises:
        UsageError: The number, the address or the devices do not suit.
        DeviceError: Dask is not installed, the scheduler does not answer, or no worker can run
            the points.
    """
    try:
        import distributed
    except ImportError:
        raise DeviceError(
            "several processes need Dask's distributed, which is not installed: "
            "pip install 'memlab[cluster]'"
        ) from None
    for name in ("distributed", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if progress is not None:
        progress("starting workers" if scheduler is None else f"connecting to {scheduler}", None)
    if scheduler is not None:
        client = _connect(distributed, scheduler)
        try:
            declared = [
                "GPU" in info.get("resources", {}) for info in _scheduler_workers(client).values()
            ]
            on_gpu = _wants_gpu(definition.devices, any(declared))
            return DaskPool(client, definition, on_gpu, place=scheduler)
        except BaseException:
            client.close()
            raise
    if workers is None or workers < 1:
        raise UsageError(f"--workers must be 1 or more, got {workers}: use --workers 2")
    from memlab.sweeps.local_workers import LocalWorkers

    gpus = [] if _all_emulated(definition.devices) else usable_gpu_names()
    on_gpu = _wants_gpu(definition.devices, bool(gpus))
    if on_gpu and workers > len(gpus):
        raise UsageError(
            f"--workers {workers} are one a GPU, and {len(gpus)} can be used here: use at most "
            f"--workers {len(gpus)}, or an emulated device such as --device h200"
        )
    local = LocalWorkers(workers, [_gpu_uuid(name) for name in gpus[:workers]] if on_gpu else [])
    try:
        client = _connect(distributed, local.address)
        return DaskPool(client, definition, on_gpu, place="this machine", local=local)
    except BaseException:
        local.close()
        raise


class DaskPool:
    """Dask workers, each with one point at a time."""

    def __init__(
        self,
        client: Any,
        definition: SweepDefinition,
        on_gpu: bool,
        *,
        place: str,
        local: LocalWorkers | None = None,
    ) -> None:
        """Ask the workers what they are.

        Args:
            client: The connected client of `distributed`.
            definition: The sweep.
            on_gpu: Whether the points run on the workers' GPUs.
            place: The scheduler's address, for messages.
            local: The processes that were started for this sweep.

        Raises:
            DeviceError: No worker can run the points; the message says why.
        """
        self._client, self._place, self._local = client, place, local
        self._on_gpu = on_gpu
        self._own = OwnProcess(definition.options)
        self._facts: dict[str, WorkerFacts] = {}
        self._refused: dict[str, str] = {}
        self._running: dict[str, _Running] = {}
        self._again: list[tuple[PointJob, str]] = []
        self._outcomes: list[tuple[PointJob, PointOutcome]] = []
        self._names: dict[str, str] = {}
        self._changed = threading.Event()
        self._await_workers()

    def device_facts(self, device: str | None) -> str:
        """What tells a device from others; GPUs of one name and driver count as one."""
        if not self._on_gpu:
            return self._own.device_facts(_emulated_name(device or ""))
        known = {f"{facts.gpu_name}, driver {facts.driver}" for facts in self._facts.values()}
        return "; ".join(sorted(known))

    def require_energy(self, devices: Sequence[str]) -> None:
        """Refuse to measure energy on emulated devices.

        Raises:
            DeviceError: The devices are emulated.
        """
        if not self._on_gpu:
            raise no_energy_error(_emulated_name(devices[0]))

    def has_room(self) -> bool:
        """Whether a worker is idle."""
        return bool(self._idle())

    def submit(self, job: PointJob) -> None:
        """Give a point to an idle worker."""
        self._start(job, self._idle()[0], attempt=1)

    def wait(self) -> Sequence[tuple[PointJob, PointOutcome]]:
        """Wait until some points are finished; points of dead workers are begun again.

        Raises:
            DeviceError: No worker is left, or the scheduler does not answer.
        """
        without_worker_since: float | None = None
        while not self._outcomes:
            self._changed.wait(POLL_S)
            self._changed.clear()
            self._collect()
            self._refresh()
            self._begin_again()
            if self._facts or self._outcomes:
                without_worker_since = None
                continue
            now = time.monotonic()
            without_worker_since = without_worker_since or now
            if now - without_worker_since > NO_WORKER_TIMEOUT_S:
                raise self._no_worker_error()
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def close(self) -> None:
        """Give up what runs, and end the processes that were started here."""
        with suppress(Exception):
            self._client.cancel([running.future for running in self._running.values()])
        with suppress(Exception):
            self._client.close(timeout=2)
        if self._local is not None:
            self._local.close()

    def _await_workers(self) -> None:
        """Wait for the first workers; those started here all get the time to come up."""
        wanted = 1 if self._local is None else self._local.count
        deadline = time.monotonic() + NO_WORKER_TIMEOUT_S
        while len(self._facts) < wanted:
            self._refresh()
            here = len(self._facts)
            if here >= wanted:
                break
            if self._refused and (self._local is None or here + len(self._refused) >= wanted):
                break
            if time.monotonic() > deadline or (self._local is None and not self._names):
                break
            time.sleep(POLL_S)
        if not self._facts:
            raise self._no_worker_error()
        if self._refused:
            reasons = "; ".join(dict.fromkeys(self._refused.values()))
            warnings.warn(f"workers left out: {reasons}", MemlabWarning, stacklevel=2)

    def _idle(self) -> list[str]:
        """The addresses of workers that can take a point; points to begin again come first."""
        idle = [address for address in self._facts if address not in self._running]
        return idle[len(self._again) :]

    def _start(self, job: PointJob, address: str, attempt: int) -> None:
        cores: tuple[int, ...] = ()
        if self._local is not None:  # the emulator counts for GPUs, too
            cores = self._local.cores(self._names.get(address, ""))
        device = 0 if self._on_gpu else _emulated_name(str(job.device or ""))
        future = self._client.submit(
            run_job,
            replace(job, device=device, cores=cores),
            key=f"memlab-{uuid.uuid4().hex}",
            workers=[address],
            allow_other_workers=False,
            resources={"GPU": 1} if self._on_gpu else None,
            retries=0,
            pure=False,
        )
        self._running[address] = _Running(job, future, attempt)
        future.add_done_callback(lambda _: self._changed.set())

    def _collect(self) -> None:
        """Take the results of finished points."""
        for address, running in list(self._running.items()):
            if running.future.status not in ("finished", "error"):
                continue
            del self._running[address]
            try:
                outcome = running.future.result(timeout=CONNECT_TIMEOUT_S)
            except Exception as error:
                if type(error).__name__ == "KilledWorker":
                    self._give_up_or_repeat(running, address)
                    continue
                reason = " ".join(f"{type(error).__name__}: {error}".split())
                outcome = PointOutcome(
                    "lost", f"worker {address}: {reason}", exit_code=DeviceError.exit_code
                )
            self._outcomes.append((running.job, outcome))

    def _refresh(self) -> None:
        """Note workers that came and went.

        Raises:
            DeviceError: The scheduler does not answer.
        """
        if self._local is not None:
            self._local.restart_dead()
        try:
            workers = _scheduler_workers(self._client)
        except OSError as error:
            if self._client.status == "connecting":
                return
            raise self._scheduler_error(error) from None
        except Exception as error:
            raise self._scheduler_error(error) from None
        if self._client.status not in ("running", "connecting"):
            raise self._scheduler_error(None)
        for address in [address for address in self._facts if address not in workers]:
            del self._facts[address]
            running = self._running.pop(address, None)
            if running is not None:
                self._give_up_or_repeat(running, address)
        self._refused = {a: reason for a, reason in self._refused.items() if a in workers}
        self._names = {address: str(info.get("name", "")) for address, info in workers.items()}
        new = [a for a in workers if a not in self._facts and a not in self._refused]
        if self._on_gpu:
            for address in list(new):
                if workers[address].get("resources", {}).get("GPU", 0) < 1:
                    self._refused[address] = "a worker does not declare GPU=1"
                    new.remove(address)
        if not new:
            return
        try:
            answers = self._client.run(worker_facts, self._on_gpu, workers=new, on_error="return")
        except Exception:  # one of them went away: they are asked again
            return
        for address, answer in answers.items():
            trouble = self._trouble(answer)
            if trouble:
                self._refused[address] = trouble
            else:
                self._facts[address] = answer

    def _trouble(self, answer: object) -> str:
        """Why a worker cannot run points; empty if it can."""
        if not isinstance(answer, WorkerFacts):
            reason = " ".join(str(answer).split()) or type(answer).__name__
            return (
                f"a worker cannot run memlab ({reason}): install memlab {memlab_version()} in its "
                "environment"
            )
        if answer.memlab != memlab_version():
            return (
                f"a worker on {answer.host} has memlab {answer.memlab}, this is "
                f"{memlab_version()}: install the same version there"
            )
        if answer.trouble:
            return f"the GPU of a worker on {answer.host} cannot be used ({answer.trouble})"
        if answer.gpu_uuid in {facts.gpu_uuid for facts in self._facts.values()} - {""}:
            return (
                f"two workers on {answer.host} have the GPU {answer.gpu_uuid}: start each with "
                "CUDA_VISIBLE_DEVICES of its own"
            )
        return ""

    def _give_up_or_repeat(self, running: _Running, address: str) -> None:
        if running.attempt < MAX_ATTEMPTS:
            self._again.append((running.job, address))
            return
        reason = f"the worker that ran it died, {MAX_ATTEMPTS} times"
        outcome = PointOutcome("lost", reason, exit_code=DeviceError.exit_code)
        self._outcomes.append((running.job, outcome))

    def _begin_again(self) -> None:
        """Begin the points of dead workers on others."""
        for job, _ in list(self._again):
            idle = [address for address in self._facts if address not in self._running]
            if not idle:
                return
            self._again.pop(0)
            self._start(job, idle[0], attempt=MAX_ATTEMPTS)

    def _no_worker_error(self) -> DeviceError:
        reasons = "; ".join(dict.fromkeys(self._refused.values()))
        if not reasons:
            reasons = "none is there"
        step = (
            "start some with 'dask worker ADDRESS --nthreads 1"
            + (" --resources GPU=1'" if self._on_gpu else "'")
            if self._local is None
            else "see 'memlab doctor'"
        )
        return DeviceError(f"no worker of {self._place} can run points ({reasons}): {step}")

    def _scheduler_error(self, error: Exception | None) -> DeviceError:
        reason = f" ({' '.join(str(error).split())})" if error and str(error) else ""
        return DeviceError(
            f"the Dask scheduler of {self._place} does not answer any more{reason}: start it "
            "again; 'memlab sweep --resume' does the rest"
        )


def _connect(distributed: Any, address: str) -> Any:
    if not _ADDRESS.fullmatch(address):
        raise UsageError(f"--scheduler {address!r} is no address: write tcp://host:8786")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # workers' versions are checked one by one
            return distributed.Client(address, timeout=CONNECT_TIMEOUT_S, set_as_default=False)
    except (OSError, TimeoutError) as error:
        reason = " ".join(str(error).split())
        raise DeviceError(
            f"no Dask scheduler answers at {address} ({reason}): start one with 'dask scheduler', "
            "or check the address"
        ) from None


def _scheduler_workers(client: Any) -> dict[str, Any]:
    """What the scheduler knows of each worker, by address.

    `Client.scheduler_info` is not used: it returns a cache that the client's own thread replaces
    from time to time by one without workers.

    Raises:
        OSError: The scheduler does not answer.
    """
    workers: dict[str, Any] = client.sync(client.scheduler.identity)["workers"]
    return workers


def _wants_gpu(devices: Sequence[str], gpu_there: bool) -> bool:
    """Whether points run on the workers' GPUs rather than on emulated devices.

    Raises:
        UsageError: GPUs and emulated devices are mixed, or several GPUs are named.
    """
    named = [_named(device) for device in devices]
    gpus = [name for name in named if _is_gpu(name)]
    if named == [""]:
        return gpu_there
    if gpus and len(named) > 1:
        raise UsageError(
            "workers take one GPU each: name no GPU, or --device 0 for the one that a worker sees"
        )
    return bool(gpus)


def _named(device: str) -> str:
    return device or os.environ.get(DEVICE_VARIABLE, "")


def _emulated_name(device: str) -> str:
    return _named(device) or DEFAULT_DATASHEET


def _is_gpu(name: str) -> bool:
    return name.isdecimal() or name.lower().startswith("cuda")


def _all_emulated(devices: Sequence[str]) -> bool:
    return all(_named(device) and not _is_gpu(_named(device)) for device in devices)


def _gpu_uuid(name: str) -> str:
    """A GPU as `CUDA_VISIBLE_DEVICES` takes it: its UUID, or the part (MIG) that is visible."""
    index = gpu_index(name)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if index < len(visible) and visible[index].strip().startswith("MIG"):
        return visible[index].strip()
    device = open_device(name)
    found = device_summary(device.properties, device.kind, device.key).uuid
    return found or str(index)
