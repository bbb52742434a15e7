"""`check` on small kernels whose mistakes are known by hand, and on every kernel of the catalog."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlab.device.budget import Budget, EmulationTimeoutError
from memlab.device.checking.check import check_launch
from memlab.device.checking.findings import TOOLS, CheckFinding, CheckReport, Tool
from memlab.device.compiler.compile import compile_launch
from memlab.device.measurement import DeviceSummary
from memlab.kernels.catalog import CATALOG
from memlab.kernels.kernel import Limits
from memlab.kernels.launch import Buffer, Dim3, Launch, Scalar, Uniform

DEVICE = DeviceSummary("NVIDIA H200", "emulated", (9, 0), "h200")
# Shared memory to the opt-in limit of compute capability 9.0, which the largest tiles need.
LIMITS = Limits(DEVICE.name, max_shared_memory_per_block_optin_bytes=227 * 1024)

# Sizes that leave blocks, warps, tiles and lines unfilled; what a kernel has no parameter for is
# left out.
ODD: dict[str, int] = {
    "width": 37,
    "n": 289,
    "height": 21,
    "m": 31,
    "k": 7,
    "tokens": 70,
    "heads": 2,
}


def floats(name: str, elements: int) -> Buffer:
    return Buffer(name, (elements,), "float32", "in")


def output(name: str, elements: int) -> Buffer:
    return Buffer(name, (elements,), "float32", "out")


def counter(name: str, elements: int = 1) -> Buffer:
    return Buffer(name, (elements,), "uint32", "inout", Uniform(0, 1))  # zeros


def run(
    source: str,
    *arguments: Buffer | Scalar,
    grid: int = 1,
    block: int = 32,
    clean: bool = False,
    shared: int = 0,
    budget: Budget | None = None,
    tools: tuple[Tool, ...] = TOOLS,
) -> CheckReport:
    """Check the kernel `k` of a source."""
    launch = Launch(
        kernel="k",
        parameters={},
        source='extern "C" __global__ void ' + source,
        source_name="k.cu",
        entry="k",
        defines={"CLEAN": "1"} if clean else {},
        grid=(grid, 1, 1),
        block=(block, 1, 1),
        dynamic_shared_bytes=shared,
        arguments=arguments,
        flop=None,
        compulsory_bytes=0,
        references={},
        tolerance=0.0,
    )
    compiled = compile_launch(launch, (9, 0))
    return check_launch(launch, compiled, DEVICE, tools=tools, budget=budget)


def place(block: int, thread: int) -> tuple[Dim3, Dim3]:
    return (block, 0, 0), (thread, 0, 0)


def only(report: CheckReport) -> CheckFinding:
    (finding,) = report.findings
    return finding


def at(finding: CheckFinding) -> tuple[int, object]:
    """The marked line's number, and block and thread."""
    return finding.at.line, (finding.at.block, finding.at.thread)


def other(finding: CheckFinding) -> tuple[int, object]:
    assert finding.other is not None
    return finding.other.line, (finding.other.block, finding.other.thread)


def line(source: str, mark: str) -> int:
    """The number of the line that ends in a comment."""
    (found,) = (n for n, text in enumerate(source.splitlines(), 1) if text.endswith(f"// {mark}"))
    return found


# --- Nothing wrong -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOG)
def test_no_kernel_of_the_catalog_has_a_finding(name: str) -> None:
    known = {parameter.name for parameter in CATALOG[name].parameters}
    wanted = {key: value for key, value in ODD.items() if key in known}
    if "m" in known:
        wanted = {"m": 31, "k": 7, "n": 33}
    if name.startswith("wgmma"):
        wanted = {"m": 131, "k": 392, "n": 264}  # rows of whole 16 bytes, more tiles than stages
    if name == "wgmma-tf32":
        wanted |= {"k": 72, "n": 136}  # larger ones take more than a minute
    launch = CATALOG[name].prepare(wanted, LIMITS)
    report = check_launch(launch, compile_launch(launch, (9, 0)), DEVICE, seed=3)

    assert report.findings == ()
    assert report.verification.status == "passed"
    assert report.coverage.blocks_emulated == launch.blocks


# --- memcheck ----------------------------------------------------------------------------------

STRAYS = """k(const float* a, float* b, const float* far, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef CLEAN
  if (i >= n) return;
  b[i] = a[i];
#else
  float x = a[i]; // read
  b[i + 2] = x; // write
  if (i == 5) b[0] = far[i]; // null
#endif
}"""


def test_out_of_bounds_accesses_are_named_counted_and_left_out() -> None:
    # 3 blocks of 32 threads on 80 elements: 16 threads too many, and two more that write by 2.
    arguments = (floats("a", 80), output("b", 80), Scalar("far", "uint64", 0))
    arguments = (*arguments, Scalar("n", "int32", 80))
    found = run(STRAYS, *arguments, grid=3)
    read, write, null, unwritten = found.findings

    assert (read.tool, read.kind, read.space) == ("memcheck", "out of bounds", "global")
    assert at(read) == (line(STRAYS, "read"), place(2, 16))
    assert (read.element, read.count) == ("a[80] of 80 elements", 16)
    assert "read of 4 bytes outside a" in read.message
    assert at(write) == (line(STRAYS, "write"), place(2, 14))
    assert (write.element, write.count) == ("b[80] of 80 elements", 18)
    assert at(null) == (line(STRAYS, "null"), place(0, 5))
    assert null.element == "global address 0x14, a null pointer"
    # b[0] gets what the null pointer gives, 0; b[1] nothing.
    assert unwritten.element == "b[1] of 80 elements"
    assert run(STRAYS, *arguments, grid=3, clean=True).findings == ()


WRITES_AN_INPUT = """k(const float* a, unsigned* bins, float* b, unsigned* unknown) {
  int i = threadIdx.x;
  const_cast<float*>(a)[i] = 7; // store
  atomicAdd(bins + i % 4, 1u); // atomic
  unsigned* const places[] = {bins, unknown};
  places[unknown[0]][i] = 9; // either
  b[i] = a[i] + bins[0];
}"""


def test_a_write_to_an_input_is_reported_and_dropped() -> None:
    """`run` refuses such a launch; a reference is computed from the original inputs."""
    bins = replace(counter("bins", 40), role="in")
    arguments = (floats("a", 40), bins, output("b", 32), counter("unknown", 32))
    store, atomic, either = run(WRITES_AN_INPUT, *arguments).findings

    for finding, mark, element, count in (
        (store, "store", "a[0] of 40 elements", 32),
        (atomic, "atomic", "bins[0] of 40 elements", 32),
        (either, "either", "bins[0] of 40 elements", 32),
    ):
        assert (finding.tool, finding.kind, finding.space) == ("memcheck", "not writable", "global")
        assert at(finding) == (line(WRITES_AN_INPUT, mark), place(0, 0))
        assert (finding.element, finding.count) == (element, count)
    assert "atomic access of 4 bytes to an array that the launch gives as an input" in (
        atomic.message
    )
    declared = (replace(arguments[0], role="inout"), replace(bins, role="inout"), *arguments[2:])
    kinds = {finding.tool for finding in run(WRITES_AN_INPUT, *declared).findings}
    assert "memcheck" not in kinds


