"""The CUDA driver through PyCUDA: what GPUs there are, and a session on one of them.

Nothing else imports PyCUDA, and this module does so only when a GPU is asked for. Queries need
no context and run anywhere; a `Session` belongs in a worker (`memlab.device.worker`), since a
fault on the GPU leaves its process unable to use one.

A micro-benchmark is a function that a worker calls:

    def stream(link: Link, index: int, cubin: bytes) -> Samples:
        with Session(index, link) as session:
            kernel = session.load(cubin, "read")
            data = session.array(random_array)             # copied to the GPU
            sink = session.array(4096)                     # bytes, poisoned
            launch = lambda: session.launch(kernel, (1024, 1, 1), (256, 1, 1), [data, sink])
            return session.time(launch, Settings(), flush=True)

    samples = call(stream, 0, cubin)                       # samples.median_s, .clock_hz ...
"""

from __future__ import annotations

import ctypes
import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from memlab.device.compile import compile_cubin
from memlab.device.inputs import POISON_BYTE
from memlab.device.properties import DeviceProperties
from memlab.device.timing import TIMEOUT_S, Sample, Samples, Settings, collect, settle
from memlab.errors import DeviceError, MemlabError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memlab.device.worker import Link
    from memlab.kernels.launch import Dim3

WITHOUT_GPU = "go on without a GPU with --device h200"

HELD_LIMIT_S = 10.0
"""How long a launch may take to be queued behind the kernel that holds it back; it takes some
microseconds, or for ever where it waits for itself."""

FLUSH_FACTOR = 2
"""Buffers that flush the L2 are so many times its size: the L2 need not replace the oldest line
first, and one of its own size would leave lines behind."""
DEFAULT_L2_BYTES = 64 * 2**20  # where the driver does not know
FLUSH_BLOCK = 512
FLUSH_BLOCKS_PER_SM = 4
WORD_BYTES = 16

NVML_CLOCK_SM = 1  # NVML_CLOCK_SM of nvml.h
DEFAULT_SHARED_LIMIT_BYTES = 48 * 1024  # beyond, a kernel must opt in (Programming Guide)

QUERIED = "queried: cuDeviceGetAttribute"

