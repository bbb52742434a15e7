"""Sweeps on real Dask workers: of this machine, and of a cluster on its loopback."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import memlab
from memlab.roofline.store.store import Store
from memlab.sweeps import cluster
from memlab.sweeps.points import PointJob

pytest.importorskip("distributed")

SOURCE = """\
extern "C" __global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
"""
REFERENCES = """\
import os, signal, socket
from pathlib import Path

def note(n):
    with open("log", "a") as log:
        log.write(f"{n} {os.getpid()}\\n")

def right(x, y, n):
    note(n)
    return 2 * x

def kills_its_first_process(x, y, n):
    note(n)
    if n == 192 and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * x

def kills_every_process(x, y, n):
    note(n)
    if n == 192:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * x
"""
SIZES = (64, 128, 192, 256, 320, 384)
SCALE: dict[str, Any] = {
    "symbols": {"N": list(SIZES)},
    "grid": "ceil(N/64)",
    "block": 64,
    "args": ["f32[N]", "out:f32[N]", "N"],
    "device": "h200",
    "keep": True,
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs.sqlite3"))
    (tmp_path / "scale.cu").write_text(SOURCE)
    (tmp_path / "references.py").write_text(REFERENCES)
    return tmp_path


def calls(folder: Path) -> list[tuple[int, int]]:
    """The sizes that were executed, with the processes that did it."""
    lines = (folder / "log").read_text().splitlines()
    return [(int(size), int(process)) for size, process in map(str.split, lines)]


def dask(*words: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.dask_{words[0]}", *words[1:]],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )


StartWorker = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def scheduler(folder: Path) -> Iterator[tuple[str, StartWorker]]:
    """The address of a scheduler, and a function that starts a worker of it."""
    from distributed import Client

    file, processes = folder / "scheduler.json", []
    processes.append(
        dask(
            "scheduler",
            "--host=127.0.0.1",
            "--port=0",
            "--no-dashboard",
            f"--scheduler-file={file}",
        )
    )
    deadline = time.monotonic() + 60
    while not file.exists() or not file.read_text().endswith("}"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with Client(scheduler_file=str(file), set_as_default=False) as client:
        address = client.scheduler.address

        started = itertools.count(1)

        def start(*options: str, nanny: bool = False) -> subprocess.Popen[bytes]:
            words = ["--nthreads=1", "--no-dashboard", "--memory-limit=0", *options]
            process = dask("worker", address, *words, *([] if nanny else ["--no-nanny"]))
            processes.append(process)
            client.wait_for_workers(next(started), timeout=60)
            return process

        yield address, start
    for process in reversed(processes):
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_workers_of_this_machine_give_what_one_process_gives(folder: Path) -> None:
    alone = memlab.sweep("scale.cu:scale", **{**SCALE, "keep": False})
    spread = memlab.sweep("scale.cu:scale", **SCALE, workers=2, reference="references.py:right")

    assert [(row.values, row.value) for row in spread.rows] == [
        (row.values, row.value) for row in alone.rows
    ]
    executed = calls(folder)
    assert sorted(size for size, _ in executed) == list(SIZES)
    assert len({process for _, process in executed} | {os.getpid()}) == 3
    assert all(row.host and row.status == "done" for row in spread.rows)
    assert len(Store().ids()) == len(SIZES)
    time.sleep(0.2)
    with pytest.raises(ProcessLookupError):
        os.kill(executed[0][1], 0)


@pytest.mark.slow
def test_the_point_of_a_killed_worker_is_run_elsewhere_and_nothing_twice(folder: Path) -> None:
    swept = memlab.sweep(
        "scale.cu:scale", **SCALE, workers=2, reference="references.py:kills_its_first_process"
    )

    assert [row.status for row in swept.rows] == ["done"] * len(SIZES)
    executed = calls(folder)
    assert Counter(size for size, _ in executed) == {**dict.fromkeys(SIZES, 1), 192: 2}
    first, second = (process for size, process in executed if size == 192)
    assert first != second
    sizes = [run.measurement.parameters["N"] for run in Store().runs()]
    assert sorted(map(int, sizes)) == list(SIZES)


@pytest.mark.slow
def test_a_worker_of_a_cluster_that_dies_costs_its_point_and_a_resume_brings_it(
    folder: Path, scheduler: tuple[str, StartWorker]
) -> None:
    import dask

    address, start = scheduler
    for _ in range(3):  # as users start them, with a nanny that starts a dead one again
        start(nanny=True)

    # The client's thread empties its cached list of workers this often.
    with dask.config.set({"distributed.client.scheduler-info-interval": "1ms"}):
        swept = memlab.sweep(
            "scale.cu:scale",
            **SCALE,
            scheduler=address,
            reference="references.py:kills_every_process",
        )

    statuses = {row.values["N"]: row.status for row in swept.rows}
    assert statuses == {**dict.fromkeys(SIZES, "done"), 192: "lost"}
    assert "died, 2 times" in swept.rows[-1].reason
    assert Counter(size for size, _ in calls(folder)) == {**dict.fromkeys(SIZES, 1), 192: 2}

    references = REFERENCES.replace("if n == 192:", "if n == 193:")
    (folder / "references.py").write_text(references)
    rest = memlab.sweep(resume=True, keep=True, scheduler=address)
    assert {row.status for row in rest.rows} == {"done"}


@pytest.mark.slow
def test_a_cluster_without_a_fitting_worker_is_one_line(
    scheduler: tuple[str, StartWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, start = scheduler
    with pytest.raises(memlab.DeviceError, match=r"none is there.*dask worker ADDRESS") as error:
        memlab.sweep("tiled", width=32, device="h200", scheduler=address)
    assert "\n" not in str(error.value)

    start()
    with pytest.raises(memlab.DeviceError, match=r"does not declare GPU=1.*--resources GPU=1"):
        memlab.sweep("tiled", width=32, device=0, scheduler=address)
    monkeypatch.setattr(cluster, "memlab_version", lambda: "9.9")
    with pytest.raises(memlab.DeviceError, match=r"has memlab .*, this is 9\.9: install the same"):
        memlab.sweep("tiled", width=32, device="h200", scheduler=address)


@pytest.mark.slow
def test_a_scheduler_that_dies_keeps_what_is_done(
    folder: Path, scheduler: tuple[str, StartWorker]
) -> None:
    from distributed import Client

    address, start = scheduler
    start()
    with Client(address, set_as_default=False) as client:
        process = client.run_on_scheduler(os.getpid)

    def progress(step: str, fraction: float | None) -> None:
        if step.startswith("2 of"):
            os.kill(process, signal.SIGKILL)

    with pytest.raises(memlab.DeviceError, match=r"does not answer any more.*--resume"):
        memlab.sweep("scale.cu:scale", **SCALE, scheduler=address, progress=progress)
    assert len(Store().ids()) == 2
    rest = memlab.sweep(resume=True, keep=True)
    assert len(rest.done) == len(SIZES)
    assert len(Store().ids()) == len(SIZES)


FAKE_GPUS = """\
import os
from dataclasses import replace
from memlab.device import devices

