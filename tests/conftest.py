"""Fixtures that the tests of all rooms share."""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from gpu_runs import missing_gpu
from hypothesis import settings
from paths import REPOSITORY

from memlab.device.compiler import nvcc
from memlab.device.emulation import execution
from memlab.device.measurement import (
    Counters,
    Coverage,
    DeviceSummary,
    LineCounters,
    Measurement,
    Occupancy,
    Resources,
    Time,
    Verification,
)
from memlab.kernels.launch import Launch
from memlab.roofline.run import Placement, Run

FLOP = 2 * 2048**3

MAIN_ARCHITECTURE = (9, 0)
FUZZ_TESTS = REPOSITORY / "tests" / "fuzz"
TRACED_OF_THREE = 2
FOUND_BEFORE = FUZZ_TESTS / "test_found_before.py"

settings.register_profile("memlab", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("memlab")

# tiled, 16 wide, at 2048: the counts are a real H200's, the rest is plausible.
_RUN = Run(
    id=None,
    created_at="2026-07-14T09:30:05Z",
    memlab_version="0.1.0",
    measurement=Measurement(
        kernel="tiled",
        parameters={"width": 2048, "tile": 16},
        tile=16,
        flop=FLOP,
        compulsory_bytes=3 * 4 * 2048**2,
        device=DeviceSummary("NVIDIA H200", "emulated", (9, 0), "h200"),
        grid=(128, 128, 1),
        block=(16, 16, 1),
        dynamic_shared_bytes=0,
        resources=Resources(
            registers_per_thread=32, static_shared_bytes=2048, local_bytes_per_thread=0
        ),
        occupancy=Occupancy(
            blocks_per_sm=8,
            warps_per_sm=64,
            theoretical=1.0,
            limiter="warps and registers",
            limits={"blocks": 32, "warps": 8, "registers": 8, "shared memory": 21},
        ),
        coverage=Coverage(blocks_emulated=800, blocks_total=16384),
        counters=Counters.from_names(
            global_load_requests=33554432,
            global_load_sectors=134217728,
            global_store_requests=131072,
            global_store_sectors=524288,
            shared_load_instructions=335544320,
            shared_load_wavefronts=402653184,
            shared_store_instructions=33554432,
            shared_store_wavefronts=33554432,
            l1_read_sector_hits=6423474,
            l2_read_sectors=113966300,
            l2_read_sector_hits=112162106,
            l2_write_sectors=524288,
            dram_read_bytes=33575936,
            dram_write_bytes=12285952,
            requested_load_bytes=4 * 2 * 2048**3 // 16,
            requested_store_bytes=4 * 2048**2,
            flop_fp32=FLOP,
            thread_instructions=32933675010,
            warp_instructions=1029177344,
        ),
        lines=(
            LineCounters(line=0, text=""),
            LineCounters(line=31, text="    sum += a[y][i] * b[i][x];", flop=FLOP),
        ),
        time=Time(median_s=2.25e-3, provenance="modelled", bounds_s={"dram": 1.2e-5, "l1": 2.0e-3}),
        verification=Verification(
            status="passed", relative_error=3.1e-6, tolerance=2.7e-5, checked=204800, total=2048**2
        ),
    ),
    placement=Placement(
        flop_per_s=FLOP / 2.25e-3,
        intensity_flop_per_byte={
            "requested": 3.98,
            "l1": 0.28,
            "l2": 4.69,
            "dram": 374.6,
            "compulsory": 341.3,
        },
        bound="l1",
        ceiling="l1",
        ceiling_flop_per_s=9.4e12,
        fraction_of_ceiling=0.81,
    ),
    advice=("Shared memory is the limit.", "Let a thread compute more outputs."),
)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of a GPU where there is none."""
    if item.get_closest_marker("gpu") and (reason := missing_gpu()):
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def share_of_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep the tests of other processes (`-n 8`) from the GPU of a test that measures it."""
    if not request.node.get_closest_marker("gpu"):
        yield
        return
    import fcntl

    alone = request.node.get_closest_marker("alone")
    with (Path(tempfile.gettempdir()) / f"memlab-tests-{os.getuid()}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow the fuzz tests, and those that repeat a test for another architecture.

    Of the others, mark the first case of two test functions in three as those by which the
    coverage is measured: further cases execute much the same lines.
    """
    drawn: set[str] = set()
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        repeated = any(
            parameters.get(name, MAIN_ARCHITECTURE) != MAIN_ARCHITECTURE
            for name in ("architecture", "capability")
        )
        if repeated or (item.path.is_relative_to(FUZZ_TESTS) and item.path != FOUND_BEFORE):
            item.add_marker("slow")
        function = item.nodeid.partition("[")[0]
        if function in drawn or item.get_closest_marker("slow") or item.get_closest_marker("gpu"):
            continue
        drawn.add(function)
        if crc32(function.encode()) % 3 < TRACED_OF_THREE:
            item.add_marker("traced")


@pytest.fixture
def without_nvcc(monkeypatch):
    """A machine on which NVRTC is the only compiler."""
    monkeypatch.setattr(nvcc, "find_toolchain", lambda: None)


@pytest.fixture(scope="session", autouse=True)
def compile_cache() -> Iterator[None]:
    """Keep what the tests compile for the next run, apart from the user's own cache.

    The folder is named by the compiler room's code: another state of the code compiles anew.
    """
    files = (REPOSITORY / "device" / "compiler").rglob("*")
    sources = sorted(path for path in files if path.is_file() and path.suffix != ".pyc")
    code = b"".join(path.read_bytes() for path in sources)
    folder = REPOSITORY / "build" / "compiled-by-tests" / sha256(code).hexdigest()[:16]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMLAB_CACHE", str(folder))
        yield


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Run]:
    """`make_run(kernel="naive")`: a believable run, with fields of its measurement changed."""

    def make(**changes: Any) -> Run:
        return replace(_RUN, measurement=replace(_RUN.measurement, **changes))

    return make


@pytest.fixture(scope="session")
def as_ordinary_user() -> Callable[[Callable[[], object]], str]:
    """Call in a child that may not do what only root may; give back its error as text."""

    def call(action: Callable[[], object]) -> str:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                if os.geteuid() == 0:
                    os.setuid(65534)
                action()
                os.write(writer, b"no error")
            except BaseException as error:
                os.write(writer, f"{type(error).__name__}: {error}".encode())
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        with os.fdopen(reader) as said:
            return said.read()

    return call


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """An empty folder that every user may write to; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder
        folder.chmod(0o700)


@pytest.fixture
def arrays(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The inputs of the last emulated launch, and its outputs with references, by name."""
    seen: dict[str, Any] = {}
    verify = execution.verify

    def spy(launch: Launch, inputs: Any, found: Any) -> Any:
        written = {
            each.name: found[each.name].values.reshape(each.shape).copy()
            for each in launch.outputs
            if each.name in found
        }
        seen.update({**inputs, **written})
        return verify(launch, inputs, found)

    monkeypatch.setattr(execution, "verify", spy)
    return seen