# Fields by the attribute that gives them, as `CUdevice_attribute` and PyCUDA name them, and what
# one unit of the attribute is in the field's unit.
NUMBERS = {
    "multiprocessor_count": ("MULTIPROCESSOR_COUNT", 1),
    "clock_rate_hz": ("CLOCK_RATE", 1000),
    "memory_clock_rate_hz": ("MEMORY_CLOCK_RATE", 1000),
    "global_memory_bus_width_bits": ("GLOBAL_MEMORY_BUS_WIDTH", 1),
    "l2_cache_bytes": ("L2_CACHE_SIZE", 1),
    "max_texture1d_width": ("MAXIMUM_TEXTURE1D_WIDTH", 1),
    "max_texture2d_width": ("MAXIMUM_TEXTURE2D_WIDTH", 1),
    "max_texture2d_height": ("MAXIMUM_TEXTURE2D_HEIGHT", 1),
    "max_texture3d_width": ("MAXIMUM_TEXTURE3D_WIDTH", 1),
    "max_texture3d_height": ("MAXIMUM_TEXTURE3D_HEIGHT", 1),
    "max_texture3d_depth": ("MAXIMUM_TEXTURE3D_DEPTH", 1),
    "max_texture1d_layered_width": ("MAXIMUM_TEXTURE1D_LAYERED_WIDTH", 1),
    "max_texture1d_layered_layers": ("MAXIMUM_TEXTURE1D_LAYERED_LAYERS", 1),
    "max_texture2d_layered_width": ("MAXIMUM_TEXTURE2D_LAYERED_WIDTH", 1),
    "max_texture2d_layered_height": ("MAXIMUM_TEXTURE2D_LAYERED_HEIGHT", 1),
    "max_texture2d_layered_layers": ("MAXIMUM_TEXTURE2D_LAYERED_LAYERS", 1),
    "total_constant_memory_bytes": ("TOTAL_CONSTANT_MEMORY", 1),
    "max_shared_memory_per_block_bytes": ("MAX_SHARED_MEMORY_PER_BLOCK", 1),
    "max_shared_memory_per_block_optin_bytes": ("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", 1),
    "max_shared_memory_per_multiprocessor_bytes": ("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR", 1),
    "reserved_shared_memory_per_block_bytes": ("RESERVED_SHARED_MEMORY_PER_BLOCK", 1),
    "max_registers_per_block": ("MAX_REGISTERS_PER_BLOCK", 1),
    "max_registers_per_multiprocessor": ("MAX_REGISTERS_PER_MULTIPROCESSOR", 1),
    "warp_size": ("WARP_SIZE", 1),
    "max_threads_per_multiprocessor": ("MAX_THREADS_PER_MULTIPROCESSOR", 1),
    "max_threads_per_block": ("MAX_THREADS_PER_BLOCK", 1),
    "max_blocks_per_multiprocessor": ("MAX_BLOCKS_PER_MULTIPROCESSOR", 1),
    "max_pitch_bytes": ("MAX_PITCH", 1),
    "texture_alignment_bytes": ("TEXTURE_ALIGNMENT", 1),
    "async_engine_count": ("ASYNC_ENGINE_COUNT", 1),
    "surface_alignment_bytes": ("SURFACE_ALIGNMENT", 1),
    "pci_domain_id": ("PCI_DOMAIN_ID", 1),
    "pci_bus_id": ("PCI_BUS_ID", 1),
    "pci_device_id": ("PCI_DEVICE_ID", 1),
    "compute_mode": ("COMPUTE_MODE", 1),
}
EXTENTS = {"max_block_dim": "MAX_BLOCK_DIM", "max_grid_dim": "MAX_GRID_DIM"}
FLAGS: dict[str, str | int] = {
    "kernel_exec_timeout": "KERNEL_EXEC_TIMEOUT",
    "integrated": "INTEGRATED",
    "can_map_host_memory": "CAN_MAP_HOST_MEMORY",
    "ecc_enabled": "ECC_ENABLED",
    "unified_addressing": "UNIFIED_ADDRESSING",
    "managed_memory": "MANAGED_MEMORY",
    "compute_preemption_supported": "COMPUTE_PREEMPTION_SUPPORTED",
    # PyCUDA has no name for these two; the numbers are those of `CUdevice_attribute`.
    "cooperative_launch": 95,
    "cooperative_multi_device_launch": 96,
}