INTO_THE_NEXT = """k(float* a, float* b) {
  b[threadIdx.x] = 1;
  a[threadIdx.x + 4000] = 2; // far
}"""


def test_an_access_that_strays_into_another_array_is_reported() -> None:
    # 16 KB behind the start of a, which has 128 bytes, lies b.
    report = run(INTO_THE_NEXT, output("a", 32), output("b", 8192))
    found = report.findings[0]
    assert (found.tool, found.element) == ("memcheck", "a[4000] of 32 elements")
    assert found.count == 32


MIXED = """k(const float* a, const float* b, float* c, const long* far, int n) {
  int t = threadIdx.x;
  const float* p = n > 3 ? a : b;
  const float* q = n > 3 ? b : a;
  float sum = 0;
  for (int j = 0; j < n; j++) {
    sum += p[t];
    const float* swap = p;
    p = q;
    q = swap;
  }
  c[t] = sum + a[(b - a) + t] + a[far[t]];
}"""


def test_pointers_that_flow_together_may_point_into_either_array() -> None:
    far = Buffer("far", (32,), "int64", "in", Uniform(0, 32))
    arguments = (floats("a", 32), floats("b", 32), output("c", 32), far)
    assert run(MIXED, *arguments, Scalar("n", "int32", 5)).findings == ()


SPACES = """k(const float* a, float* b, int n) {
  __shared__ float s[33];
  __shared__ float next[32];
  float own[4];
  int t = threadIdx.x;
  next[t] = a[t];
  for (int j = 0; j < 4; j++) own[(j + n) & 3] = a[t + j];
  s[t + n] = a[t]; // shared
  __syncthreads();
  float x = own[n * (t == 7 ? 4 : 0)]; // local
  float2 pair = ((const float2*)(a + n))[t / 2]; // misaligned
  b[t] = x + pair.x + pair.y + next[31 - t] + s[t / 2 + 3];
}"""


def test_shared_and_local_arrays_and_alignment() -> None:
    arguments = (floats("a", 64), output("b", 32))
    found = run(SPACES, *arguments, Scalar("n", "int32", 3)).findings
    memcheck = [finding for finding in found if finding.tool == "memcheck"]
    shared, local, misaligned = memcheck
    assert len(found) == 3

    # 32 threads from s[3] on: two too many for 33 elements, though `next` lies there.
    assert at(shared) == (line(SPACES, "shared"), place(0, 30))
    assert (shared.element, shared.count) == ("s[33] of 33 elements", 2)
    assert (local.space, local.count, at(local)[1]) == ("local", 1, place(0, 7))
    assert (misaligned.kind, misaligned.count) == ("misaligned", 32)
    assert misaligned.element == "a[3] of 64 elements"
    assert "multiple of 8" in misaligned.message


DYNAMIC = """k(float* b) {
  extern __shared__ float last[];
  __shared__ char first;
  if (threadIdx.x == 0) first = 1;
  last[threadIdx.x] = threadIdx.x;
  __syncthreads();
  b[threadIdx.x] = last[31 - threadIdx.x] + first;
}"""


def test_an_array_sized_at_launch_follows_the_others() -> None:
    assert run(DYNAMIC, output("b", 32), shared=128).findings == ()
    write, read = run(DYNAMIC, output("b", 32), shared=124).findings
    assert (write.element, at(write)[1]) == ("last[31] of 31 elements", place(0, 31))
    assert (read.element, at(read)[1]) == ("last[31] of 31 elements", place(0, 0))


def test_an_array_that_another_kernel_sizes_at_launch_is_not_this_ones() -> None:
    source = """k(float* a, float* b, int n) {
  __shared__ float s[32];
  float* p = n ? a : s;
  p[threadIdx.x + 1] = 1;
  b[threadIdx.x] = 2;
}
extern "C" __global__ void other(float* b) {
  extern __shared__ float last[];
  last[threadIdx.x] = 1;
}"""
    arguments = (counter("a", 32), output("b", 32), Scalar("n", "int32", 0))
    assert only(run(source, *arguments)).element == "s[32] of 32 elements"


# --- initcheck ---------------------------------------------------------------------------------

UNWRITTEN = """k(const float* a, float* b, float* c, int n) {
  __shared__ float s[64];
  float own[8];
  int t = threadIdx.x;
#ifdef CLEAN
  for (int j = 0; j < 8; j++) own[j] = 0;
  s[t] = a[t];
  b[t] = 0;
  c[t] = 0;
#else
  if (t != 9) s[t] = a[t];
  if (t < 20) c[t] = 0; // part
#endif
  own[n] = a[t];
  __syncthreads();
  b[t] += s[63 - t]; // output
#ifndef CLEAN
  if (t != 40)
#endif
  c[t] += own[(t + n) & 7]; // own
}"""


def test_reads_of_unwritten_memory_are_reported() -> None:
    arguments = (floats("a", 64), output("b", 64), output("c", 64), Scalar("n", "int32", 2))
    found = run(UNWRITTEN, *arguments, block=64).findings
    initcheck = [finding for finding in found if finding.tool == "initcheck"]
    by_element = {finding.element: finding for finding in initcheck}

    shared = by_element["s[9] of 64 elements"]
    assert at(shared) == (line(UNWRITTEN, "output"), place(0, 54))
    assert shared.count == 1
    assert by_element["b[0] of 64 elements"].count == 64
    assert by_element["c[20] of 64 elements"].count == 43  # threads 20 to 63, but not 40
    (local,) = (finding for finding in initcheck if finding.space == "local")
    assert local.count == 64 - 8  # all whose t + 2 is not 2 modulo 8; 40 is one of these
    never = by_element["c[40] of 64 elements"]
    assert (never.kind, never.at.line, never.count) == ("never written", 0, 1)
    assert run(UNWRITTEN, *arguments, block=64, clean=True).findings == ()


EARLY = """k(const float* a, float* b, int n) {
  struct Source {  // gives a value to the threads before n
    static __device__ __noinline__ bool take(const float* a, int n, float& to) {
      if (threadIdx.x >= n) return false;
      to = a[threadIdx.x];
      return true;
    }
  };
  float own;
#ifdef CLEAN
  b[threadIdx.x] = Source::take(a, n, own) ? own : -1;
#else
  b[threadIdx.x] = Source::take(a, n, own) || threadIdx.x >= 25 ? own : -1; // use
#endif
}"""
"""The compiler reads `own` in all threads, and then chooses between its value and -1."""


