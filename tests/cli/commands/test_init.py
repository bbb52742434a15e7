"""`memlab init`: what it writes runs at once, and it writes over nothing."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from paths import REPOSITORY

from memlab.cli.app import main
from memlab.kernels.user import kernel as user_kernel
from memlab.kernels.user import project
from memlab.launching import kernel_signatures

EXAMPLES = REPOSITORY / "docs" / "examples"

MANY = """\
struct Pair { int a; float b; };
__constant__ float table[8];
__global__ void by_value(Pair pair, dim3 size, float* y) { y[0] = pair.b; }
struct Row { float* values; int n; };
struct Callback { void (*call)(int); };
union Either { int a; float b; };
__global__ void by_pointer(Row row) { row.values[0] = row.n; }
__global__ void by_function(Callback callback, float* y) { y[0] = 1; }
__global__ void either(Either it, float* y) { y[0] = it.b; }
__global__ void transpose(const float* in, float* out, int rows, int columns) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < columns && y < rows) out[x * rows + y] = in[y * columns + x] * table[x % 8];
}
__global__ void cube(double* v, long long nx, long long ny, long long nz) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  for (int z = 0; x < nx && y < ny && z < nz; ++z) v[(z * ny + y) * nx + x] += 1;
}
__global__ void copy4(const float4* x, float4* y, void* scratch, bool wrap) {
  y[blockIdx.x * blockDim.x + threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
}
__global__ void gather(const float* x, const int* from, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[from[i]];
}
__global__ void fill(float* y) { y[blockIdx.x * blockDim.x + threadIdx.x] = 1; }
__global__ void fill(double* y) { y[blockIdx.x * blockDim.x + threadIdx.x] = 1; }
template <int N> __global__ void tiled(float* y) { y[0] = N; }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with kernels in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs.sqlite3"))
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    shutil.copy(EXAMPLES / "saxpy.cu", tmp_path)
    (tmp_path / "many.cu").write_text(MANY)
    return tmp_path


def test_what_is_written_runs_at_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "saxpy.cu"]) == 0
    assert capsys.readouterr().err == (
        "memlab: wrote memlab.toml: correct the sizes, then 'memlab run saxpy'\n"
    )
    text = Path("memlab.toml").read_text("utf-8")
    assert text.startswith("#:schema ./memlab.schema.json\n")
    assert json.loads(Path("memlab.schema.json").read_text("utf-8")) == project.schema()
    assert tomllib.loads(text)["kernels"]["saxpy"]["args"] == [
        "f32=1",
        "in:f32[1048576]",
        "inout:f32[1048576]",
        "i32=1048576",
    ]

    assert main(["run", "saxpy", "--json"]) == 0
    run = json.loads(capsys.readouterr().out)
    assert (run["kernel"], run["flop"]) == ("saxpy", 2 * 2**20)


def test_every_kernel_of_a_file_is_written_and_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "many.cu"]) == 0
    assert "'memlab run by_value'" in capsys.readouterr().err  # the first that is written
    text = Path("memlab.toml").read_text("utf-8")
    document = tomllib.loads(text)
    Draft202012Validator(project.schema()).validate(document)

    # `transpose` is a kernel of the catalog too.
    assert set(document["kernels"]) == {
        "by_value",
        "by_pointer",
        "either",
        "my-transpose",
        "cube",
        "copy4",
        "gather",
        "fill",
        "fill-2",
    }
    assert "# by_function: callback (Callback) is a structure whose member call" in text
    assert document["kernels"]["by_pointer"]["args"] == ["struct=inout:f32[1048576],1048576"]
    assert document["kernels"]["either"]["args"][0] == "struct=1048576"
    assert document["kernels"]["by_value"]["args"][:2] == ["struct=32,1", "struct=32,32,32"]
    assert document["kernels"]["my-transpose"]["constants"] == ["table=random"]
    assert document["kernels"]["copy4"]["args"] == [
        "in:f32[1048576,4]",
        "inout:f32[1048576,4]",
        "inout:u8[1048576]",
        "bool=1",
    ]
    # As many axes as the kernel looks at, all of whose extents together are the elements.
    for name, grid, block in (
        ("my-transpose", [64, 64], [16, 16]),
        ("cube", [4, 4], [16, 16]),
        ("gather", 4096, 256),
    ):
        table = document["kernels"][name]
        assert (table["grid"], table["block"]) == (grid, block)
    for name in document["kernels"]:
        assert main(["analyze", name, "--json"]) == 0, capsys.readouterr().err


