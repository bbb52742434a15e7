"""Launches that a file's own host code tells: run, listed, written down and given symbols."""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import memlab
from memlab.cli.app import main
from memlab.device.datasheets.loader import load_datasheet
from memlab.errors import UsageError
from memlab.kernels.user import project
from memlab.kernels.user.kernel import UserKernel
from memlab.launching import with_file_launch

ONE = """\
#include <cstdlib>
#define BLOCK 128
__global__ void saxpy(float* y, const float* x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
int main(int argc, char** argv) {
  int n = argc > 1 ? atoi(argv[1]) : 5000;
  size_t bytes = n * sizeof(float);
  float *h = (float*)malloc(bytes), *x, *y;
  cudaMalloc(&x, bytes);
  cudaMalloc(&y, bytes);
  cudaMemcpy(x, h, bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(y, h, bytes, cudaMemcpyHostToDevice);
  saxpy<<<(n + BLOCK - 1) / BLOCK, BLOCK>>>(y, x, 2.0f, n);
  cudaMemcpy(h, y, bytes, cudaMemcpyDeviceToHost);
  cudaFree(x);
}
"""

SEVERAL = """\
__constant__ float weight[4];
template <typename T, int B> __global__ void fill(T* y, int n) {
  int i = blockIdx.x * B + threadIdx.x;
  if (i < n) y[i] = T(weight[0]);
}
__global__ void copy(float* y, float* x) { extern __shared__ float s[];
  s[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x]; __syncthreads();
  y[blockIdx.x * blockDim.x + threadIdx.x] = s[threadIdx.x]; }
__global__ void unknown(float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = n; }
__global__ void never(float* y) { y[threadIdx.x] = 1; }
int main(int argc, char** argv) {
  float *a, *b, *h = new float[1024];
  cudaMalloc(&a, 4096);
  cudaMalloc(&b, 4096);
  cudaMemcpyToSymbol(weight, h, 16);
  fill<float, 64><<<16, 64>>>(a, 1024);
  fill<double, 64><<<8, 64>>>((double*)b, 512);
  copy<<<4, 256, 256 * sizeof(float)>>>(b, a);
  int n = atoi(argv[1]);
  cudaMalloc(&a, n * sizeof(float));
  cudaMemset(a, 0, n * sizeof(float));
  unknown<<<1, n>>>(a, n);
  cudaMemcpy(h, b, 4096, cudaMemcpyDeviceToHost);
}
"""