@pytest.mark.parametrize("tools", [("initcheck",), TOOLS])
def test_a_value_that_is_read_early_is_at_fault_where_it_is_used(tools: tuple[Tool, ...]) -> None:
    arguments = (floats("a", 32), output("b", 32), Scalar("n", "int32", 20))
    assert run(EARLY, *arguments, clean=True, tools=tools).findings == ()
    used = only(run(EARLY, *arguments, tools=tools))
    assert (used.kind, used.space, used.count) == ("uninitialized read", "local", 32 - 25)
    assert at(used) == (line(EARLY, "use"), place(0, 25))


def test_what_data_leaves_unwritten_is_noted_and_no_finding() -> None:
    source = """k(const float* a, float* kept, int* places, float* all, int n) {
  int t = threadIdx.x;
  if (a[t] > 0.5f) kept[atomicAdd(places, 1)] = a[t];
  if (t < n) all[t] = a[t];
}"""
    arguments = (floats("a", 32), output("kept", 40), counter("places"), output("all", 32))
    report = run(source, *arguments, Scalar("n", "int32", 31))
    never = only(report)
    assert (never.kind, never.element) == ("never written", "all[31] of 32 elements")
    (note,) = report.notes
    assert " of 40 elements of kept are not written, as the data decides" in note


def test_bytes_of_words_and_vectors_are_distinguished() -> None:
    source = """k(float4* v, unsigned char* c) {
  __shared__ __align__(16) unsigned char s[64];
  int t = threadIdx.x;
  if (t < 16) ((unsigned*)s)[t] = t;
  __syncthreads();
  c[t] = s[t];
  if (t % 2) v[t / 2] = make_float4(1, 2, 3, 4);
}"""
    arguments = (output("v", 4 * 31), Buffer("c", (63,), "uint8", "out"))
    # 63 threads: the last odd one, 61, writes v[30], floats 120 to 123; all 63 bytes of c.
    assert run(source, *arguments, block=63).findings == ()


def test_padding_of_structures_in_byte_arrays_may_stay_unwritten() -> None:
    source = """k(unsigned char* bytes) {
  struct Item { char a; float b; short c; double d; char e; };
  Item* items = (Item*)bytes;
  int t = threadIdx.x;
  items[t].a = 1; items[t].b = 2; items[t].d = 4; items[t].e = 5;
  if (t != 5) items[t].c = 3;
  if (t == 7) items[t].e = 0;
}"""
    items = Buffer("bytes", (32 * 32,), "uint8", "out")
    never = only(run(source, items))
    # Of 32 bytes: a at 0, b at 4, c at 8, d at 16, e at 24. Without c, 8 in a row are left.
    assert (never.kind, never.count) == ("never written", 8)
    assert never.element == f"bytes[{5 * 32 + 8}] and 7 more of 1024 elements"
    wide = "k(unsigned char* b) { struct S { float4 v; float w; }; S s = {{1, 2, 3, 4}, 5};"
    wide += " S* to = (S*)b + threadIdx.x; to->v = s.v; if (threadIdx.x) to->w = s.w; }"
    assert only(run(wide, items)).element == "bytes[16] and 15 more of 1024 elements"
    plain = "k(unsigned char* b) { int t = threadIdx.x; b[t + (t > 6)] = 1; }"
    assert only(run(plain, Buffer("b", (33,), "uint8", "out"))).element == "b[7] of 33 elements"


def test_the_faulty_iterations_of_a_loop_are_found() -> None:
    """The footprint is the same in all iterations and cached; the faults differ."""
    source = """k(const float* a, float* b) {
  __shared__ float s[9 * 64];
  int t = threadIdx.x;
  float x = 0;
  for (int j = 0; j < 9; j++) if (j != 2) s[64 * j + t] = a[t];
  __syncthreads();
  s[64 * 4 + (t + 32) % 64] = 1; // write
#pragma unroll 1
  for (int j = 0; j < 10; j++) x += s[64 * j + t]; // read
  b[t] = x;
}"""
    found = run(source, floats("a", 64), output("b", 64), block=64).findings
    assert [(e.tool, e.kind, e.element, e.count) for e in found] == [
        ("memcheck", "out of bounds", "s[576] of 576 elements", 64),
        ("initcheck", "uninitialized read", "s[128] of 576 elements", 64),
        ("racecheck", "RAW", "s[256] of 576 elements", 64),
    ]
    assert {at(finding) for finding in found} == {(line(source, "read"), place(0, 0))}


# --- racecheck ---------------------------------------------------------------------------------

NEIGHBOUR = """k(const float* a, float* b) {
  __shared__ float s[64];
  int t = threadIdx.x;
  for (int j = 0; j < 2; j++) {
    s[t] = a[t] + j; // store
#if FIRST || CLEAN
    __syncthreads();
#endif
    b[64 * j + t] = s[t ^ 1]; // load
#if SECOND || CLEAN
    __syncthreads();
#endif
  }
}"""


def test_a_missing_barrier_is_a_race_with_the_neighbour() -> None:
    arguments = (floats("a", 64), output("b", 128))
    found = only(run(NEIGHBOUR.replace("SECOND", "1"), *arguments, block=64))
    assert (found.tool, found.kind, found.space) == ("racecheck", "RAW", "shared")
    assert at(found) == (line(NEIGHBOUR, "load"), place(0, 0))
    assert other(found) == (line(NEIGHBOUR, "store"), place(0, 1))
    assert (found.element, found.count) == ("s[1] of 64 elements", 128)

    found = only(run(NEIGHBOUR.replace("FIRST", "1"), *arguments, block=64))
    assert found.kind == "WAR"
    assert at(found) == (line(NEIGHBOUR, "store"), place(0, 0))
    assert other(found) == (line(NEIGHBOUR, "load"), place(0, 1))
    assert (found.element, found.count) == ("s[0] of 64 elements", 64)  # in the second turn

    assert run(NEIGHBOUR, *arguments, block=64, clean=True).findings == ()


WARP_SUM = """k(const float* a, float* b) {
  __shared__ VOLATILE float s[64];
  int t = threadIdx.x;
  s[t] = a[t];
  SYNC;
  for (int d = 16; d > 0; d /= 2) {
    float x = s[(t + d) % 32 + t / 32 * 32]; // load
    SYNC;
    s[t] += x; // add
    SYNC;
  }
  b[t] = s[t];
}"""