def test_blocks_are_those_that_kernels_are_declared_for(folder: Path) -> None:
    (folder / "bounded.cu").write_text("""
        __global__ void __launch_bounds__(96) line(float* y) {
          y[blockIdx.x * blockDim.x + threadIdx.x] = 1;
        }
        __global__ void __launch_bounds__(100) plane(float* y) { y[threadIdx.x + threadIdx.y] = 1; }
        __global__ void __launch_bounds__(5) small(float* y) { y[threadIdx.x + threadIdx.z] = 1; }
        __global__ void __block_size__((32, 2, 1)) sized(float* y) { y[threadIdx.x] = 1; }
    """)
    assert main(["init", "bounded.cu", "-q"]) == 0

    tables = tomllib.loads(Path("memlab.toml").read_text("utf-8"))["kernels"]
    blocks = {name: table["block"] for name, table in tables.items()}
    assert blocks == {"line": 96, "plane": [8, 8], "small": [2, 2, 1], "sized": [32, 2]}
    assert tables["line"]["grid"] * 96 <= 2**20, "no thread stands beyond the array"
    assert main(["analyze", "line", "--json"]) == 0


def test_a_template_and_how_it_is_compiled_are_kept(folder: Path) -> None:
    assert main(["init", "many.cu:tiled<32>", "-q", "-D", "A=1", "--std", "c++20"]) == 0

    (name,) = tomllib.loads(Path("memlab.toml").read_text("utf-8"))["kernels"]
    assert name == "tiled-32"
    assert main(["analyze", name, "--json"]) == 0