class FakeGpu:
    kind, key = "cuda", "cuda:0"

    def __init__(self, settings, budget):
        sheet = devices.loader.load_datasheet("h200")
        self.emulated = devices.EmulatedDevice("h200", sheet, budget)
        uuid = os.environ["CUDA_VISIBLE_DEVICES"]
        self.properties = replace(self.emulated.properties, uuid=uuid)

    def run(self, launch, seed, progress=None, **options):
        measurement = self.emulated.run(launch, seed, progress, **options)
        found = devices.device_summary(self.properties, self.kind, self.key)
        return replace(measurement, device=found)

def open_device(name=None, settings=None, budget=None):
    assert name in ("cuda:0", 0), name
    return FakeGpu(settings, budget)

from memlab.device.properties import device_summary
devices.device_summary = device_summary
devices.open_device = open_device
"""
"""Replaces the GPUs of a process: it has the one that CUDA_VISIBLE_DEVICES names."""


@pytest.mark.slow
def test_each_gpu_of_this_machine_has_a_worker_that_sees_it_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sitecustomize.py").write_text(FAKE_GPUS)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(cluster, "usable_gpu_names", lambda: ["cuda:0", "cuda:1"])
    monkeypatch.setattr(cluster, "_gpu_uuid", {"cuda:0": "GPU-a", "cuda:1": "GPU-b"}.get)

    launch = {**SCALE, "device": None, "reference": "references.py:right"}
    swept = memlab.sweep("scale.cu:scale", **launch, workers=2)

    assert [row.status for row in swept.rows] == ["done"] * len(SIZES)
    where = {(row.run.measurement.device.uuid, row.host) for row in swept.rows if row.run}
    assert {uuid for uuid, _ in where} == {"GPU-a", "GPU-b"}
    assert set(swept.frame()["gpu_uuid"]) == {"GPU-a", "GPU-b"}
    assert len({process for _, process in calls(folder)}) == 2
    again = memlab.sweep("scale.cu:scale", **launch, workers=1)
    assert all(row.reused for row in again.rows), "GPUs of one name and driver are one device"
    with pytest.raises(memlab.UsageError, match=r"--workers 3 are one a GPU, and 2 can be used"):
        memlab.sweep("scale.cu:scale", **launch, workers=3)


class FakeClient:
    """A client whose workers have the facts of GPUs; what is submitted never ends."""

    status = "running"

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.submitted: list[tuple[str, PointJob, Any]] = []

    @property
    def scheduler(self) -> FakeClient:
        return self

    def identity(self) -> dict[str, Any]:
        return {"workers": {name: {"resources": {"GPU": 1.0}} for name in self.facts}}

    def sync(self, function: Callable[[], Any]) -> Any:
        return function()

    def run(self, function: Any, *arguments: Any, workers: list[str], **options: Any) -> Any:
        return {name: self.facts[name] for name in workers}

    def submit(self, function: Any, job: PointJob, **options: Any) -> Any:
        self.submitted.append((options["workers"][0], job, options["resources"]))

        class Pending:
            status = "pending"

            def add_done_callback(self, function: Any) -> None:
                pass

        return Pending()


def test_no_gpu_is_given_two_points_at_once() -> None:
    def gpu(uuid: str) -> cluster.WorkerFacts:
        return cluster.WorkerFacts(
            cluster.memlab_version(), "3.11", "node", uuid, "NVIDIA H200", "580"
        )

    from memlab.roofline.sweep.space import Axis, Space
    from memlab.sweeps.definition import SweepDefinition
    from memlab.sweeps.points import RunOptions

    axes = (Axis("kernel", "kernel", ("tiled",)), Axis("device", "device", ("",)))
    definition = SweepDefinition(
        ("tiled",), Space(axes), (), RunOptions(), "time", "all", None, "."
    )
    client = FakeClient(
        {"tcp://a:1": gpu("GPU-1"), "tcp://b:1": gpu("GPU-1"), "tcp://c:1": gpu("GPU-2")}
    )
    with pytest.warns(memlab.MemlabWarning, match="two workers on node have the GPU GPU-1"):
        pool = cluster.DaskPool(client, definition, True, place="tcp://s:1")

    submitted = 0
    while pool.has_room():
        pool.submit(PointJob(submitted, "tiled", {}, None, RunOptions()))
        submitted += 1
    assert [(worker, resources) for worker, _, resources in client.submitted] == [
        ("tcp://a:1", {"GPU": 1}),
        ("tcp://c:1", {"GPU": 1}),
    ]
    assert {job.device for _, job, _ in client.submitted} == {0}
    assert pool.device_facts(None) == "NVIDIA H200, driver 580"
