"""Dask workers of this machine: one process a GPU, or one a share of the cores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

NAME_PREFIX = "memlab-"
END_TIMEOUT_S = 5.0
"""How long a worker may take to end before it is killed, seconds."""
MAX_RESTARTS = 3
"""How often a worker that died is started again; more often, something is wrong here."""


class LocalWorkers:
    """A scheduler in this process, and workers that are started as new interpreters.

    They are not started by `multiprocessing`, which would run a user's script again unless it is
    guarded by `if __name__ == "__main__"`. They listen on this machine's loopback only.

    Attributes:
        address: The scheduler's address.
        count: The number of workers.
    """

    def __init__(self, count: int, gpu_uuids: Sequence[str]) -> None:
        """Start the workers.

        Args:
            count: Their number.
            gpu_uuids: The GPU of each, by UUID; empty where devices are emulated.
        """
        from distributed import LocalCluster

        self.count, self._gpus = count, tuple(gpu_uuids)
        self._cluster: Any = LocalCluster(
            n_workers=0,
            host="127.0.0.1",
            protocol="tcp",
            dashboard_address="127.0.0.1:0",
            processes=True,
            silence_logs=50,
        )
        self.address: str = self._cluster.scheduler_address
        self._folder = tempfile.TemporaryDirectory(prefix="memlab-workers-")
        self._restarts = [0] * count
        self._processes = [self._start(slot) for slot in range(count)]

    def cores(self, name: str) -> tuple[int, ...]:
        """The cores of a worker: an equal share of those that this process may use."""
        slot = name.removeprefix(NAME_PREFIX)
        if not slot.isdecimal():
            return ()
        number, usable = int(slot), sorted(os.sched_getaffinity(0))
        first, end = (len(usable) * place // self.count for place in (number, number + 1))
        return tuple(usable[first:end]) or (usable[number % len(usable)],)

    def restart_dead(self) -> None:
        """Start workers again that died."""
        for slot, process in enumerate(self._processes):
            if process.poll() is not None and self._restarts[slot] < MAX_RESTARTS:
                self._restarts[slot] += 1
                self._processes[slot] = self._start(slot)

    def close(self) -> None:
        """End the workers and the scheduler."""
        for process in self._processes:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                with suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        with suppress(Exception):
            self._cluster.close(timeout=2)
        self._folder.cleanup()

    def _start(self, slot: int) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        resources: list[str] = []
        if self._gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpus[slot]
            resources = ["--resources", "GPU=1"]
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "distributed.cli.dask_worker",
                self.address,
                "--no-nanny",
                "--nthreads=1",
                "--memory-limit=0",
                "--no-dashboard",
                "--host=127.0.0.1",
                f"--name={NAME_PREFIX}{slot}",
                f"--local-directory={self._folder.name}",
                "--death-timeout=30",
                *resources,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            process_group=0,  # Ctrl-C goes to this process alone, which ends its workers
        )