LARGE = """\
__global__ void large(float* y) { y[threadIdx.x] = 1; }
__global__ void small(float* y) { y[threadIdx.x] = 2; }
int main() {
  float *y;
  cudaMalloc(&y, 4096);
  large<<<1, 1024, 300 * 1024>>>(y);
  small<<<1, 1024>>>(y);
}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the files in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs.sqlite3"))
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    (tmp_path / "one.cu").write_text(ONE)
    (tmp_path / "several.cu").write_text(SEVERAL)
    return tmp_path


def test_the_only_launch_of_a_file_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "one.cu", "--json"]) == 0
    printed = capsys.readouterr()
    run = json.loads(printed.out)
    assert run["parameters"]["args"] == "inout:f32[5000] in:f32[5000] f32=2 i32=5000"
    assert (run["parameters"]["grid"], run["parameters"]["block"]) == ("40", "128")
    assert run["flop"] == 2 * 5000
    command = printed.err.removeprefix("memlab: line 15 launches it: memlab ").strip()
    assert command == (
        "run one.cu:saxpy --grid 40 --block 128 --arg 'inout:f32[5000]' --arg 'in:f32[5000]' "
        "--arg f32=2 --arg i32=5000"
    )

    assert main(["run", "one.cu", "--json", "--quiet", "--block", "64", "--grid", "79"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["parameters"]["block"] == "64"  # the command line's own
    assert printed.err == ""


def test_python_takes_the_launch_of_the_file_too() -> None:
    run = memlab.run("one.cu")
    assert run.recipe is not None
    assert run.recipe.kernel == "one.cu:saxpy"
    assert memlab.occupancy("one.cu").subject.parameters["block"] == "128"


def test_several_launches_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "several.cu"]) == 2
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "memlab run 'several.cu:fill<float, 64>'",
        "memlab run 'several.cu:fill<double, 64>'",
        "memlab run several.cu:copy",
        "memlab run several.cu:unknown",
    ]
    assert "name one, as in 'several.cu:fill<float, 64>', or run all with " in printed.err
    assert "'memlab run several.cu --all'" in printed.err
    with pytest.raises(UsageError, match="launches 4 kernels"):
        memlab.check("several.cu")


def test_a_template_takes_the_arguments_of_its_launch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "several.cu:fill", "--json"]) == 0
    run = json.loads(capsys.readouterr().out)
    assert run["kernel"] == "several.cu:fill<float, 64>"
    assert run["parameters"]["args"] == "out:f32[1024] i32=1024"
    assert run["parameters"]["constants"] == "weight=random"
    assert main(["run", "several.cu:fill<double,64>", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"]["args"].startswith("out:f64[512]")


def test_symbols_are_asked_for_and_taken(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "several.cu:unknown"]) == 2
    assert capsys.readouterr().err == (
        "memlab: error: several.cu:unknown: the launch in line 22 does not tell n: "
        "give --set n=1M, with your numbers\n"
    )
    assert main(["run", "several.cu:unknown", "--set", "n=96", "--json"]) == 0
    run = json.loads(capsys.readouterr().out)
    assert run["parameters"]["args"] == "inout:f32[96]=zeros i32=96"
    assert run["parameters"]["block"] == "96"


def test_all_kernels_whose_launches_are_told_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "several.cu", "--all"]) == 0
    printed = capsys.readouterr()
    assert [line for line in printed.out.splitlines() if line.startswith("several.cu:")] != []
    for kernel in ("fill<float, 64>", "fill<double, 64>", "several.cu:copy"):
        assert kernel in printed.out
    assert "several.cu:unknown" not in printed.out
    assert "left out several.cu:unknown (line 22): give --set n=1M" in printed.err
    assert main(["run", "tiled", "--all"]) == 2
    assert main(["run", "several.cu:copy", "--all"]) == 2


def test_all_kernels_make_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["several.cu:fill<float, 64>", "several.cu:fill<double, 64>", "several.cu:copy"]
    assert main(["run", "several.cu", "--all", "--json"]) == 0
    assert [run["kernel"] for run in json.loads(capsys.readouterr().out)] == names
    assert main(["run", "several.cu", "--all", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["kernel"] for row in rows] == names
    assert main(["run", "several.cu", "--all", "-o", "all.json"]) == 0
    assert [run["kernel"] for run in json.loads(Path("all.json").read_text("utf-8"))] == names
    capsys.readouterr()
    assert main(["run", "several.cu", "--all", "-o", "all.html"]) == 2
    assert capsys.readouterr().err.count("--all writes no page") == 1


def test_a_kernel_that_fails_is_left_out_of_the_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("large.cu").write_text(LARGE)
    assert main(["run", "large.cu", "--all", "--json"]) == 2
    printed = capsys.readouterr()
    assert [run["kernel"] for run in json.loads(printed.out)] == ["large.cu:small"]
    assert "large.cu:large: " in printed.err
    failed = ["run", "several.cu", "--all", "--json", "--fail-if", "registers_per_thread>0"]
    assert main(failed) == 1
    assert len(json.loads(capsys.readouterr().out)) == 3


def test_what_does_not_compile_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    Path("several.cu").write_text(SEVERAL.replace("y[threadIdx.x] = n", "y[threadIdx.x] = m"))
    assert main(["run", "several.cu", "--all"]) == 2
    assert capsys.readouterr().err.count('identifier "m" is undefined') == 1


def test_launches_that_the_program_does_not_make(capsys: pytest.CaptureFixture[str]) -> None:
    code = ONE.replace("  saxpy<<<", "  if (n < 10) other<<<1, n>>>(y, n);\n  saxpy<<<")
    Path("two.cu").write_text("__global__ void other(float* y, int n) { y[n] = 1; }\n" + code)
    assert main(["run", "two.cu", "--json"]) == 0  # saxpy is the only one that it makes
    printed = capsys.readouterr()
    assert json.loads(printed.out)["kernel"] == "two.cu:saxpy"
    assert main(["run", "two.cu", "--all"]) == 0
    left_out = "left out two.cu:other (line 16): the program does not come there without arguments"
    assert left_out in capsys.readouterr().err
    assert main(["init", "two.cu"]) == 0
    tables = Path("memlab.toml").read_text("utf-8").partition("[kernels.saxpy]")
    assert "does not come there" in tables[0]
    assert "does not come there" not in tables[2]


def test_a_kernel_that_is_not_launched_is_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "several.cu:never"]) == 2
    assert "several.cu:never takes 1 argument (float * y), and none are given" in (
        capsys.readouterr().err
    )


def test_init_writes_what_the_file_tells(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "several.cu"]) == 0
    text = Path("memlab.toml").read_text("utf-8")
    document = tomllib.loads(text)
    Draft202012Validator(project.schema()).validate(document)
    kernels = document["kernels"]
    assert set(kernels) == {"copy", "unknown", "never", "fill-float-64", "fill-double-64"}
    copy = kernels["copy"]
    assert (copy["grid"], copy["block"], copy["shared"]) == (4, 256, 1024)
    assert copy["args"] == ["inout:f32[1024]", "in:f32[1024]"]
    assert kernels["fill-float-64"]["entry"] == "fill<float, 64>"
    assert kernels["fill-float-64"]["constants"] == ["weight=random"]
    assert kernels["unknown"]["args"] == ["inout:f32[n]=zeros", "i32=n"]
    assert "# symbols = { n = 1024 }" in text
    assert "# The launch of several.cu, line 18." in text
    never = text.partition("[kernels.never]")[2]
    assert "a guess" in never.partition("[kernels.")[0]
    printed = capsys.readouterr().err
    assert printed == "memlab: wrote memlab.toml: correct the sizes, then 'memlab run copy'\n"

    assert main(["init", "one.cu"]) == 0
    printed = capsys.readouterr().err
    assert printed == (
        "memlab: added to memlab.toml: all sizes are the file's: 'memlab run saxpy'\n"
    )

    capsys.readouterr()
    assert main(["run", "copy", "--json"]) == 0
    assert main(["run", "unknown", "--set", "n=64", "--json"]) == 0
    tomllib.loads(text.replace("# symbols", "symbols"))  # as its comment says


DECIDED = """\
#include <cstdlib>
template <int B> __global__ void fill(float* y, int s) {
  for (int i = threadIdx.x; i < s; i += B) y[blockIdx.x * s + i] = B;
}
int main(int argc, char** argv) {
  int n = atoi(argv[1]), r = 1;
  while (r * r < n) r++;
  float* y;
  cudaMalloc(&y, r * (n / r) * sizeof(float));
  switch (n % 3) {
    case 0: fill<32><<<r, 32>>>(y, n / r); break;
    case 1: fill<64><<<r, 64>>>(y, n / r); break;
  }
}
"""


def test_given_symbols_decide_loops_and_templates(capsys: pytest.CaptureFixture[str]) -> None:
    Path("decided.cu").write_text(DECIDED)
    assert main(["run", "decided.cu:fill"]) == 2
    assert "does not tell" in capsys.readouterr().err
    assert main(["run", "decided.cu:fill", "--set", "n=100", "--json"]) == 0
    run = json.loads(capsys.readouterr().out)
    assert run["kernel"] == "decided.cu:fill<64>"  # 100 % 3 == 1
    assert run["parameters"]["grid"] == "10"  # 10 * 10 == 100
    assert run["parameters"]["args"] == "out:f32[100] i32=10"


CHOSEN = """\
template <int W> __global__ void scale(float* y, int width) {
  y[blockIdx.x * width + threadIdx.x] *= W;
}
void launch(float* y, int rows, int width) {
  cudaMalloc(&y, rows * width * sizeof(float));
  switch (width) {
    case 32: scale<32><<<rows, width>>>(y, 32); break;
    case 64: scale<64><<<rows, width>>>(y, 64); break;
  }
}
"""


def test_given_symbols_choose_among_launches_that_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("chosen.cu").write_text(CHOSEN)
    for width in (32, 64):
        words = ["--set", "rows=3", "--set", f"width={width}", "--json"]
        assert main(["run", "chosen.cu:scale", *words]) == 0
        printed = capsys.readouterr()
        run = json.loads(printed.out)
        assert run["kernel"] == f"chosen.cu:scale<{width}>"
        assert run["parameters"]["block"] == str(width)
        assert run["parameters"]["args"] == f"inout:f32[{3 * width}] i32={width}"
    words = ["--set", "rows=3", "--set", "width=32"]
    assert main(["run", "chosen.cu:scale<32>", *words]) == 0
    assert "--grid rows --block width" in capsys.readouterr().err  # where they decide nothing


def test_few_of_the_instantiations_that_are_not_made_are_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cases = "".join(f"else if (n == {i}) fill<{i}><<<1, 32>>>(y);" for i in range(1, 20))
    Path("many.cu").write_text(
        "template <int N> __global__ void fill(float* y) { y[threadIdx.x] = N; }\n"
        f"int main() {{ int n = 12; float* y; cudaMalloc(&y, 128); if (n < 1) return 1; {cases} }}"
    )
    assert main(["init", "many.cu", "-o", "many.toml"]) == 0
    entries = set(re.findall(r"fill<\d+>", Path("many.toml").read_text()))
    assert "fill<12>" in entries
    assert len(entries) == 5


def test_own_arguments_leave_only_the_symbols_of_the_grid(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("outer.cu").write_text(
        "__global__ void add(float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] += 1; }\n"
        "void outer(float* y, int blocks, int n) { add<<<blocks, 32>>>(y, n); }\n"
    )
    assert main(["run", "outer.cu:add", "--arg", "inout:f32[32]", "--arg", "32"]) == 2
    assert "does not tell blocks: give" in capsys.readouterr().err
    words = ["--grid", "2", "--arg", "inout:f32[32]", "--arg", "32", "--json"]
    assert main(["run", "outer.cu:add", *words]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"]["block"] == "32"


def test_the_compiled_kernel_tells_what_it_writes(capsys: pytest.CaptureFixture[str]) -> None:
    """A sum in place, whose input is never read back, and an array that is only read."""
    Path("sums.cu").write_text(
        "__global__ void sums(float* x, float* weight, float* y) {\n"
        "  x[threadIdx.x] += weight[threadIdx.x];\n"
        "  __syncthreads();\n"
        "  if (threadIdx.x == 0) *y = x[0] + x[1];\n"
        "}\n"
        "int main() {\n"
        "  float *x, *weight, *y, *h = new float[64];\n"
        "  cudaMalloc(&x, 256); cudaMalloc(&weight, 256); cudaMalloc(&y, 4);\n"
        "  cudaMemcpy(x, h, 256, cudaMemcpyHostToDevice);\n"
        "  cudaMemcpy(weight, h, 256, cudaMemcpyHostToDevice);\n"
        "  sums<<<1, 64>>>(x, weight, y);\n"
        "  cudaMemcpy(h, y, 4, cudaMemcpyDeviceToHost);\n"
        "}\n"
    )
    assert main(["run", "sums.cu", "--json"]) == 0
    run = json.loads(capsys.readouterr().out)
    assert run["parameters"]["args"] == "inout:f32[64] in:f32[64] out:f32[1]"


def test_the_grid_depends_on_the_chosen_device(tmp_path: Path) -> None:
    body = "int main() {\n  cudaDeviceProp p; cudaGetDeviceProperties(&p, 0); "
    code = ONE.replace("int main(int argc, char** argv) {\n", body)
    code = code.replace("argc > 1 ? atoi(argv[1]) : 5000", "p.sharedMemPerBlock + p.clockRate")
    code = code.replace("(n + BLOCK - 1) / BLOCK", "p.multiProcessorCount * (p.warpSize / 16)")
    (tmp_path / "k.cu").write_text(code)
    kernel = UserKernel(source=str(tmp_path / "k.cu"), entry="saxpy")
    for device, blocks, elements in (("h200", 264, 49152 + 1980000), ("l4", 116, 49152 + 2040000)):
        found = with_file_launch(kernel, load_datasheet(device))
        assert found.grid == (blocks,)
        assert found.args[-1] == f"i32={elements}"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("k<float, 128>", ((8,), (128,), "i32=1024")),  # neither argument is told
        ("k<float, 64>", ((4,), (64,), "i32=7")),  # as it is launched
        ("fixed<float, 32>", ((2,), (32,), "i32=5")),  # the type is not told
        ("fixed<float, 16>", None),  # it is launched with 32 only
    ],
)
def test_arguments_of_a_template_that_no_call_tells(
    entry: str, expected: tuple[object, ...] | None, tmp_path: Path
) -> None:
    (tmp_path / "k.cu").write_text(
        "template <class T, int B> __global__ void k(T* y, int n) { y[threadIdx.x] = n; }\n"
        "template <class T, int B> __global__ void fixed(T* y, int n) { y[threadIdx.x] = n; }\n"
        "template <class T, int B> void go(T* y) { k<T, B><<<8, B>>>(y, 8 * B); }\n"
        "template <class T> void also(T* y) { fixed<T, 32><<<2, 32>>>(y, 5); }\n"
        "void one(float* y) { k<float, 64><<<4, 64>>>(y, 7); }\n"
    )
    kernel = UserKernel(source=str(tmp_path / "k.cu"), entry=entry, symbols=("y_size=1024",))
    found = with_file_launch(kernel, load_datasheet("h200"), executed=False)
    launch = (found.grid, found.block, found.args[-1]) if found.grid else None
    assert launch == expected


LONG_LOOPS = "\n".join(
    f"for (int i{number} = 0; i{number} < 64; ++i{number}) count += work(i{number} * 3);"
    for number in range(70)
)
LONG = f"""\
__global__ void early(float* y, int n) {{ if (threadIdx.x < n) y[threadIdx.x] = 1; }}
__global__ void late(float* y, int n) {{ if (threadIdx.x < n) y[threadIdx.x] = 2; }}
int work(int b) {{ int s = 0; for (int j = 0; j < 50; ++j) s += b * j % 5; return s; }}
int main() {{
  float* y; int n = 256, count = 0;
  cudaMalloc(&y, n * sizeof(float));
  if (n > 5000) early<<<1, 256>>>(y, n);
  {LONG_LOOPS}
  early<<<2, 256>>>(y, n);
  late<<<1, 256>>>(y, n);
}}
"""
"""A program that is too long to follow to its last two launches."""


@pytest.mark.slow
def test_a_program_that_is_too_long_to_follow(capsys: pytest.CaptureFixture[str]) -> None:
    Path("long.cu").write_text(LONG)
    doubt = "memlab followed the program only for 100,000 steps and did not see it come there"

    assert main(["run", "long.cu:early"]) == 0
    printed = capsys.readouterr().err
    assert f"line 7 launches it, but {doubt}: memlab run long.cu:early --grid 1" in printed

    assert main(["run", "long.cu:late"]) == 2
    assert capsys.readouterr().err.strip() == (
        "memlab: error: long.cu:late: memlab followed the host code only for 100,000 steps and met "
        "no launch of it: give --grid, --block and one --arg for each argument, or let 'memlab "
        "init long.cu' write them into a file"
    )
    assert main(["run", "long.cu:late", "--grid=1", "--block=256", "--arg=f32[256]"]) == 2
    assert "memlab followed" not in capsys.readouterr().err

    assert main(["run", "long.cu", "--all"]) == 2
    printed = capsys.readouterr().err
    assert f"left out long.cu:early (line 7): {doubt}: name the kernel to run it" in printed
    assert "kernels that it launches later are left out; name them, as in long.cu:ENTRY" in printed

    assert main(["init", "long.cu"]) == 0
    table = Path("memlab.toml").read_text("utf-8").partition("[kernels.late]")[0]
    assert f"# M{doubt[1:]}: check that the sizes suit it." in table
