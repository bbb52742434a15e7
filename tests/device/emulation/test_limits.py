"""The emulator's limits: time, memory, and kernels that no device could run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launches import launch_of

from memlab.cli.app import main
from memlab.device import budget
from memlab.device.budget import Budget, Deadline, EmulationTimeoutError, parse_size
from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets import loader
from memlab.device.emulation import counting, execution, representative_block
from memlab.device.emulation.device import emulate_if_supported
from memlab.device.emulation.emulated_device import EmulatedDevice
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.machine import execution_trace
from memlab.device.emulator.machine.memory import KernelFault
from memlab.device.emulator.ptx.parser import PtxError, parse_ptx
from memlab.device.measurement import Coverage, Measurement, Verification
from memlab.errors import UsageError
from memlab.kernels.launch import Arrays, Buffer, Launch, Scalar, SingleValue, Uniform

OUT = Buffer("o", (4096,), "float32", "out")


def run(launch: Launch, **limits: Any) -> Measurement:
    properties = loader.load_datasheet("h200")
    return EmulatedDevice("h200", properties, Budget(**limits)).run(launch, seed=3)


def executed(launch: Launch, **limits: Any) -> Execution:
    return Execution.of(launch, compile_launch(launch, (9, 0)), 3, Budget(**limits))


class Passes(Deadline):
    """A deadline on a clock that advances by a second whenever it is asked."""

    def __init__(self, asks: int) -> None:
        super().__init__(60)
        self.asks = asks

    def left(self) -> float:
        self.asks -= 1
        return self.asks


class Sudden(Passes):
    """A deadline that passes unexpectedly."""

    def left(self) -> float:
        return 60 if super().left() >= 0 else -1


# --- Time --------------------------------------------------------------------------------------

ENDLESS = """extern "C" __global__ void k(float *o, int n) {
    volatile int going = 1;
    if (threadIdx.x == 5 && blockIdx.x == 1)
        while (going)
            going = n;
    o[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}"""
FILL = """extern "C" __global__ void k(float *o, int n) {
    o[(blockIdx.x * blockDim.x + threadIdx.x) % n] = 1;
}"""


def test_an_endless_loop_ends_at_the_limit_and_names_line_block_and_thread() -> None:
    with pytest.raises(EmulationTimeoutError) as error:
        run(launch_of(ENDLESS, OUT, Scalar("n", "int32", 1)), timeout_s=0.2)

    message = str(error.value)
    assert "\n" not in message
    assert "limit of 0.2 s" in message
    assert "block (1, 0, 0) thread (5, 0, 0), line " in message
    assert "0 of 2 blocks done" in message
    assert "--timeout 2" in message


@pytest.mark.parametrize("whole", [True, False])
def test_blocks_done_before_the_time_limit_stand_for_the_rest(
    whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not whole:
        monkeypatch.setattr(counting, "WHOLE_GRID_LANE_INSTRUCTIONS", 0)
    monkeypatch.setattr(execution, "CHUNK_LANES", 64)
    launch = launch_of(FILL, OUT, Scalar("n", "int32", 4096), blocks=64)
    one = executed(launch)
    cost = representative_block.record_block(one).lane_instructions_per_block
    complete = counting.count_grid(one, cost, lambda what, fraction: None)

    cut = executed(launch)
    representative_block.record_block(cut)
    cut.deadline = Passes(12)  # asked before each block and in it
    counted = counting.count_grid(cut, cost, lambda what, fraction: None)

    assert 3 <= counted.coverage.blocks_emulated < complete.coverage.blocks_emulated
    assert counted.coverage.timed_out
    assert counted.coverage.estimated == whole  # that its blocks are alike is known of a sample
    assert counted.coverage.remark.startswith("stopped at the time limit")
    assert not complete.coverage.timed_out
    assert counted.tally == complete.tally


def test_counts_need_a_block_of_every_stratum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "WHOLE_GRID_LANE_INSTRUCTIONS", 0)
    cut = executed(launch_of(FILL, OUT, Scalar("n", "int32", 4096), blocks=64))
    cut.deadline = Passes(3)  # the first and the last block are of another kind than the others

    with pytest.raises(EmulationTimeoutError, match=r"of 64 blocks done"):
        counting.count_grid(cut, 1e9, lambda what, fraction: None)


def ones(inputs: Arrays, index: np.ndarray) -> np.ndarray:
    return np.ones(index.size)


def test_finished_blocks_are_verified_and_blocks_cut_short_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Instructions that were not executed would look like a wrong result."""
    monkeypatch.setattr(execution, "CHUNK_LANES", 64)
    launch = launch_of(FILL, OUT, Scalar("n", "int32", 4096), blocks=64, references={"o": ones})

    stopped = executed(launch)
    stopped.deadline = Passes(20)
    assert counting.count_grid(stopped, 1, lambda what, fraction: None).coverage.timed_out
    assert stopped.verify(whole=False).status == "passed"

    cut = executed(launch)
    cut.deadline = Sudden(4)  # before, in and behind the first chunk, before the second: in that
    assert counting.count_grid(cut, 1, lambda what, fraction: None).coverage.timed_out
    verification = cut.verify(whole=False)
    assert (verification.status, verification.relative_error) == ("skipped", None)
    assert "time limit" in verification.worst


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf"])
def test_a_time_limit_of_zero_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="timeout must be more than 0 seconds"):
        Budget(float(text))


