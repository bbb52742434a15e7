"""Times of a session: on a GPU, of kernels with known times; its time limits without one."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memlab.device.compiler.compile import CompiledKernel, compile_launch, compile_unit
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.gpu import session as gpu_session
from memlab.device.gpu.device import CudaDevice, prepare_on_gpu
from memlab.device.gpu.session import GpuSession
from memlab.device.gpu.timing import Samples, TimingSettings
from memlab.device.gpu.worker import WorkerLink, call_in_worker
from memlab.device.properties import LINE_BYTES
from memlab.errors import MemlabError
from memlab.kernels.launch import Launch
from memlab.kernels.user.kernel import UserKernel
from memlab.launching import prepare_launch

WAIT_S = 50e-6
SLOW_HOST_S = 2e-3
SETTINGS = TimingSettings(samples=51)
QUICK = TimingSettings(samples=10, settle_s=0.05)

SOURCE = """
// Takes so many clocks.
extern "C" __global__ void wait(long long clocks) {
  long long start = clock64();
  while (clock64() - start < clocks) {
  }
}

// Reads a word of every line, with one load in flight per thread. All words are 0.
extern "C" __global__ void read_lines(const unsigned* from, int lines, int words, unsigned* to) {
  unsigned found = 0;
  int step = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < lines; i += step + found)
    found = from[(long long)i * words];
  if (found) *to = found;
}

extern "C" __global__ void count_launches(int* launches) { ++launches[threadIdx.x]; }

// Takes some 50 us, but only where x is what it was given: within 1 of 0.
extern "C" __global__ void work_once(float* x, float one) {
  float value = x[0];
  if (value > 1) return;
  for (int i = 0; i < 20000; ++i) value = fmaf(value, one, 1.0f);
  x[0] = value;
}
"""


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return CudaDevice(0, QUICK)


@pytest.fixture(scope="module")
def cubin(device: CudaDevice) -> bytes:
    return compile_unit(
        TranslationUnit(SOURCE, "timed.cu", device.properties.compute_capability)
    ).cubin


def own(device: CudaDevice, folder: Path, entry: str, *arguments: str) -> Launch:
    """A launch of one of these kernels with one block of 32 threads."""
    file = folder / "timed.cu"
    file.write_text(SOURCE)
    kernel = UserKernel(str(file), entry, grid=(1,), block=(32,), args=arguments)
    return replace(prepare_launch(kernel, {}, device.properties), references={})


def waits(link: WorkerLink, cubin: bytes) -> dict[str, Samples]:
    """Time no launch, waits of 0, `WAIT_S` and twice that, and two launches with a slow host."""
    with GpuSession(0, link) as session:
        wait = session.load(cubin, "wait")

        def launch(clocks: float) -> Callable[[], None]:
            return lambda: session.launch(wait, (1, 1, 1), (32, 1, 1), [np.int64(clocks)])

        def two(between_s: float) -> Callable[[], None]:
            def both() -> None:
                once()
                time.sleep(between_s)
                once()

            return both

        clock_hz = session.time(launch(100_000), SETTINGS, flush=False).clock_hz
        assert clock_hz is not None, "NVML does not tell the clock"
        once, twice = launch(WAIT_S * clock_hz), launch(2 * WAIT_S * clock_hz)
        queued: dict[str, Callable[[], None]] = {
            "nothing": lambda: None,
            "empty": launch(0),
            "once": once,
            "twice": twice,
            "two": two(0),
            "two with a slow host": two(SLOW_HOST_S),
        }
        return {
            name: session.time(launch, SETTINGS, flush=False) for name, launch in queued.items()
        }


def cold_and_warm(link: WorkerLink, cubin: bytes) -> tuple[Samples, Samples]:
    """Time a pass over half the L2."""
    with GpuSession(0, link) as session:
        size = session.l2_bytes // 2 // LINE_BYTES * LINE_BYTES
        lines, words = np.int32(size // LINE_BYTES), np.int32(LINE_BYTES // 4)
        data, to = session.array(np.zeros(size, np.uint8)), session.array(4)
        kernel, grid = session.load(cubin, "read_lines"), (session.multiprocessors, 1, 1)

        def launch() -> None:
            session.launch(kernel, grid, (64, 1, 1), [data, lines, words, to])

        cold, warm = (session.time(launch, SETTINGS, flush=flush) for flush in (True, False))
        return cold, warm


def counted(link: WorkerLink, launch: Launch, compiled: CompiledKernel) -> list[list[int]]:
    """The increase of a launch's array after timing: with, then without `restore`."""
    with GpuSession(0, link) as session:
        ready, (output,) = prepare_on_gpu(session, launch, compiled, seed=0), launch.outputs
        grown = []
        for restore in (ready.restore, None):
            session.time(ready.run_once, QUICK, restore=restore)
            after = ready.read(session, output)
            grown.append((after - ready.inputs[output.name]).tolist())
        del ready
        return grown