def test_init_neither_waits_for_special_files_nor_follows_links(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo("memlab.schema.json")
    assert main(["init", "saxpy.cu", "--overwrite"]) == 2
    assert "memlab.schema.json is no file" in capsys.readouterr().err
    Path("memlab.schema.json").unlink()

    for name in ("memlab.schema.json", "memlab.toml"):
        Path(name).symlink_to(folder.parent / "elsewhere")
        assert main(["init", "saxpy.cu"]) == 2
        assert f"{name} exists: add --overwrite" in capsys.readouterr().err
        Path(name).unlink()
    assert not (folder.parent / "elsewhere").exists()


def test_what_exists_stays_unless_forced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("memlab.toml").write_text("mine")
    assert main(["init", "saxpy.cu"]) == 2
    assert "memlab.toml exists, and no table can be added" in (message := capsys.readouterr().err)
    assert message.endswith("or add --overwrite to replace it\n")
    assert Path("memlab.toml").read_text() == "mine"

    assert main(["init", "saxpy.cu", "-o", "other.toml"]) == 0
    Path("memlab.schema.json").write_text("old")
    Path("other.toml").unlink()
    assert main(["init", "saxpy.cu", "-o", "other.toml"]) == 2
    assert not Path("other.toml").exists()
    assert main(["init", "saxpy.cu", "--overwrite"]) == 0
    assert set(project.read_user_kernels()) == {"saxpy"}
    assert json.loads(Path("memlab.schema.json").read_text("utf-8")) == project.schema()


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_tables_that_are_missing_are_added_and_nothing_else_is_touched(
    mark: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = (
        f"{mark}# mine\r\n[kernels.fill]\nsource = 'saxpy.cu'\r\n[kernels.mine]\n"
        "source = 'many.cu'\nentry = 'gather' # é"
    ).encode()
    Path("memlab.toml").write_bytes(first)
    Path("memlab.schema.json").write_text("another memlab's")

    assert main(["init", "many.cu"]) == 0
    assert capsys.readouterr().err == (
        "memlab: added to memlab.toml: correct the sizes, then 'memlab run by_value'\n"
    )
    second = Path("memlab.toml").read_bytes()
    assert second.startswith(first + b"\n\n")
    # `fill` is of another file; `gather` is there, by another name; the second `fill` is another.
    assert [*project.read_user_kernels()] == [
        *("fill", "mine", "by_value", "by_pointer", "either", "my-transpose", "cube"),
        *("copy4", "fill-2", "fill-3"),
    ]
    assert b"# by_function: callback (Callback) is a structure whose member call" in second
    assert main(["init", "many.cu:tiled<32>", "-q"]) == 0
    assert Path("memlab.toml").read_bytes().startswith(second + b"\n[kernels.tiled-32]")
    assert main(["analyze", "tiled-32", "--json"]) == 0
    assert Path("memlab.schema.json").read_text() == "another memlab's"
    capsys.readouterr()

    third = Path("memlab.toml").read_bytes()
    for words in (["many.cu:copy4"], ["many.cu"]):
        assert main(["init", *words]) == 2
        assert "memlab.toml has these kernels already, and they are kept" in capsys.readouterr().err
    assert Path("memlab.toml").read_bytes() == third


@pytest.mark.parametrize(
    ("source", "entry"),
    [
        ("./saxpy.cu", "saxpy"),
        ("link.cu", "saxpy"),
        ("saxpy.cu", "LINKAGE"),
        ("./saxpy.cu", ""),
    ],
)
@pytest.mark.parametrize("words", ["saxpy.cu", "saxpy.cu:saxpy", "saxpy.cu:LINKAGE"])
def test_a_kernel_is_known_however_its_table_names_it(
    source: str, entry: str, words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    linkage = kernel_signatures(user_kernel.UserKernel("saxpy.cu"))[0].linkage_name
    Path("link.cu").symlink_to("saxpy.cu")
    text = f"[kernels.mine]\nsource = '{source}'\nentry = '{entry.replace('LINKAGE', linkage)}'\n"
    Path("memlab.toml").write_text(text)

    # Also from another folder than the file's.
    (folder / "elsewhere").mkdir()
    os.chdir("elsewhere")
    target = "../" + words.replace("LINKAGE", linkage)
    assert main(["init", target, "-o", "../memlab.toml"]) == 2
    assert "has these kernels already" in capsys.readouterr().err
    assert (folder / "memlab.toml").read_text() == text


def test_what_no_table_can_follow_stays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "kernels = {mine = {source = 'many.cu'}}\n"
    Path("memlab.toml").write_text(text)

    assert main(["init", "saxpy.cu"]) == 2
    assert "in a form that no table can follow" in capsys.readouterr().err
    assert Path("memlab.toml").read_text() == text
    assert not Path("memlab.schema.json").exists()
    Path("memlab.toml").rename("real.toml")
    Path("memlab.toml").symlink_to("real.toml")  # leads who knows where: only with --overwrite
    assert main(["init", "saxpy.cu"]) == 2
    assert "memlab.toml exists: add --overwrite" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["inside", "before"])
def test_an_array_sized_at_launch_has_a_size(place: str, folder: Path) -> None:
    array = "extern __shared__ __align__(16) float staged[];"
    inside, before = (array, "") if place == "inside" else ("", array)
    (folder / "sized.cu").write_text(f"""{before}
        __global__ void reversed(const float* x, float* y) {{ {inside}
          staged[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
          __syncthreads();
          y[blockIdx.x * blockDim.x + threadIdx.x] = staged[blockDim.x - 1 - threadIdx.x];
        }}
    """)
    assert main(["init", "sized.cu", "-q"]) == 0
    assert "# shared" not in Path("memlab.toml").read_text()
    assert tomllib.loads(Path("memlab.toml").read_text())["kernels"]["reversed"]["shared"] >= 1024
    assert main(["check", "reversed", "-q"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tiled"], "'tiled' is no file of CUDA C++: name one, as in saxpy.cu:saxpy"),
        (["missing.cu"], "cannot read missing.cu"),
        (["saxpy.cu:saxpi"], "did you mean 'saxpy'?"),
        (["many.cu:by_function"], "by_function: callback (Callback) is a structure whose member"),
        (["saxpy.cu", "-o", "below/memlab.toml"], "saxpy.cu lies outside the folder below"),
        (["saxpy.cu", "-o", "missing/memlab.toml"], "the folder missing does not exist"),
        (["saxpy.cu", "--std", "c++3"], "std must be one of"),
    ],
)
def test_what_cannot_be_written_is_one_line(
    words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "below").mkdir()

    assert main(["init", *words]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert message in err
    assert err.count("\n") == 1
    assert not list(folder.rglob("*.toml"))


def test_textures_and_surfaces_that_the_file_does_not_tell_have_an_example(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("image.cu").write_text(
        "struct View { cudaTextureObject_t image; float gain; };\n"
        "__global__ void shade(cudaTextureObject_t in, cudaSurfaceObject_t out, View more) {\n"
        "  float x = tex2D<float>(in, 3, 4) + more.gain * tex2D<float>(more.image, 0, 0);\n"
        "  surf2Dwrite(x, out, 4 * threadIdx.x, 0);\n}\n"
    )
    assert main(["init", "image.cu"]) == 0
    args = tomllib.loads(Path("memlab.toml").read_text("utf-8"))["kernels"]["shade"]["args"]
    assert args == [
        "texture=f32[512,512]:linear:wrap:normalized",
        "surface=out:f32[512,512]",
        "struct=texture=f32[512,512]:linear:wrap:normalized,1",
    ]
    assert main(["run", "shade", "--grid=1", "--block=32", "-q"]) == 0