def test_warps_are_ordered_only_by_warp_barriers() -> None:
    arguments = (floats("a", 64), output("b", 64))
    for sync in ("__syncwarp()", "__syncthreads()", "__syncwarp(__activemask())"):
        source = WARP_SUM.replace("SYNC", sync).replace("VOLATILE", "")
        assert run(source, *arguments, block=64).findings == (), sync
    # Volatile does not help: since Volta the threads of a warp go on their own.
    source = WARP_SUM.replace("SYNC", "").replace("VOLATILE", "volatile")
    found = run(source, *arguments, block=64).findings
    assert {finding.kind for finding in found} == {"RAW", "WAR"}
    assert found[0].message.endswith("no barrier or __syncwarp lies between")
    # Nor does a warp's barrier help another warp.
    source = WARP_SUM.replace("SYNC", "__syncwarp()").replace("VOLATILE", "").replace("% 32 +", "+")
    found = run(source.replace("t / 32 * 32", "0 & 63"), *arguments, block=64).findings
    assert {(finding.tool, finding.kind) for finding in found} >= {("racecheck", "RAW")}


COUNTS = """k(unsigned* counts) {
  __shared__ unsigned c[2];
  int t = threadIdx.x;
  if (t < 2) c[t] = 0; // clear
#ifdef CLEAN
  __syncthreads();
#endif
  atomicAdd(&c[t & 1], 1u); // add
#ifdef CLEAN
  __syncthreads();
#endif
  if (t < 2) counts[2 * blockIdx.x + t] = c[t]; // read
}"""


def test_atomics_race_only_with_plain_accesses() -> None:
    counts = counter("counts", 8)
    add, read = run(COUNTS, counts, grid=4, block=64).findings
    assert (add.kind, at(add)) == ("WAW", (line(COUNTS, "add"), place(0, 2)))
    assert other(add) == (line(COUNTS, "clear"), place(0, 0))
    assert add.count == 4 * 62  # threads 0 and 1 cleared their own
    assert (read.kind, at(read)) == ("RAW", (line(COUNTS, "read"), place(0, 0)))
    assert read.count == 8
    assert run(COUNTS, counts, grid=4, block=64, clean=True).findings == ()


SWAP = """k(const double* a, double* sum) {
  __shared__ double part[2];
  unsigned long long *p = (unsigned long long*)(sum + 1), old = 0, seen;
  int t = threadIdx.x;
  if (t < 2) part[t] = 0;
  __syncthreads();
  for (int turn = 0; turn < 2; turn++) {
    old = *p; // guess
    do {
      seen = old;
      old = atomicCAS(p, seen, __double_as_longlong(a[t] + __longlong_as_double(seen)));
    } while (seen != old);
    p = (unsigned long long*)&part[t % 2];
  }
  __syncthreads();
  if (t == 0) sum[0] = part[0] + part[1];
#ifndef CLEAN
  if (t == 1) sum[2] = sum[1]; // read
#endif
}"""


def test_the_load_before_a_compare_and_swap_does_not_race() -> None:
    arguments = (
        Buffer("a", (64,), "float64", "in"),
        Buffer("sum", (3,), "float64", "inout", Uniform(0, 1)),
    )
    assert run(SWAP, *arguments, grid=3, block=64, clean=True).findings == ()
    found = run(SWAP, *arguments, grid=3, block=64).findings
    assert [(finding.kind, at(finding)) for finding in found] == [
        ("RAW", (line(SWAP, "read"), place(0, 1)))
    ]


def test_the_load_is_recognized_at_a_differently_computed_address() -> None:
    """The compiler adds the index to the pointer, and to the result of `cvta`."""
    source = """k(unsigned* p, unsigned* q) {
  unsigned *place = p + threadIdx.x, seen = __ldcg(OTHER), old;
  while ((old = atomicCAS(place, seen, seen + 1)) != seen) seen = old;
}"""
    arguments = (counter("p", 32), counter("q", 32))
    assert run(source.replace("OTHER", "place"), *arguments, grid=4).findings == ()
    elsewhere = only(run(source.replace("OTHER", "p + (threadIdx.x ^ 1)"), *arguments, grid=4))
    assert elsewhere.tool == "racecheck"


FLAG = """k(const float* a, float* b) {
  __shared__ float s[32];
  __shared__ int ready;
  int t = threadIdx.x;
  if (t == 0) ready = 0;
  __syncthreads();
  if (t < 32) {
    s[t] = a[t];
    __syncwarp();
    if (t == 0) {
      FENCE;
      atomicExch(&ready, 1);
    }
  } else {
    while (atomicAdd(&ready, 0) == 0) ;
    b[t - 32] = s[63 - t]; // read
  }
}"""


def test_a_flag_after_a_fence_orders_two_warps() -> None:
    arguments = (floats("a", 32), output("b", 32))
    for fence in ("__threadfence_block()", "__threadfence()"):
        assert run(FLAG.replace("FENCE", fence), *arguments, block=64).findings == ()
    found = only(run(FLAG.replace("FENCE", ""), *arguments, block=64))
    assert (found.kind, found.count, found.at.line) == ("RAW", 32, line(FLAG, "read"))
    # What was copied asynchronously is published like a store, once it was waited for.
    copy = 'asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"('
    copy += '(unsigned)__cvta_generic_to_shared(s + t)), "l"(a + t));'
    source = FLAG.replace("FENCE", "__threadfence()").replace("s[t] = a[t];", copy + "WAIT")
    waiting = source.replace("WAIT", 'asm volatile("cp.async.wait_all;");')
    assert run(waiting, *arguments, block=64).findings == ()
    found = only(run(source.replace("WAIT", ""), *arguments, block=64))
    assert (found.kind, found.count, found.at.line) == ("RAW", 32, line(FLAG, "read"))


LAST_BLOCK = """k(const float* a, volatile float* sums, unsigned* done, float* total) {
  __shared__ float s[64];
  __shared__ bool last;
  int t = threadIdx.x;
  s[t] = a[64 * blockIdx.x + t];
  __syncthreads();
  if (t == 0) {
    float sum = 0;
    for (int j = 0; j < 64; j++) sum += s[j];
    sums[blockIdx.x] = sum; // publish
#ifdef CLEAN
    __threadfence();
#endif
    last = atomicInc(done, gridDim.x) == gridDim.x - 1;
  }
  __syncthreads();
  if (last) {
    if (t == 0) *done = 0;
    s[t] = t < gridDim.x ? sums[t] : 0; // collect
    __syncthreads();
    if (t == 0) for (int j = 1; j < 64; j++) s[0] += s[j];
    if (t == 0) *total = s[0];
  }
}"""
"""After the example of `__threadfence` in the CUDA C++ Programming Guide."""