@pytest.mark.gpu
@pytest.mark.alone
def test_a_wait_takes_as_long_as_asked(cubin: bytes) -> None:
    taken = {name: samples.median_s for name, samples in call_in_worker(waits, cubin).items()}

    assert 0.2e-6 < taken["nothing"] < 4e-6  # 1.3 us on an H200
    assert taken["nothing"] < taken["empty"] < taken["nothing"] + 5e-6  # and 1.4 us more
    assert taken["once"] == pytest.approx(WAIT_S + taken["empty"], rel=0.02)
    assert taken["twice"] - taken["once"] == pytest.approx(WAIT_S, rel=0.01)
    assert taken["two"] == pytest.approx(2 * WAIT_S, rel=0.1)
    assert taken["two with a slow host"] == pytest.approx(taken["two"], rel=0.02)


@pytest.mark.gpu
@pytest.mark.alone
def test_a_launch_timed_cold_finds_nothing_in_the_l2(cubin: bytes) -> None:
    cold, warm = call_in_worker(cold_and_warm, cubin)

    assert cold.median_s > 1.3 * warm.median_s


@pytest.mark.gpu
def test_every_sample_finds_the_arrays_as_they_were(device: CudaDevice, tmp_path: Path) -> None:
    launch = own(device, tmp_path, "count_launches", "inout:i32[32]")
    compiled = compile_launch(launch, device.properties.compute_capability)
    restored, grown = call_in_worker(counted, launch, compiled)

    assert restored == [1] * 32
    assert set(grown) == {grown[0]}
    assert grown[0] > QUICK.samples


@pytest.mark.gpu
@pytest.mark.alone
def test_a_run_restores_what_a_launch_overwrites(device: CudaDevice, tmp_path: Path) -> None:
    launch = own(device, tmp_path, "work_once", "inout:f32[1]", "f32=1")
    taken = device.run(launch, seed=0).time

    assert taken.median_s > 20e-6
    assert taken.warm_median_s == pytest.approx(taken.median_s, rel=0.2)


class Guards:
    """A link that knows whether a time limit is active."""

    now = 0

    @contextmanager
    def within(self, limit_s: float, error: MemlabError) -> Iterator[None]:
        assert limit_s >= 1
        self.now += 1
        yield
        self.now -= 1


class Driver:
    """Accepts any call and records whether a time limit was active."""

    Error = OSError

    def __init__(self, guards: Guards) -> None:
        self.guards, self.guarded = guards, dict[str, bool]()
        self.Context = self

    def __getattr__(self, name: str) -> Callable[..., "Driver"]:
        def answer(*_: object, **options: object) -> Driver:
            self.guarded[name] = self.guards.now > 0
            return self

        return answer

    def __getitem__(self, index: int) -> int:
        return 2**30


def test_nothing_is_asked_of_the_driver_without_a_limit_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guards: Any = Guards()
    driver: Any = Driver(guards)
    monkeypatch.setattr(gpu_session.gpu_driver, "pycuda_driver", lambda: driver)
    session = GpuSession(0, guards, timeout_s=1)

    session.load(b"", "kernel")
    session.array(16)
    session.array(np.zeros(4))
    session.read(driver, np.zeros(4))
    session.copy(driver, driver, 4)
    session.launch(driver.kernel, (1, 1, 1), (32, 1, 1), [])

    assert driver.guarded == dict.fromkeys(
        (
            *("module_from_buffer", "get_function", "mem_get_info", "mem_alloc", "memset_d8"),
            *("memcpy_htod", "synchronize", "memcpy_dtoh", "memcpy_dtod_async", "kernel"),
        ),
        True,
    )