FAULTS: dict[str, tuple[type[MemlabError], str, str]] = {
    "illegal memory access": (
        MemlabError,
        "touched memory that is not its own (CUDA_ERROR_ILLEGAL_ADDRESS)",
        "run it with --device h200, which names the line, block and thread",
    ),
    "misaligned address": (
        MemlabError,
        "used an address that its access width does not divide (CUDA_ERROR_MISALIGNED_ADDRESS)",
        "run it with --device h200, which names the line, block and thread",
    ),
    "out of memory": (
        UsageError,
        "needs more memory than is free on the GPU (CUDA_ERROR_OUT_OF_MEMORY)",
        "use smaller sizes, or end what else uses the GPU (nvidia-smi lists it)",
    ),
    "illegal instruction": (
        MemlabError,
        "met an instruction that the GPU refuses (CUDA_ERROR_ILLEGAL_INSTRUCTION)",
        "look for a __trap() or inline assembly in its source",
    ),
    "invalid program counter": (
        MemlabError,
        "jumped out of its code (CUDA_ERROR_INVALID_PC)",
        "look for a call through a bad function pointer",
    ),
    "hardware stack error": (
        MemlabError,
        "overran its stack (CUDA_ERROR_HARDWARE_STACK_ERROR)",
        "look for recursion or large local arrays",
    ),
    "device-side assert": (
        MemlabError,
        "failed an assert() (CUDA_ERROR_ASSERT)",
        "run it with --device h200 to see where",
    ),
    "launch timed out": (
        MemlabError,
        "ran longer than the driver allows on a GPU that drives a display "
        "(CUDA_ERROR_LAUNCH_TIMEOUT)",
        "use smaller sizes, or a GPU without a display",
    ),
    "unspecified launch failure": (
        MemlabError,
        "failed for a reason that the driver does not tell (CUDA_ERROR_LAUNCH_FAILED)",
        "run it with --device h200, which checks every access",
    ),
    "too many resources requested": (
        UsageError,
        "needs more registers or threads a block than the GPU has "
        "(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)",
        "use a smaller block",
    ),
    "no kernel image": (
        DeviceError,
        "was compiled for another GPU, or the driver is too old for it "
        "(CUDA_ERROR_NO_BINARY_FOR_GPU)",
        f"update the NVIDIA driver, or {WITHOUT_GPU}",
    ),
    "kernel image is invalid": (
        DeviceError,
        "is machine code that this driver cannot load (CUDA_ERROR_INVALID_IMAGE)",
        "update the NVIDIA driver, or install an nvidia-cuda-nvrtc no newer than it, or "
        f"{WITHOUT_GPU}",
    ),
    "unsupported toolchain": (
        DeviceError,
        "was compiled by an NVRTC that is newer than the driver "
        "(CUDA_ERROR_UNSUPPORTED_PTX_VERSION)",
        "update the NVIDIA driver, or install an nvidia-cuda-nvrtc no newer than it, or "
        f"{WITHOUT_GPU}",
    ),
    "uncorrectable": (
        DeviceError,
        "met an uncorrectable memory error (CUDA_ERROR_ECC_UNCORRECTABLE)",
        f"have the GPU looked at (nvidia-smi -q -d ECC), or {WITHOUT_GPU}",
    ),
    "busy or unavailable": (
        DeviceError,
        "cannot have the GPU (CUDA_ERROR_DEVICE_UNAVAILABLE)",
        f"see with nvidia-smi who uses it and whether it is still there, or {WITHOUT_GPU}",
    ),
}
"""What the driver's message holds: the error to raise, what happened, and the next step."""