@pytest.mark.parametrize("grid", [9, 300])  # in one chunk of blocks, and in two
def test_a_fence_and_an_atomic_order_blocks(grid: int) -> None:
    arguments = (floats("a", 64 * grid), output("sums", grid), counter("done"), output("total", 1))
    for_the_block = LAST_BLOCK.replace("#ifdef CLEAN", "__threadfence_block();\n#ifdef CLEAN")
    assert len(run(for_the_block, *arguments, grid=grid, block=64).findings) == 1
    found = only(run(LAST_BLOCK, *arguments, grid=grid, block=64))
    assert (found.kind, found.element) == ("RAW", f"sums[0] of {grid} elements")
    assert at(found) == (line(LAST_BLOCK, "collect"), place(grid - 1, 0))
    assert other(found) == (line(LAST_BLOCK, "publish"), place(0, 0))
    assert found.count == min(grid - 1, 64)
    assert "no fence with an atomic orders the blocks" in found.message
    assert run(LAST_BLOCK, *arguments, grid=grid, block=64, clean=True).findings == ()


CUMULATIVE = """k(const float* a, float* parts, unsigned* done, float* total) {
  __shared__ bool last;
  int t = threadIdx.x, i = 64 * blockIdx.x + t;
  parts[i] = a[i]; // publish
#ifdef CLEAN
  __syncthreads();
#endif
  if (t == 0) {
    __threadfence();
    last = atomicAdd(done, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  float sum = 0;
  for (int j = 0; j < gridDim.x; j++) sum += parts[64 * j + t]; // collect
  total[t] = sum;
}"""


def test_a_fence_releases_accesses_known_through_a_barrier() -> None:
    arguments = (floats("a", 256), output("parts", 256), counter("done"), output("total", 64))
    found = only(run(CUMULATIVE, *arguments, grid=4, block=64))
    # Thread 0 wrote its own part before its fence; the others' need the barrier.
    assert at(found) == (line(CUMULATIVE, "collect"), place(3, 1))
    assert (found.element, found.count) == ("parts[1] of 256 elements", 3 * 63)
    assert run(CUMULATIVE, *arguments, grid=4, block=64, clean=True).findings == ()


ADDED_UP = """k(const float* a, float* sums, unsigned* done, float* total) {
  __shared__ bool last;
  int t = threadIdx.x;
  atomicAdd(&sums[t], a[64 * blockIdx.x + t]); // add
#ifdef CLEAN
  __threadfence();
#endif
  __syncthreads();
  if (t == 0) last = atomicAdd(done, 1u) == gridDim.x - 1;
  __syncthreads();
  if (last) total[t] = sums[t]; // collect
}"""


def test_an_atomic_with_an_unused_result_is_not_a_ticket() -> None:
    """All tickets being drawn does not imply that the sums are visible."""
    sums = Buffer("sums", (64,), "float32", "inout", Uniform(0, 1))
    arguments = (floats("a", 512), sums, counter("done"), output("total", 64))
    found = only(run(ADDED_UP, *arguments, grid=8, block=64))
    assert (found.kind, found.count) == ("RAW", 64)
    assert at(found) == (line(ADDED_UP, "collect"), place(7, 0))
    assert other(found)[0] == line(ADDED_UP, "add")
    assert run(ADDED_UP, *arguments, grid=8, block=64, clean=True).findings == ()


def test_equal_stores_by_many_threads_do_not_race() -> None:
    source = """k(const float* a, float* found, float* b) {
  __shared__ int any;
  if (threadIdx.x == 0) any = 0;
  __syncthreads();
  if (a[threadIdx.x] >= 0) { any = 1; *found = 1; }
  __syncthreads();
  b[64 * blockIdx.x + threadIdx.x] = any;
  if (VALUE < 2) *found = VALUE; // last
}"""
    arguments = (floats("a", 64), output("found", 1), output("b", 128))
    assert run(source.replace("VALUE", "1"), *arguments, grid=2, block=64).findings == ()
    source = source.replace("*found = 1; }", "}")
    assert run(source.replace("VALUE", "1"), *arguments, grid=2, block=64).findings == ()
    found = only(run(source.replace("VALUE", "threadIdx.x"), *arguments, grid=2, block=64))
    assert (found.kind, found.element) == ("WAW", "found[0] of 1 element")
    # Two threads of each block store 0 and 1: those with 0 race with one of those with 1.
    assert (at(found), found.count) == ((line(source, "last"), place(0, 0)), 2)
    assert found.other is not None
    assert found.other.thread == (1, 0, 0)


STENCIL = """k(float* a) {
  int t = threadIdx.x;
  float left = a[t]; // left
  float right = a[t + 2]; // right
  a[t + 1] = left + right; // store
}"""


def test_a_write_races_with_every_line_that_reads() -> None:
    array = Buffer("a", (66,), "float32", "inout")
    left, right = run(STENCIL, array, block=64).findings
    # Thread t writes a[t + 1], which thread t + 1 reads as its left, thread t - 1 as its right.
    assert {at(left)[0], at(right)[0]} == {line(STENCIL, "store")}
    assert other(left) == (line(STENCIL, "left"), place(0, 1))
    assert (left.kind, left.element, left.count) == ("WAR", "a[1] of 66 elements", 63)
    assert other(right) == (line(STENCIL, "right"), place(0, 0))
    assert (right.kind, right.element, right.count) == ("WAR", "a[2] of 66 elements", 63)
    assert at(right)[1] == place(0, 1)


ASYNC = """k(const float* a, float* b) {
  __shared__ float s[2][32];
  int t = threadIdx.x;
  for (int stage = 0; stage < 2; stage++) {
    unsigned to = (unsigned)__cvta_generic_to_shared(&s[stage][t]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(a + 32 * stage + t));
    asm volatile("cp.async.commit_group;");
  }
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING));
  __syncthreads();
  b[t] = s[0][31 - t]; // first
#ifndef CLEAN
  b[32 + t] = s[1][31 - t]; // second
#endif
}"""


def test_async_copies_are_visible_after_a_wait() -> None:
    arguments = (floats("a", 64), output("b", 64))
    assert run(ASYNC.replace("PENDING", "0"), *arguments).findings == ()
    found = only(run(ASYNC.replace("PENDING", "1"), *arguments))
    assert (found.kind, found.at.line) == ("RAW", line(ASYNC, "second"))
    assert (found.element, found.count) == ("s[1][31] of 2 x 32 elements", 32)
    waited = run(ASYNC.replace("PENDING", "1"), floats("a", 64), output("b", 32), clean=True)
    assert waited.findings == ()


# --- synccheck ---------------------------------------------------------------------------------

RETURNS = """k(const float* a, float* b, int n) {
  int t = threadIdx.x;
#ifndef CLEAN
  if (t >= n) return; // return
#endif
  for (int j = 0; j < 3; j++) {
    if (t < n) b[t] = a[t] + j;
    __syncthreads(); // barrier
  }
}"""