# --- Size --------------------------------------------------------------------------------------


def test_a_thousand_million_blocks_are_counted_quickly() -> None:
    """No array is as long as the grid; the counts are computed."""
    blocks = 10**9
    fill = FILL.replace("(blockIdx.x * blockDim.x + threadIdx.x) % n", "threadIdx.x")
    measurement = run(launch_of(fill, OUT, Scalar("n", "int32", 4096), blocks=blocks))

    assert measurement.coverage.blocks_emulated < 100
    assert measurement.counters.global_store_requests == 2 * blocks
    assert measurement.counters.global_store_sectors == 8 * blocks


def test_memory_is_added_up_before_it_is_allocated() -> None:
    huge = Buffer("o", (2**38,), "float32", "out")  # 1 TiB
    with pytest.raises(UsageError, match=r"needs 13\d{11} bytes .* are free") as error:
        run(launch_of(FILL, huge, Scalar("n", "int32", 1)))
    assert "\n" not in str(error.value)

    with pytest.raises(UsageError, match=r"1000 are allowed: .*--memory-limit \d+MiB"):
        run(launch_of(FILL, OUT, Scalar("n", "int32", 1)), memory_bytes=1000)


def test_module_variables_count_as_memory() -> None:
    source = """__device__ char z[1ull << 37];
extern "C" __global__ void k(float *o, int n) { o[threadIdx.x] = z[n]++; }"""
    with pytest.raises(UsageError, match="bytes of host memory"):
        run(launch_of(source, OUT, Scalar("n", "int32", 1)), memory_bytes=2**34)


DEEP = """extern "C" __global__ void k(float *o, int n) {
    int a[16384];
    for (int i = 0; i < n; i++)
        a[i * 999 % 16384] = i;
    o[blockIdx.x * blockDim.x + threadIdx.x] = a[(n - 1) * 999 % 16384];
}"""


def test_threads_with_much_local_memory_run_in_smaller_chunks() -> None:
    """64 KiB per thread are 1 GiB in a full chunk."""
    launch = launch_of(DEEP, OUT, Scalar("n", "int32", 5), blocks=64)
    execution_ = executed(launch, memory_bytes=2**26)

    assert 1 <= execution_.chunk_blocks * 64 * 65536 <= 2**26
    assert (
        counting.count_grid(execution_, 1, lambda what, fraction: None).coverage.blocks_emulated
        == 64
    )
    assert (execution_.array(OUT) == 4).all()
    assert executed(launch_of(FILL, OUT, Scalar("n", "int32", 5))).chunk_blocks == 256


def test_large_shared_arrays_lower_the_blocks_at_once() -> None:
    launch = launch_of(FILL, OUT, Scalar("n", "int32", 5), threads=32, shared=200 * 1024)

    assert executed(launch).chunk_blocks * 200 * 1024 <= execution.CHUNK_BYTES


@pytest.mark.parametrize(
    ("text", "size"), [("4GiB", 2**32), ("512 mib", 2**29), ("1.5kib", 1536), ("77", 77)]
)
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "4GB", "-1", "1e9", "nan", "4 GiB!", "9" * 40])
def test_an_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="memory limit must be bytes"):
        parse_size(text)