def in_sight() -> bool:
    """Say whether a GPU may be here: quick, and without touching one.

    True where the driver's library can be loaded and PyCUDA is installed.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return importlib.util.find_spec("pycuda") is not None


def device_count() -> int:
    """Count the GPUs that CUDA shows, which `CUDA_VISIBLE_DEVICES` may limit.

    Raises:
        DeviceError: There is no driver, or PyCUDA is missing or does not fit.
    """
    return int(_driver().Device.count())


def query(index: int) -> DeviceProperties:
    """Read what the driver knows of a GPU; what it refuses stays None.

    Args:
        index: The GPU's number, from 0.

    Raises:
        DeviceError: There is no such GPU, or no way to use one.
    """
    driver, device = _driver(), _device(index)
    numbers = {
        field: value * unit
        for field, (name, unit) in NUMBERS.items()
        if (value := _attribute(device, name)) is not None
    }
    extents = {
        field: values
        for field, name in EXTENTS.items()
        if None not in (values := tuple(_attribute(device, f"{name}_{axis}") for axis in "XYZ"))
    }
    flags = {
        field: bool(value)
        for field, name in FLAGS.items()
        if (value := _attribute(device, name)) is not None
    }
    version = driver.get_driver_version()
    major, minor, *_ = driver.get_version()
    others: dict[str, tuple[Any, str]] = {
        "total_memory_bytes": (device.total_memory(), "queried: cuDeviceTotalMem"),
        "driver_version": (
            f"{version // 1000}.{version % 1000 // 10}",
            "queried: cuDriverGetVersion",
        ),
        "runtime_version": (f"{major}.{minor}", "queried: the CUDA that PyCUDA was built with"),
    }
    if peers := _peer_access(index):
        others["peer_access"] = (peers, "queried: cuDeviceCanAccessPeer")
    attributes: dict[str, Any] = {**numbers, **extents, **flags}
    sources = dict.fromkeys(("compute_capability", *attributes), QUERIED)
    return DeviceProperties(
        name=device.name(),
        compute_capability=device.compute_capability(),
        sources=sources | {field: source for field, (_, source) in others.items()},
        **attributes,
        **{field: value for field, (value, _) in others.items()},
    )


class Session:
    """A GPU to launch kernels on and to time them; use it as a context manager, in a worker.

    Everything is in the order of one stream, the default one.

    Attributes:
        l2_bytes: Size of the L2, as the driver gives it.
        multiprocessors: How many there are.
    """

    def __init__(self, index: int, link: Link | None = None, timeout_s: float = TIMEOUT_S) -> None:
        """Choose a GPU; entering the context takes it.

        Args:
            index: The GPU's number, from 0.
            link: Guards what may never end; without one, nothing does.
            timeout_s: How long one launch may take, seconds.
        """
        self._index, self._link, self.timeout_s = index, link, timeout_s
        self._stack = ExitStack()
        self._flush: Callable[[], None] | None = None
        self._salt = 0

    def __enter__(self) -> Session:
        driver, device = _driver(), _device(self._index)
        with explained("memlab"), ExitStack() as stack:
            # The primary context: other libraries in this process would find the same one.
            context = device.retain_primary_context()
            context.push()
            stack.callback(context.pop)
            self.l2_bytes = _attribute(device, "L2_CACHE_SIZE") or DEFAULT_L2_BYTES
            self.multiprocessors = _attribute(device, "MULTIPROCESSOR_COUNT") or 1
            self._architecture: tuple[int, int] = device.compute_capability()
            self._start, self._stop = driver.Event(), driver.Event()
            self._flags = driver.pagelocked_empty(
                2, np.uint32, mem_flags=driver.host_alloc_flags.DEVICEMAP
            )
            self._hold = self._support("hold.cu", "hold")
            self._nvml = _Nvml(device.pci_bus_id())
            stack.callback(self._nvml.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._stack.close()
        except _driver().Error:
            if error is None:  # after a fault every call fails: the fault is what to tell
                raise

    def load(
        self, cubin: bytes, entry: str, constants: Mapping[str, NDArray[Any]] | None = None
    ) -> Any:
        """Load machine code and give one of its kernels, to pass to `launch`.

        Args:
            cubin: The machine code.
            entry: The kernel's `extern "C"` name.
            constants: What its `__constant__` arrays hold, by symbol.

        Raises:
            DeviceError: The driver cannot load it.
        """
        driver = _driver()
        with explained(entry):
            module = driver.module_from_buffer(cubin)
            for name, values in (constants or {}).items():
                address, _ = module.get_global(name)
                driver.memcpy_htod(address, np.ascontiguousarray(values))
            return module.get_function(entry)

    def array(self, content: int | NDArray[Any]) -> Any:
        """Allocate memory on the GPU; it lives as long as what this returns.

        Args:
            content: An array to copy there; or a size in bytes, which are poisoned with 0xFF.

        Raises:
            UsageError: There is not as much free.
        """
        driver = _driver()
        size = content if isinstance(content, int) else content.nbytes
        free, _ = driver.mem_get_info()
        if size > free:
            raise UsageError(
                f"an array of {size} bytes does not fit the GPU, which has {free} bytes free: "
                "use smaller sizes, or end what else uses it (nvidia-smi lists it)"
            )
        with explained("the allocation"):
            allocation = driver.mem_alloc(max(size, 1))
            if isinstance(content, int):
                driver.memset_d8(allocation, POISON_BYTE, max(size, 1))
            else:
                driver.memcpy_htod(allocation, np.ascontiguousarray(content))
            return allocation

    def read(self, allocation: Any, into: NDArray[Any]) -> NDArray[Any]:
        """Copy from the GPU, after everything launched so far.

        Args:
            allocation: What `array` gave.
            into: A contiguous array, filled from the allocation's start.

        Returns:
            `into`.
        """
        self.synchronize()
        _driver().memcpy_dtoh(into, allocation)
        return into

    def launch(
        self,
        function: Any,
        grid: Dim3,
        block: Dim3,
        arguments: Sequence[Any],
        shared_bytes: int = 0,
    ) -> None:
        """Queue a launch; it does not wait.

        Args:
            function: What `load` gave.
            grid: Blocks in x, y, z.
            block: Threads of a block in x, y, z.
            arguments: Allocations, and scalars as NumPy's, in the kernel's order.
            shared_bytes: Dynamic shared memory, bytes.
        """
        if shared_bytes > DEFAULT_SHARED_LIMIT_BYTES:
            attributes = _driver().function_attribute
            function.set_attribute(attributes.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)
        function(*arguments, grid=grid, block=block, shared=shared_bytes)

    def synchronize(self, what: str = "the kernel") -> None:
        """Wait for everything launched so far.

        Args:
            what: Whom an error names.

        Raises:
            MemlabError: A fault on the GPU, as `explained` words it, or it took too long.
        """
        with explained(what), self._guarded(what):
            _driver().Context.synchronize()

    def clock_hz(self) -> float | None:
        """Read the SM clock through NVML, Hz; None where it cannot be read."""
        return self._nvml.clock_hz()

    def time(
        self,
        launch: Callable[[], None],
        settings: Settings,
        flush: bool = True,
        what: str = "the kernel",
        report: Callable[[], None] | None = None,
    ) -> Samples:
        """Time what `launch` queues, from its start to its end on the GPU.

        Of every sample: the L2 is flushed, a kernel holds back what follows until both events and
        the launch between them are queued, then the host lets go; so neither launch gaps nor dirty
        lines are timed. Before the first sample the same goes on until the SM clock has settled.

        Args:
            launch: Queues one launch or several on the default stream; must not wait for them.
            settings: When to stop.
            flush: Whether every sample starts with an L2 that holds nothing of the launch's;
                else it holds what the launch before left.
            what: Whom an error names.
            report: Called after every sample.

        Raises:
            MemlabError: A fault on the GPU, or it took too long.
        """

        def sample() -> Sample:
            taken = self._sample(launch, flush, what)
            if report is not None:
                report()
            return taken

        # The first launch of all loads the code, which waits for the GPU: it may not be held.
        launch()
        self.synchronize(what)
        if flush:
            self._flush_l2()
            self.synchronize(what)
        settle(sample, settings, time.monotonic)
        return collect(sample, settings, time.monotonic)

    def _sample(self, launch: Callable[[], None], flush: bool, what: str) -> Sample:
        with explained(what), self._guarded(what):
            if flush:
                self._flush_l2()
            self._flags[:] = 0
            pointer = np.uintp(self._flags.base.get_device_pointer())
            self.launch(self._hold, (1, 1, 1), (1, 1, 1), [pointer, np.uint64(HELD_LIMIT_S * 1e9)])
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
                    "what is timed may only queue launches, without waiting for them"
                )
            # Asking NVML takes some microseconds: it is done when nothing is being timed.
            return Sample(self._start.time_till(self._stop) / 1e3, self.clock_hz())

    def _flush_l2(self) -> None:
        if self._flush is None:
            self._flush = self._make_flush()
        self._flush()

    def _make_flush(self) -> Callable[[], None]:
        size = FLUSH_FACTOR * self.l2_bytes // WORD_BYTES * WORD_BYTES
        write, read = (self._support("flush.cu", f"flush_{each}") for each in ("write", "read"))
        written, clean, sink = self.array(size), self.array(size), self.array(4)
        count = np.uint64(size // WORD_BYTES)
        grid, block = (FLUSH_BLOCKS_PER_SM * self.multiprocessors, 1, 1), (FLUSH_BLOCK, 1, 1)

        def flush() -> None:
            self._salt += 1
            self.launch(write, grid, block, [written, count, np.uint32(self._salt)])
            self.launch(read, grid, block, [clean, count, sink])

        return flush

    def _support(self, file: str, entry: str) -> Any:
        from importlib import resources

        path = resources.files("memlab.kernels").joinpath("support", file)
        source = path.read_text(encoding="utf-8")
        return self.load(compile_cubin(source, file, self._architecture, {}), entry)

    @contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        if self._link is None:
            yield
            return
        message = (
            f"{what} did not end within {self.timeout_s:g} s and was stopped: "
            "look for a loop that never ends, or allow more with --timeout SECONDS"
        )
        with self._link.within(self.timeout_s, message):
            yield


class _Nvml:
    """NVIDIA's management library, for the SM clock; does without where it is not there."""

    def __init__(self, pci_bus_id: str) -> None:
        self._library: Any = None
        try:
            import pynvml
        except ImportError:
            return
        try:
            pynvml.nvmlInit()
            # By its place on the bus: NVML does not know CUDA_VISIBLE_DEVICES.
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
            self._library = pynvml
            pynvml.nvmlDeviceGetClockInfo(self._handle, NVML_CLOCK_SM)
        except pynvml.NVMLError:
            self._library = None

    def clock_hz(self) -> float | None:
        if self._library is None:
            return None
        try:
            return float(self._library.nvmlDeviceGetClockInfo(self._handle, NVML_CLOCK_SM)) * 1e6
        except self._library.NVMLError:
            return None

    def close(self) -> None:
        if self._library is not None:
            self._library.nvmlShutdown()


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn the driver's errors into memlab's: who, what happened, the next step.

    Args:
        what: Whom the message names, e.g. a kernel.

    Raises:
        MemlabError: The launch did something wrong.
        UsageError: It needs more than there is.
        DeviceError: The GPU or the driver cannot do it.
    """
    try:
        yield
    except _driver().Error as error:
        text = str(error)
        for phrase, (kind, happened, step) in FAULTS.items():
            if phrase in text:
                raise kind(f"{what} {happened}: {step}") from error
        raise DeviceError(
            f"{what} could not use the GPU ({text}): see with nvidia-smi whether it is still "
            f"there, or {WITHOUT_GPU}"
        ) from error


@cache
def _driver() -> Any:  # PyCUDA carries no types.
    """Load PyCUDA and start the driver.

    Raises:
        DeviceError: Either is not possible; says what to do.
    """
    try:
        import pycuda.driver
    except ImportError as error:
        raise DeviceError(_cannot_import(error)) from error
    try:
        pycuda.driver.init()
    except pycuda.driver.Error as error:
        raise DeviceError(
            f"no GPU can be used ({error}): see what nvidia-smi says, or {WITHOUT_GPU}"
        ) from error
    return pycuda.driver


def _cannot_import(error: ImportError) -> str:
    reason = str(error).strip().partition("\n")[0]
    if isinstance(error, ModuleNotFoundError):
        return f"a GPU needs PyCUDA ({reason}): pip install 'memlab[gpu]', or {WITHOUT_GPU}"
    if "libcuda.so" in reason:
        return f"no NVIDIA driver is installed here ({reason}): install one, or {WITHOUT_GPU}"
    return (
        f"PyCUDA cannot be loaded, it may be built for another CUDA ({reason}): "
        "pip install --force-reinstall --no-cache-dir --no-binary pycuda pycuda, "
        f"or {WITHOUT_GPU}"
    )


def _device(index: int) -> Any:
    count = device_count()
    if not 0 <= index < count:
        known = ", ".join(f"cuda:{each}" for each in range(count)) or "none"
        raise DeviceError(
            f"there is no GPU {index}; CUDA shows {known} (CUDA_VISIBLE_DEVICES may hide some): "
            f"choose one of these, or {WITHOUT_GPU}"
        )
    return _driver().Device(index)


def _attribute(device: Any, name: str | int) -> int | None:
    """Read one attribute; None where this PyCUDA or driver does not know it."""
    driver = _driver()
    attributes = driver.device_attribute
    attribute = attributes(name) if isinstance(name, int) else getattr(attributes, name, None)
    if attribute is None:
        return None
    try:
        return int(device.get_attribute(attribute))
    except driver.Error:
        return None


def _peer_access(index: int) -> dict[str, bool]:
    """Say for every other GPU whether this one can access its memory directly."""
    driver = _driver()
    device = driver.Device(index)
    return {
        f"cuda:{other}": bool(device.can_access_peer(driver.Device(other)))
        for other in range(driver.Device.count())
        if other != index
    }