def test_exited_threads_are_missing_at_every_barrier() -> None:
    arguments = (floats("a", 64), output("b", 40), Scalar("n", "int32", 40))
    found = only(run(RETURNS, *arguments, block=64))
    assert (found.tool, found.kind) == ("synccheck", "barrier not reached")
    assert at(found) == (line(RETURNS, "barrier"), place(0, 0))
    assert other(found) == (line(RETURNS, "return"), place(0, 40))
    assert found.count == 3 * 24
    assert run(RETURNS, *arguments, block=64, clean=True).findings == ()


BRANCHES = """k(const float* a, float* b) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = a[t];
#ifndef CLEAN
  if (t < 48) {
    __syncthreads(); // inside
    s[t] += 1;
  }
#endif
  __syncthreads(); // behind
  b[t] = s[63 - t];
}"""


def test_a_barrier_in_a_divergent_branch_is_reported() -> None:
    arguments = (floats("a", 64), output("b", 64))
    found = only(run(BRANCHES, *arguments, block=64))
    assert (found.tool, found.kind) == ("synccheck", "divergent barrier")
    assert at(found) == (line(BRANCHES, "inside"), place(0, 0))
    assert other(found) == (line(BRANCHES, "behind"), place(0, 48))
    assert found.count == 16
    assert run(BRANCHES, *arguments, block=64, clean=True).findings == ()


PIPE = """k(const float* a, float* b) {
  __shared__ float s[32];
  int t = threadIdx.x;
  if (t < 32) {
    s[t] = a[t]; // fill
    asm volatile("bar.sync 1, 64;" ::: "memory");
  } else if (t < 64) {
    asm volatile("bar.sync 1, 64;" ::: "memory");
    b[t - 32] = s[63 - t]; // drain
  }
  if (t >= 64) b[t - 32] = THIRD; // third
}"""


def test_partial_barriers_order_only_their_warps() -> None:
    arguments = (floats("a", 32), output("b", 64))
    assert run(PIPE.replace("THIRD", "1"), *arguments, block=96).findings == ()
    found = [
        finding
        for finding in run(PIPE.replace("THIRD", "s[95 - t]"), *arguments, block=96).findings
        if finding.tool == "racecheck"
    ]
    assert [(finding.kind, finding.count) for finding in found] in ([("RAW", 32)], [("WAR", 32)])
    assert found[0].at.line + other(found[0])[0] == line(PIPE, "fill") + line(PIPE, "third")
    lonely = only(run(PIPE.replace("1, 64", "1, 96").replace("THIRD", "1"), *arguments, block=96))
    assert (lonely.tool, lonely.kind, lonely.count) == ("synccheck", "barrier not reached", 32)


def test_a_partial_warp_counts_as_a_warp_at_a_barrier() -> None:
    # PTX ISA, "bar": the count of threads is a multiple of the warp's size.
    arguments = (floats("a", 32), output("b", 18))
    source = PIPE.replace("THIRD", "1").replace("63 - t", "t - 32")
    assert run(source, *arguments, block=50).findings == ()


MASKS = """k(const float* a, float* b) {
  __shared__ float s[32];
  int t = threadIdx.x;
  s[t] = a[t];
  if (t < 16) {
    __syncwarp(LOW); // low
    b[t] = s[15 - t];
  } else {
    b[t] = s[t];
  }
  __syncwarp(); // all
}"""


def test_member_masks_name_the_threads_that_arrive() -> None:
    arguments = (floats("a", 32), output("b", 32))
    assert run(MASKS.replace("LOW", "0xffff"), *arguments).findings == ()
    found = only(run(MASKS.replace("LOW", "0xffffff"), *arguments))
    assert (found.tool, found.kind) == ("synccheck", "invalid mask")
    assert at(found) == (line(MASKS, "low"), place(0, 0))
    assert other(found) == (line(MASKS, "all"), place(0, 16))
    assert found.count == 8
    unnamed = [
        finding
        for finding in run(MASKS.replace("LOW", "0xff"), *arguments).findings
        if finding.tool == "synccheck"
    ]
    assert [(finding.kind, at(finding), finding.count) for finding in unnamed] == [
        ("invalid mask", (line(MASKS, "low"), place(0, 8)), 8)
    ]
    # Threads that have returned need not come (CUDA C++ Programming Guide, "__syncwarp").
    source = (
        "k(const float* a, float* b) { if (threadIdx.x < 9) { __syncwarp(); b[threadIdx.x] = 1; } }"
    )
    assert run(source, floats("a", 9), output("b", 9)).findings == ()


TOGETHER = """k(const float* a, float* b) {
  int t = threadIdx.x, left = t % 5;
  float x = a[t];
#ifdef CLEAN
  unsigned mine = t < 16 ? 0xffffu : 0xffff0000u;
#else
  unsigned mine = t < 16 ? 0xffffu : 0xfffe0000u;
#endif
  x += __shfl_xor_sync(mine, x, 1, 16); // mine
  if (__builtin_expect(t == 7, 0)) {
    b[t] = x;
    __threadfence();
    x += 1;
  }
  unsigned mask = __ballot_sync(0xffffffffu, x > 0); // after an unlikely arm
#pragma unroll 1
  while (true) {
#ifdef CLEAN
    mask = __ballot_sync(mask, left > 0);
    if (left == 0) break;
#else
    if (left == 0) break;
    mask = __ballot_sync(mask, left > 0); // loop
#endif
    x += __shfl_sync(mask, x, __ffs(mask) - 1); // narrowed
    --left;
  }
  __syncwarp();
  b[t] = x;
}"""


def test_a_mask_names_exactly_the_lanes_of_a_collective() -> None:
    mine, loop = run(TOGETHER, floats("a", 32), output("b", 32)).findings

    assert {finding.tool + ": " + finding.kind for finding in (mine, loop)} == {
        "synccheck: invalid mask"
    }
    assert at(mine) == (line(TOGETHER, "mine"), place(0, 16))
    assert (mine.other, mine.count) == (None, 1)
    assert "a mask that does not name itself" in mine.message
    # In every iteration the mask still names the lanes that left before: 7, then 7, 6 and 6 lanes.
    assert at(loop) == (line(TOGETHER, "loop"), place(0, 1))
    assert other(loop)[1] == place(0, 0)
    assert loop.count == 7 + 7 + 6 + 6
    assert run(TOGETHER, floats("a", 32), output("b", 32), clean=True).findings == ()


RETURNED = """k(const float* a, float* b, int n) {
  int t = threadIdx.x;
  if (t >= n) { b[t] = 0; return; }
  float x = a[t];
#pragma unroll 1
  for (int d = 1; d < 4; d *= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
  if (x > 1) b[t] = x;
  else b[t] = -x;
}"""