def test_a_process_limit_bounds_the_free_memory() -> None:
    """`ulimit -v` allows less memory than the host has."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33)); "
        "from memlab.device.budget import available_memory_bytes as free; print(free())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < 2**33
    assert budget.available_memory_bytes() > 0


WALK = """extern "C" __global__ void k(float *o, const float *x, int n) {
    float sum = 0;
    for (int j = threadIdx.x; j < n; j += blockDim.x)
        sum += x[(size_t)blockIdx.x * n + j];
    o[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}"""


def test_the_beginning_of_a_long_trace_stands_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte is read once, so DRAM moves the requested bytes, however much was recorded."""
    x = Buffer("x", (16, 65536), "float32", "in")
    launch = launch_of(WALK, OUT, x, Scalar("n", "int32", 65536), blocks=16)
    whole = run(launch).counters
    monkeypatch.setattr(execution_trace, "_MOST_EVENTS", 100)
    cut = run(launch).counters

    assert whole.dram_read_bytes == pytest.approx(x.nbytes, rel=0.01)
    assert cut.dram_read_bytes == pytest.approx(x.nbytes, rel=0.02)
    assert cut.global_load_sectors == whole.global_load_sectors
    assert cut.l1_read_sector_hits == pytest.approx(whole.l1_read_sector_hits, abs=x.nbytes / 3200)


# --- What cannot be run ------------------------------------------------------------------------

REFUSED = {
    "a level of a texture": (
        'extern "C" __global__ void k(float *o, unsigned long long t) {\n'
        "    o[threadIdx.x] = tex1DLod<float>((cudaTextureObject_t)t, 1.f, 2.f);\n}",
        r"no opcode tex\.level\.1d.*source line 2: o\[threadIdx.*mipmap levels",
    ),
    "functions that call others three times each": (
        "__device__ __noinline__ int f0(int n) { return n * n; }\n"
        + "".join(
            f"__device__ __noinline__ int f{i}(int n) {{\n"
            f"    return f{i - 1}(n + 1) * 3 + f{i - 1}(n - 1) + f{i - 1}(n * n);\n}}\n"
            for i in range(1, 12)
        )
        + 'extern "C" __global__ void k(float *o, int n) { o[0] = f11(n); }',
        r"more than 20000 instructions .*source line \d+: ",
    ),
    "calls a hundred deep": (
        "__device__ __noinline__ int f0(int n) { return n * n; }\n"
        + "".join(
            f"__device__ __noinline__ int f{i}(int n) {{ return f{i - 1}(n + 1) * 3; }}\n"
            for i in range(1, 100)
        )
        + 'extern "C" __global__ void k(float *o, int n) { o[0] = f99(n); }',
        r"calls are nested 65 deep; the emulator goes 64 deep .*source line \d+: ",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_unsupported_instruction_gives_one_line_with_the_source_line(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memlab.device.emulator.program.lowering.MAX_INLINED_INSTRUCTIONS", 20_000)
    source, message = REFUSED[what]
    last = Scalar("t", "uint64", 1) if "texture" in what else Scalar("n", "int32", 5)
    with pytest.raises(PtxError, match=message) as error:
        run(launch_of(source, OUT, last))
    assert "\n" not in str(error.value)


STORES = {
    "an argument": (
        'extern "C" __global__ void k(float *o, const __grid_constant__ int n) {\n'
        '    int *p = (int *)&n;\n    asm volatile("" : "+l"(p));\n    *p = 7;\n    o[0] = n;\n}',
        r"write of 4 bytes at param offset 8 .*the kernel's arguments can only be read.*"
        r"line 4: \*p = 7;",
    ),
    "a constant": (
        "__constant__ int c[4];\n"
        'extern "C" __global__ void k(float *o, int n) {\n    int *p = (int *)c;\n'
        '    asm volatile("" : "+l"(p));\n    p[1] = 7;\n    o[0] = c[n & 3];\n}',
        r"write of 4 bytes at const offset 4 .*__constant__ memory can only be read.*"
        r"line 5: p\[1\] = 7;",
    ),
    "a constant, atomically": (
        "__constant__ int c[4];\n"
        'extern "C" __global__ void k(float *o, int n) {\n    int *p = (int *)c;\n'
        '    asm volatile("" : "+l"(p));\n    atomicAdd(p, n);\n    o[0] = c[n & 3];\n}',
        r"__constant__ memory can only be read.*line 5: atomicAdd",
    ),
    "shared memory behind its end": (
        'extern "C" __global__ void k(float *o, int n) {\n    __shared__ float s[8];\n'
        '    float *p = s;\n    asm volatile("" : "+l"(p));\n    p[n * 1000] = 7;\n'
        "    o[0] = s[0];\n}",
        r"write of 4 bytes at shared offset 20000 of 32 bytes.*line 5: ",
    ),
}


@pytest.mark.parametrize("what", STORES)
def test_an_illegal_store_is_a_fault(what: str) -> None:
    source, message = STORES[what]
    with pytest.raises(KernelFault, match=message):
        run(launch_of(source, OUT, Scalar("n", "int32", 5)))


def test_an_argument_without_grid_constant_is_copied_per_thread() -> None:
    """The compiler copies it, as C++ requires."""
    source = """extern "C" __global__ void k(float *o, int n) {
    int *p = &n;
    asm volatile("" : "+l"(p));
    *p += threadIdx.x;
    o[blockIdx.x * blockDim.x + threadIdx.x] = n;
}"""
    execution_ = executed(launch_of(source, OUT, Scalar("n", "int32", 5)))
    counting.count_grid(execution_, 1, lambda what, fraction: None)

    assert execution_.array(OUT)[:128].tolist() == [5 + thread % 64 for thread in range(128)]


# --- Long programs -----------------------------------------------------------------------------

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
ENTRY = HEAD + ".visible .entry k() {{\n.reg .b32 %r<4>;\n{}\nret;\n}}\n"


@pytest.mark.slow
def test_four_mebibytes_of_ptx_are_parsed() -> None:
    count = 160_000
    text = ENTRY.format("add.s32 %r1, %r2, %r3;\n" * count)

    assert len(text) > 3.5 * 2**20
    assert len(parse_ptx(text).entries["k"].instructions) == count + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        ENTRY.format("add.s32 %r1, %r2, %r3;" * 100_000),
        ENTRY.format("") + "*/" + "/*" * 1_000_000,
        HEAD + ".global .b8 x[400000] = {\n" + ",\n".join(["1"] * 400_000) + "};\n",
        ENTRY.format("mov.b32 %r1, " + "{" * 500_000 + ";"),
    ],
    ids=["one line", "comments", "an initial value over lines", "braces"],
)
def test_parsing_takes_linear_time(text: str) -> None:
    """Any of these would take many minutes if the rest were copied at every step."""
    with suppress(PtxError):
        parse_ptx(text)


# --- The command -------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run --no-store", "analyze", "trace --block-index 1,0"])
def test_the_command_stops_at_its_limit_with_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "endless.cu"
    file.write_text(ENDLESS)
    name, *options = command.split()
    words = [f"{file}:k", "--grid", "2", "--block", "64", "--arg", "out:f32[128]", "--arg", "i32=1"]

    assert main([name, *words, *options, "--timeout", "0.3"]) == 1

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("memlab: error: the emulator's limit of 0.3 s is reached by block (1, ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("late", [True, False])
def test_models_that_the_time_limit_cut_short_are_named(
    late: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks have been counted when the time is up, and none runs again for the caches."""
    whole = Execution.verification

    def verified(self: Execution, whole_grid: bool) -> Callable[[], Verification]:
        if late:
            self.deadline = Deadline(-1.0)
        return whole(self, whole_grid)

    monkeypatch.setattr(Execution, "verification", verified)
    file = tmp_path / "fill.cu"
    file.write_text(FILL)
    words = [f"{file}:k", "--grid", "64", "--block", "64", "--arg", "out:f32[4096]"]

    assert main(["run", *words, "--arg", "i32=4096", "--no-store"]) == 0

    out, err = capsys.readouterr()
    assert ("stopped at the time limit" in " ".join(out.split())) == late
    assert err == late * (
        "memlab: stopped at the time limit: all blocks were counted, but not run again for the "
        "models of caches and time; allow more with --timeout\n"
    )


def test_a_command_stopped_at_its_limit_reports_partial_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "fill.cu"
    file.write_text(FILL)
    monkeypatch.setattr(execution, "CHUNK_LANES", 64)
    monkeypatch.setattr(execution, "Deadline", lambda seconds: Passes(60))
    words = [f"{file}:k", "--grid", "64", "--block", "64", "--arg", "out:f32[4096]"]

    assert main(["run", *words, "--arg", "i32=4096", "--no-store"]) == 0

    out, err = capsys.readouterr()
    assert "of 64 blocks" in out
    assert "stopped at the time limit" in " ".join(out.split())
    assert err.startswith("memlab: stopped at the time limit: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("size", ["1KiB", "nonsense", "0"])
def test_the_command_takes_a_memory_limit(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "naive", "--width", "64", "--no-store", "--memory-limit", size]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert "memory" in err
    assert err.count("\n") == 1


def test_sums_over_blocks_are_not_verified_unless_all_ran(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = """extern "C" __global__ void k(float *o, int n) {
    atomicAdd(o, 1.0f);
}"""
    total = Buffer("o", (1,), "float32", "inout", SingleValue(0))
    launch = launch_of(
        source,
        total,
        Scalar("n", "int32", 1),
        blocks=64,
        references={"o": lambda inputs, index: np.full(index.size, 64.0 * 64)},
    )

    assert run(launch).verification.status == "passed"
    monkeypatch.setattr(counting, "WHOLE_GRID_LANE_INSTRUCTIONS", 0)
    sampled = run(launch).verification
    assert (sampled.status, "atomics" in sampled.worst) == ("skipped", True)


@pytest.mark.parametrize(("dtype", "ctype"), [("uint8", "unsigned char"), ("float16", "short")])
def test_a_sample_of_small_elements_is_verified(
    dtype: str, ctype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elements are smaller than a word, and the others of the word were not written."""
    monkeypatch.setattr(counting, "WHOLE_GRID_LANE_INSTRUCTIONS", 0)
    one = {"uint8": 1, "float16": 0x3C00}[dtype]
    source = f"""extern "C" __global__ void k({ctype} *o, int n) {{
    o[(blockIdx.x * blockDim.x + threadIdx.x) * 3] = n;
}}"""
    out = Buffer("o", (64 * 64 * 3,), dtype, "out")
    launch = launch_of(source, out, Scalar("n", "int32", one), blocks=64, references={"o": ones})
    measurement = run(launch)

    assert measurement.verification.status == "passed"
    assert measurement.verification.checked == 64 * measurement.coverage.blocks_emulated
    assert measurement.coverage.blocks_emulated < 64


def test_data_dependent_kernels_run_whole_up_to_a_larger_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The expected counts come from the addresses, which the random indices give."""
    source = """extern "C" __global__ void k(float *o, const int *p, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    o[p[i]] = n;
}"""
    indices = Buffer("p", (64 * 64,), "int32", "in", Uniform(0, 4096))
    launch = launch_of(source, OUT, indices, Scalar("n", "int32", 1), blocks=64)
    drawn = executed(launch).inputs["p"].reshape(-1, 32)
    sectors = sum(len(np.unique(warp * 4 // 32)) for warp in drawn)

    monkeypatch.setattr(counting, "WHOLE_GRID_LANE_INSTRUCTIONS", 0)
    whole = run(launch)
    monkeypatch.setattr(counting, "MAX_EXACT_LANE_INSTRUCTIONS", 0)
    sampled = run(launch)

    assert whole.coverage == Coverage(64, 64)
    assert whole.counters.global_store_sectors == sectors
    assert whole.coverage.remark == ""
    assert sampled.coverage.blocks_emulated < 64
    assert sampled.coverage.remark.startswith("estimates (standard error of sectors ")
    assert sampled.counters.global_store_sectors == pytest.approx(sectors, rel=0.1)


def test_a_launch_that_the_emulator_cannot_execute_has_no_counters() -> None:
    unsupported = (
        'extern "C" __global__ void k(float *o) {\n'
        '    asm volatile("{ .reg .u32 t; mov.u32 t, %pm0; st.global.u32 [%0], t; }" ::"l"(o));\n}'
    )
    endless = 'extern "C" __global__ void k(volatile float *o) { while (*o != 5) *o = 4; }'
    properties = loader.load_datasheet("h200")
    for source, limits, reason in (
        (unsupported, Budget(), "no special register %pm0"),
        (endless, Budget(timeout_s=0.2), "limit of 0.2 s"),
        (endless, Budget(memory_bytes=1000), "1000 are allowed"),
    ):
        launch = launch_of(source, OUT)
        compiled = compile_launch(launch, (9, 0))

        emulation = emulate_if_supported(launch, compiled, properties, 3, budget=limits)

        assert reason in emulation.coverage.not_counted
        assert emulation.coverage.blocks_emulated == 0
        assert emulation.flop(launch) == 0


def test_a_fault_that_a_gpu_may_not_notice_is_reported() -> None:
    stray = launch_of('extern "C" __global__ void k(float *o) { o[4096 + threadIdx.x] = 1; }', OUT)

    with pytest.raises(KernelFault, match=r"o\[4096\] of 4096 elements"):
        emulate_if_supported(stray, compile_launch(stray, (9, 0)), loader.load_datasheet("h200"), 3)
