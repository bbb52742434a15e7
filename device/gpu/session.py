"""A session on a GPU: memory, launches, and times that contain nothing but the launch.

A `GpuSession` runs in a worker (`memlab.device.gpu.worker`), because a fault on the GPU leaves its
process unable to use one. In a worker every call of the driver has a time limit: a driver that lost
its GPU may never answer.

A micro-benchmark is a function that a worker calls:

    def stream(link: WorkerLink, index: int, cubin: bytes) -> Samples:
        with GpuSession(index, link) as session:
            kernel = session.load(cubin, "read")
            data = session.array(random_array)             # copied to the GPU
            sink = session.array(4096)                     # bytes, poisoned
            launch = lambda: session.launch(kernel, (1024, 1, 1), (256, 1, 1), [data, sink])
            return session.time(launch, TimingSettings(), flush=True)

    samples = call_in_worker(stream, 0, cubin)             # samples.median_s, .clock_hz ...
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.gpu import driver as gpu_driver
from memlab.device.gpu.driver import CHECK_NVIDIA_SMI_STEP, read_attribute, translated_errors
from memlab.device.gpu.driver_kernel import DriverKernel
from memlab.device.gpu.nvml import sm_clock_reader
from memlab.device.gpu.timing import (
    TIMEOUT_S,
    Sample,
    Samples,
    TimingSettings,
    collect_samples,
    settle_clock,
)
from memlab.device.inputs import POISON_BYTE
from memlab.errors import DeviceError, MemlabError, UsageError
from memlab.kernels.launch import NO_CLUSTER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memlab.device.gpu.worker import WorkerLink
    from memlab.kernels.launch import Dim3

HOLD_TIMEOUT_S = 10.0
"""The limit for queueing a launch behind the kernel that holds it back, seconds. It takes some
microseconds, or never ends if the launch waits for itself."""

OPEN_TIMEOUT_S = 30.0
"""The least time limit for opening or closing a GPU, seconds: an idle GPU takes seconds to wake
up."""
SLOWEST_COPY_BYTES_PER_S = 500e6
"""A rate that every link to a GPU reaches, B/s, for the time limit of copies."""

FLUSH_FACTOR = 2
"""Size of the buffers that flush the L2, relative to the L2: it does not always replace the oldest
line first, so a buffer of its size would leave some lines."""
DEFAULT_L2_BYTES = 64 * 2**20  # if the driver does not know
FLUSH_BLOCK_THREADS = 512
FLUSH_BLOCKS_PER_SM = 4
FLUSH_WORD_BYTES = 16

DEFAULT_SHARED_LIMIT_BYTES = 48 * 1024  # beyond, a kernel must opt in (Programming Guide)


class GpuSession:
    """A GPU on which kernels are launched and timed; use it as a context manager, in a worker.

    All operations are queued on the default stream.

    Attributes:
        l2_bytes: Size of the L2 from the driver, bytes.
        multiprocessors: The number of multiprocessors.
        timeout_s: The limit of one launch and of one call of the driver, seconds.
    """

    def __init__(
        self,
        index: int,
        link: WorkerLink | None = None,
        timeout_s: float = TIMEOUT_S,
        memlab_kernels: bool = False,
    ) -> None:
        """Choose a GPU; entering the context opens it.

        Args:
            index: The GPU's number, from 0.
            link: Enforces the time limits; None for no limits.
            timeout_s: The limit of one launch and of one call of the driver, seconds.
            memlab_kernels: Whether only memlab's kernels run: messages then do not advise changes
                that only the author of a kernel can make.
        """
        self._index, self._link, self.timeout_s = index, link, timeout_s
        self._memlab_kernels = memlab_kernels
        self._stack = ExitStack()
        self._flush: Callable[[], None] | None = None
        self._salt = 0

    def __enter__(self) -> GpuSession:
        opening = self._driver_deadline("open the GPU", OPEN_TIMEOUT_S)
        with opening, translated_errors("memlab", self._memlab_kernels), ExitStack() as stack:
            driver, device = gpu_driver.pycuda_driver(), gpu_driver.pycuda_device(self._index)
            # The primary context is the one that other libraries in this process use.
            context = device.retain_primary_context()
            context.push()
            # Detaching also pops it. After `pop` alone PyCUDA releases it by a call for other
            # contexts and prints that this failed.
            stack.callback(context.detach)
            self.l2_bytes = read_attribute(device, "L2_CACHE_SIZE") or DEFAULT_L2_BYTES
            self.multiprocessors = read_attribute(device, "MULTIPROCESSOR_COUNT") or 1
            self._architecture: tuple[int, int] = device.compute_capability()
            self._start, self._stop = driver.Event(), driver.Event()
            self._flags = driver.pagelocked_empty(
                2, np.uint32, mem_flags=driver.host_alloc_flags.DEVICEMAP
            )
            self._hold = self._support_kernel("hold.cu", "hold")
            self._read_clock_hz = sm_clock_reader(device.pci_bus_id(), stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        driver = gpu_driver.pycuda_driver()
        # If closing hangs after an error, the caller gets that error.
        known = error if isinstance(error, MemlabError) else None
        leaving = self._driver_deadline("release the GPU", OPEN_TIMEOUT_S, known)
        with translated_errors("memlab", self._memlab_kernels), leaving:
            if error is None:
                self._stack.close()
                return
            with suppress(driver.Error):
                driver.mem_get_info()  # fails after a fault, when cleaning up would print errors
                self._stack.close()
            if isinstance(error, driver.Error):
                raise error

    def load(
        self,
        cubin: bytes,
        entry: str,
        constants: Mapping[str, NDArray[Any]] | None = None,
        cooperative: bool = False,
        cluster: Dim3 = NO_CLUSTER,
        wide_alignment: bool = False,
    ) -> Any:
        """Load machine code and return one of its kernels, to pass to `launch`.

        Args:
            cubin: The machine code.
            entry: The kernel's name in it.
            constants: Values of its `__constant__` and `__device__` arrays, by symbol.
            cooperative: Whether its blocks wait for the whole grid.
            cluster: Blocks of a cluster in x, y and z.
            wide_alignment: Whether an argument is aligned to more than `PYCUDA_ALIGNMENT_BYTES`.

        Returns:
            A function of PyCUDA, or a `DriverKernel` for what PyCUDA cannot launch.

        Raises:
            DeviceError: The driver cannot load it.
        """
        driver = gpu_driver.pycuda_driver()
        with translated_errors(entry, self._memlab_kernels), self._driver_deadline(f"load {entry}"):
            if cooperative or cluster != NO_CLUSTER or wide_alignment:
                kernel = DriverKernel(
                    cubin, entry, self._stack.callback, cooperative=cooperative, cluster=cluster
                )
                for name, values in (constants or {}).items():
                    kernel.fill(name, values)
                return kernel
            module = driver.module_from_buffer(cubin)
            for name, values in (constants or {}).items():
                address, _ = module.get_global(name)
                driver.memcpy_htod(address, np.ascontiguousarray(values))
            return module.get_function(entry)

    def free_bytes(self) -> int:
        """The free memory of the GPU, bytes."""
        with (
            translated_errors("memlab", self._memlab_kernels),
            self._driver_deadline("tell how much memory is free"),
        ):
            return int(gpu_driver.pycuda_driver().mem_get_info()[0])

    def array(self, content: int | NDArray[Any], poison: bool = True) -> Any:
        """Allocate memory on the GPU, which is freed with the returned object.

        Args:
            content: An array to copy to the GPU, or a size in bytes.
            poison: Whether to fill memory without an array with 0xFF, to detect bytes that are
                never written.

        Raises:
            UsageError: There is not enough free memory.
        """
        driver = gpu_driver.pycuda_driver()
        size = content if isinstance(content, int) else content.nbytes
        if size > (free := self.free_bytes()):
            raise UsageError(
                f"an array of {size} bytes does not fit the GPU, which has {free} bytes free: "
                + ("" if self._memlab_kernels else "use smaller sizes, or ")
                + "end other processes that use it (nvidia-smi lists them)"
            )
        doing, copying_s = f"set up an array of {size} bytes", size / SLOWEST_COPY_BYTES_PER_S
        with (
            translated_errors("the allocation", self._memlab_kernels),
            self._driver_deadline(doing, copying_s),
        ):
            allocation = driver.mem_alloc(max(size, 1))
            if not isinstance(content, int):
                driver.memcpy_htod(allocation, np.ascontiguousarray(content))
            elif poison:
                driver.memset_d8(allocation, POISON_BYTE, max(size, 1))
            return allocation

    def read(self, allocation: Any, into: NDArray[Any]) -> NDArray[Any]:
        """Copy from the GPU after all launches so far have ended.

        Args:
            allocation: A result of `array`.
            into: A contiguous array, which is filled from the allocation's start.

        Returns:
            `into`.
        """
        self.synchronize()
        doing, copying_s = f"copy {into.nbytes} bytes", into.nbytes / SLOWEST_COPY_BYTES_PER_S
        with (
            translated_errors("the kernel", self._memlab_kernels),
            self._driver_deadline(doing, copying_s),
        ):
            gpu_driver.pycuda_driver().memcpy_dtoh(into, allocation)
        return into

    def copy(self, source: Any, target: Any, nbytes: int) -> None:
        """Queue a copy from one allocation to another without waiting for it.

        Args:
            source: A result of `array`.
            target: A result of `array`.
            nbytes: The number of bytes, from the start of both.
        """
        with self._driver_deadline("queue a copy"):
            gpu_driver.pycuda_driver().memcpy_dtod_async(target, source, nbytes)

    def launch(
        self,
        function: Any,
        grid: Dim3,
        block: Dim3,
        arguments: Sequence[Any],
        shared_bytes: int = 0,
    ) -> None:
        """Queue a launch without waiting for it.

        Args:
            function: A result of `load`.
            grid: Blocks in x, y, z.
            block: Threads of a block in x, y, z.
            arguments: Allocations and NumPy scalars, in the kernel's order; for a `DriverKernel`,
                the bytes of each argument.
            shared_bytes: Dynamic shared memory, bytes.
        """
        with self._driver_deadline("queue a launch"):
            if shared_bytes > DEFAULT_SHARED_LIMIT_BYTES:
                attributes = gpu_driver.pycuda_driver().function_attribute
                function.set_attribute(attributes.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)
            function(*arguments, grid=grid, block=block, shared=shared_bytes)

    def synchronize(self, what: str = "the kernel") -> None:
        """Wait until all launches so far have ended.

        Args:
            what: The subject of an error message.

        Raises:
            MemlabError: A kernel faulted (see `driver.translate_error`) or took too long.
        """
        with translated_errors(what, self._memlab_kernels), self._launch_deadline(what):
            gpu_driver.pycuda_driver().Context.synchronize()

    def clock_hz(self) -> float | None:
        """Read the SM clock through NVML, Hz; None if it cannot be read."""
        return self._read_clock_hz()

    def time(
        self,
        launch: Callable[[], None],
        settings: TimingSettings,
        flush: bool = True,
        what: str = "the kernel",
        report: Callable[[], None] | None = None,
        restore: Callable[[], None] | None = None,
    ) -> Samples:
        """Time the launches that `launch` queues, from their start to their end on the GPU.

        For every sample, the L2 is flushed, and a kernel holds back the queue until both events
        and the launch between them are queued; then the host releases it. So neither gaps between
        launches nor the write-back of dirty lines are timed. Before the first sample the same is
        repeated until the SM clock has settled.

        Args:
            launch: Queues one or more launches on the default stream; must not wait for them.
            settings: When to stop.
            flush: Whether the L2 holds no data of the launch at the start of every sample;
                otherwise it holds the data that the previous launch left.
            what: The subject of an error message.
            report: Called after every sample.
            restore: Queues, before every sample, copies that restore the arrays that a launch
                reads and overwrites; otherwise later launches would do different work.

        Raises:
            MemlabError: A kernel faulted or took too long.
        """

        def sample() -> Sample:
            if restore is not None:
                restore()
            result = self._sample(launch, flush, what)
            if report is not None:
                report()
            return result

        with translated_errors(what, self._memlab_kernels):
            # The first launch loads the code, which waits for the GPU, so it must not be held back.
            with self._launch_deadline(what):
                if restore is not None:
                    restore()
                launch()
                self.synchronize(what)
            if flush:
                self._flush_l2()
                self.synchronize(what)
            settle_clock(sample, settings, time.monotonic)
            return collect_samples(sample, settings, time.monotonic)

    def _sample(self, launch: Callable[[], None], flush: bool, what: str) -> Sample:
        with self._launch_deadline(what):
            if flush:
                self._flush_l2()
            self._flags[:] = 0
            pointer = np.uintp(self._flags.base.get_device_pointer())
            self.launch(
                self._hold, (1, 1, 1), (1, 1, 1), [pointer, np.uint64(HOLD_TIMEOUT_S * 1e9)]
            )
            try:
                self._start.record()
                launch()
                self._stop.record()
            finally:
                self._flags[0] = 1
            self._stop.synchronize()
            if self._flags[1]:
                raise MemlabError(
                    f"{what} waited for its own launch to end and was never started: "
                    "a timed function may only queue launches, without waiting for them"
                )
        with self._driver_deadline("tell the time between two events"):
            # Reading the clock takes some microseconds, outside the timed interval.
            return Sample(self._start.time_till(self._stop) / 1e3, self.clock_hz())

    def _flush_l2(self) -> None:
        if self._flush is None:
            self._flush = self._make_flush()
        self._flush()

    def _make_flush(self) -> Callable[[], None]:
        size = FLUSH_FACTOR * self.l2_bytes // FLUSH_WORD_BYTES * FLUSH_WORD_BYTES
        write, read = (
            self._support_kernel("flush.cu", entry) for entry in ("flush_write", "flush_read")
        )
        written, clean, sink = self.array(size), self.array(size), self.array(4)
        count = np.uint64(size // FLUSH_WORD_BYTES)
        grid, block = (
            (FLUSH_BLOCKS_PER_SM * self.multiprocessors, 1, 1),
            (FLUSH_BLOCK_THREADS, 1, 1),
        )

        def flush() -> None:
            self._salt += 1
            self.launch(write, grid, block, [written, count, np.uint32(self._salt)])
            self.launch(read, grid, block, [clean, count, sink])

        return flush

    def _support_kernel(self, file: str, entry: str) -> Any:
        from importlib import resources

        path = resources.files("memlab.kernels").joinpath("support", file)
        unit = TranslationUnit(path.read_text(encoding="utf-8"), file, self._architecture)
        return self.load(compile_unit(unit).cubin, entry)

    def _launch_deadline(self, what: str) -> AbstractContextManager[None]:
        """Return a context that stops a launch that takes too long."""
        step = "look for an endless loop, or allow more time with --timeout SECONDS"
        message = f"{what} did not end within {self.timeout_s:g} s and was stopped: "
        error = MemlabError(message + (CHECK_NVIDIA_SMI_STEP if self._memlab_kernels else step))
        return self._worker_deadline(self.timeout_s, error)

    def _driver_deadline(
        self, doing: str, limit_s: float = 0.0, known: MemlabError | None = None
    ) -> AbstractContextManager[None]:
        """Return a context that stops waiting for a driver that does not answer.

        Args:
            doing: The requested action, for the message.
            limit_s: The limit, seconds, if it is longer than that of a launch.
            known: The error to raise; None for one that says that the driver did not answer.
        """
        limit_s = max(limit_s, self.timeout_s)
        message = f"the driver did not {doing} within {limit_s:g} s: {CHECK_NVIDIA_SMI_STEP}"
        advice = "" if self._memlab_kernels else ", or allow more time with --timeout SECONDS"
        return self._worker_deadline(limit_s, known or DeviceError(message + advice))

    def _worker_deadline(self, limit_s: float, error: MemlabError) -> AbstractContextManager[None]:
        return nullcontext() if self._link is None else self._link.within(limit_s, error)