def test_a_mask_may_name_exited_threads() -> None:
    """Exited threads need not arrive (PTX ISA, "shfl.sync"), and are not read here."""
    arguments = (floats("a", 32), output("b", 32), Scalar("n", "int32", 20))
    assert run(RETURNED, *arguments).findings == ()


@pytest.mark.parametrize("n", [20, 32])
def test_merged_exits_do_not_make_lanes_wait(n: int) -> None:
    """The two stores are merged into one; threads beyond n reach it without waiting."""
    source = """k(const float* a, float* b, int n) {
  int t = threadIdx.x;
  float x = a[t];
  if (t >= n) { b[t] = x; return; }
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  b[t] = x;
}"""
    arguments = (floats("a", 32), output("b", 32), Scalar("n", "int32", n))
    assert run(source, *arguments).findings == ()
    waits = source.replace("b[t] = x; return; }", "} else").replace(
        "  b[t]", "  __syncwarp();\n  b[t]"
    )
    assert [finding.count for finding in run(waits, *arguments).findings] == [12] * (n == 20)


def test_branch_arms_reconverge_at_a_warp_barrier() -> None:
    # What the upper half writes, the lower half reads behind a barrier further up in the program.
    source = """k(const float* a, float* b) {
  __shared__ float s[32];
  int t = threadIdx.x;
  if (t < 16) { __syncwarp(); b[t] = s[t + 16]; }
  else { s[t] = a[t]; __syncwarp(); b[t] = 0; }
}"""
    report = run(source, floats("a", 32), output("b", 32))
    assert report.findings == ()


GUARDED = """k(float* y, const float* a, int n) {
  int t = threadIdx.x;
  if (t < n) {
    float x = a[t];
    for (int d = 16; d > 0; d /= 2) x += __shfl_down_sync(0xffffffff, x, d); // sum
    if (t == 0) y[0] = x;
  }
}"""


def test_a_shuffle_from_an_exited_lane_is_reported() -> None:
    """With 20 threads, the sum of thread 0 includes the value that thread 4 read from lane 20."""
    arguments = (output("y", 1), floats("a", 32))
    found = only(run(GUARDED, *arguments, Scalar("n", "int32", 20)))
    assert (found.tool, found.kind, found.count) == ("synccheck", "inactive source lane", 1)
    assert at(found) == (line(GUARDED, "sum"), place(0, 4))
    assert other(found)[1] == place(0, 20)
    assert run(GUARDED, *arguments, Scalar("n", "int32", 32)).findings == ()

    # A block of 20 threads has no 21st.
    found = only(run(GUARDED, *arguments, Scalar("n", "int32", 20), block=20))
    assert (at(found), found.other) == ((line(GUARDED, "sum"), place(0, 4)), None)


def test_a_butterfly_after_an_early_return_makes_every_value_undefined() -> None:
    source = RETURNED.replace("d < 4", "d < 32")
    found = only(run(source, floats("a", 32), output("b", 32), Scalar("n", "int32", 20)))
    # All turns are one instruction: thread 4 is the lowest that reads beyond the 20th.
    assert (found.kind, at(found)[1], other(found)[1]) == (
        "inactive source lane",
        place(0, 4),
        place(0, 20),
    )
    assert found.count == 20  # using it in a branch and in a store is one mistake


ARMS = """k(const float* a, float* b, int n) {
  int t = threadIdx.x;
  float x = a[t];
  if (t < n) x = __shfl_sync(0xffffffff, x, t + 1); // below
  else x = __shfl_sync(0xffffffff, x, 3) * 2; // above
  b[t] = x;
}"""


def test_branch_arms_reconverge_at_the_same_shuffle() -> None:
    """They reconverge where opcode and mask are equal (PTX ISA, "shfl.sync")."""
    arguments = floats("a", 32), output("b", 32), Scalar("n", "int32", 20)
    assert run(ARMS, *arguments).findings == ()
    deeper = ARMS.replace(
        "x = __shfl_sync(0xffffffff, x, t", "x = __shfl_sync(0xffffffff, x * x, t"
    )
    assert run(deeper, *arguments).findings == ()
    # What thread 20 reads from nobody, thread 19 reads from it and stores.
    gone = ARMS.replace("= a[t];", "= __shfl_down_sync(0xffffffff, a[t], 1); // nobody")
    written = Buffer("b", (32,), "float32", "inout", Uniform(0, 1))
    found = only(run(gone, floats("a", 32), written, Scalar("n", "int32", 20), block=21))
    assert (found.kind, found.count) == ("inactive source lane", 1)
    assert at(found) == (line(gone, "nobody"), place(0, 20))


@pytest.mark.parametrize(
    "above",
    [
        "x = __shfl_up_sync(0xffffffff, x, 3);",
        "x = __ballot_sync(0xffffffff, x > 0);",
        "x = __shfl_sync(0xfff80000, x, 23);",
        "__syncwarp();",
    ],
    ids=["another shuffle", "a vote", "another mask", "a barrier of the warp"],
)
def test_branch_arms_do_not_reconverge_at_other_instructions(above: str) -> None:
    source = ARMS.replace("x = __shfl_sync(0xffffffff, x, 3) * 2;", above)
    found = only(run(source, floats("a", 32), output("b", 32), Scalar("n", "int32", 20)))
    assert (found.tool, found.kind, found.count) == ("synccheck", "invalid mask", 12)
    assert at(found) == (line(source, "below"), place(0, 0))
    assert other(found)[1] == place(0, 20)
    assert "at another shuffle" in found.message


IDIOMS = {
    "half a warp, its upper lanes read beyond it": """
      if (t < 16) {
        for (int d = 8; d > 0; d /= 2) x += __shfl_down_sync(0xffff, x, d);
        if (t == 0) b[0] = x;
      }""",
    "halves of doubles": """
      if (t < 16) {
        double sum = x;
        for (int d = 8; d > 0; d /= 2) sum += __shfl_down_sync(0xffff, sum, d);
        if (t == 0) b[0] = sum;
      }""",
    "a mask that was voted on": """
      unsigned mask = __ballot_sync(0xffffffff, t < n);
      if (t < n) b[t] = __shfl_sync(mask, x, 0);""",
    "a mask of those who are there, read at the edge and left out": """
      if (t < n) {
        float left = __shfl_up_sync(__activemask(), x, 1);
        b[t] = t ? x + left : x;
      }""",
    "a mask without those who have returned, a comparison joined to a guard": """
      if (t >= n) return;
      float right = __shfl_down_sync((1u << n) - 1, x, 1);
      if (t < n - 1 && right > x) b[t] = right;""",
    "a width of 8, sources clamped to their own lanes": """
      if (t < 24) {
        for (int d = 4; d > 0; d /= 2) x += __shfl_down_sync(0xffffff, x, d, 8);
        b[t] = x;
      }""",
    "a scan": """
      for (int d = 1; d < 32; d *= 2) {
        float left = __shfl_up_sync(0xffffffff, x, d);
        if (t >= d) x += left;
      }
      b[t] = x;""",
}


@pytest.mark.parametrize("idiom", IDIOMS)
def test_an_unused_undefined_value_is_not_reported(idiom: str) -> None:
    source = f"""k(const float* a, float* b, int n) {{
      int t = threadIdx.x;
      float x = a[t];{IDIOMS[idiom]}
    }}"""
    written = Buffer("b", (32,), "float32", "inout", Uniform(0, 1))
    assert run(source, floats("a", 32), written, Scalar("n", "int32", 20)).findings == ()


@pytest.mark.parametrize(
    "use",
    ["if (x > 0) b[t] = 1;", "b[(int)x & 31] = 1;", "atomicAdd(b, x);", "s[t] = x;"],
    ids=["a branch", "an address", "an atomic", "shared memory"],
)
def test_every_use_of_an_undefined_value_is_reported(use: str) -> None:
    source = f"""k(const float* a, float* b) {{
  __shared__ volatile float s[32];
  int t = threadIdx.x;
  float x = __shfl_down_sync(0xffffffff, a[t], 1); // read
  {use}
}}"""
    written = Buffer("b", (32,), "float32", "inout", Uniform(0, 1))
    found = run(source, floats("a", 32), written, block=20).findings
    (undefined,) = (finding for finding in found if finding.kind == "inactive source lane")
    assert (at(undefined), undefined.count) == ((line(source, "read"), place(0, 19)), 1)


@settings(max_examples=12, deadline=None)
@given(
    mask=st.integers(1, 2**32 - 1),
    first=st.sampled_from([1, 2, 4, 8, 16]),
    reader=st.integers(0, 31),
    across=st.booleans(),
)
def test_sums_over_any_lanes_are_as_defined_as_a_walk_by_hand_says(
    mask: int, first: int, reader: int, across: bool
) -> None:
    source = """k(const float* a, float* b, unsigned mask, int first, int reader, int across) {
  int t = threadIdx.x;
  float x = a[t];
  if (mask >> t & 1) {
#pragma unroll 1
    for (int d = first; d > 0; d /= 2)
      x += across ? __shfl_xor_sync(mask, x, d) : __shfl_down_sync(mask, x, d);
    if (t == reader) b[0] = x;
  }
}"""
    defined, distance = {lane: True for lane in range(32) if mask >> lane & 1}, first
    while distance:
        reads = {lane: lane ^ distance if across else lane + distance for lane in defined}
        defined = {
            lane: own and (reads[lane] > 31 or defined.get(reads[lane], False))
            for lane, own in defined.items()
        }
        distance //= 2
    scalars = {"mask": mask, "first": first, "reader": reader, "across": int(across)}
    types = {"mask": "uint32"}
    report = run(
        source,
        floats("a", 32),
        Buffer("b", (1,), "float32", "inout", Uniform(0, 1)),
        *(Scalar(name, types.get(name, "int32"), value) for name, value in scalars.items()),
    )
    kinds = {finding.kind for finding in report.findings}
    assert kinds == (set() if defined.get(reader, True) else {"inactive source lane"})


# --- Reports -----------------------------------------------------------------------------------


def test_tools_can_be_selected_and_large_grids_are_sampled() -> None:
    launch = CATALOG["tiled"].prepare({"width": 640, "tile": 16}, Limits("test"))
    compiled = compile_launch(launch, (9, 0))
    report = check_launch(launch, compiled, DEVICE, tools=("synccheck",))
    assert (report.tools, report.findings) == (("synccheck",), ())
    assert report.coverage.blocks_emulated < report.coverage.blocks_total == 1600
    assert report.verification.status == "passed"
    assert 0 < report.verification.checked < report.verification.total


@pytest.mark.parametrize("grid", [300, 2048])
def test_few_blocks_are_checked_where_each_does_much(grid: int) -> None:
    """Of blocks of 50,000 turns, 512 fit a chunk."""
    source = """k(const float* a, float* b, int n) {
  float sum = 0;
  for (int j = 0; j < n; j++) sum = sum * a[j] + a[j];
  b[blockIdx.x * 32 + threadIdx.x] = sum;
}"""
    n = 50_000
    arguments = (floats("a", n), output("b", grid * 32), Scalar("n", "int32", n))
    report = run(source, *arguments, grid=grid)
    assert report.findings == ()
    assert 3 <= report.coverage.blocks_emulated <= 64


def test_an_endless_kernel_keeps_its_findings() -> None:
    endless = "k(const float* a, float* b) {\n  b[threadIdx.x] = FROM;\n"
    endless += "  while (*(volatile const float*)a >= 0) ;\n}"
    arguments = (floats("a", 32), output("b", 32))
    short = Budget(timeout_s=0.5)
    report = run(endless.replace("FROM", "a[threadIdx.x + 1]"), *arguments, budget=short)
    assert (only(report).element, report.coverage.timed_out) == ("a[32] of 32 elements", True)
    assert report.verification.status == "skipped"
    with pytest.raises(EmulationTimeoutError):
        run(endless.replace("FROM", "1"), *arguments, budget=short)


def test_a_trapping_kernel_keeps_its_findings() -> None:
    source = """k(const float* a, float* b) {
  b[threadIdx.x] = a[threadIdx.x + 1];
  if (threadIdx.x > 29) __trap(); // trap
}"""
    report = run(source, floats("a", 32), output("b", 32), grid=3)
    stray, stop = report.findings
    assert stray.element == "a[32] of 32 elements"
    assert (stop.tool, stop.kind, stop.count) == ("memcheck", "trap", 2 * 3)
    assert at(stop) == (line(source, "trap"), place(0, 30))
    assert report.coverage.blocks_emulated == 0
    assert report.verification.status == "skipped"
    asserting = source.replace("if (threadIdx.x > 29) __trap()", "assert(threadIdx.x < 30)")
    stray, stop = run(asserting, floats("a", 32), output("b", 32), grid=3).findings
    assert (stop.kind, stop.count, stop.at.line) == ("trap", 2 * 3, line(source, "trap"))
    assert "assertion" in stop.message


def test_findings_are_sorted_by_tool() -> None:
    source = """k(const float* a, float* b) {
  __shared__ float s[32];
  int t = threadIdx.x;
  s[t] = a[t + 1];
  b[t] = s[31 - t];
  if (t < 8) __syncthreads();
}"""
    found = run(source, floats("a", 32), output("b", 33)).findings
    assert [finding.tool for finding in found] == list(TOOLS)
