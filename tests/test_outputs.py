"""The arrays that a user kernel wrote, in Python and by `--save`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import memlab
from memlab.cli.app import main
from memlab.roofline.documents.runs import run_document, run_from_document
from memlab.roofline.run import Run

SOURCE = """\
extern "C" __global__ void axpy(float a, const float *x, float *y, int *sum, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n - 1) y[i] = a * x[i] + y[i];
  if (SUM && i == 0) sum[0] = 7;
  if (SUM && i > 0) atomicAdd(sum + 1, 1);
}
"""
MANY = 1 << 24
"""Elements, of whose blocks the emulator executes a sample."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "axpy.cu").write_text(SOURCE)
    return tmp_path


def launch(n: int, sum_up: int, device: str | int = "a100") -> Run:
    arrays = [np.arange(n, dtype="f4"), memlab.inout(np.ones(n, "f4")), memlab.out(2, "i4")]
    return memlab.run(
        "axpy.cu:axpy",
        grid=-(-n // 256),
        block=256,
        args=[2.0, *arrays, n],
        defines={"SUM": sum_up},
        device=device,
    )


def test_outputs_are_the_arrays_that_the_kernel_wrote() -> None:
    outputs = launch(1000, sum_up=1).outputs
    expected = 2 * np.arange(1000, dtype="f4") + 1
    expected[-1] = 1  # the kernel leaves the last element as it was
    np.testing.assert_array_equal(outputs["y"], expected, strict=True)
    assert not np.ma.isMaskedArray(outputs["y"])
    assert outputs["sum"][0] == 7
    assert outputs["sum"].dtype == np.int32
    assert list(outputs) == ["y", "sum"]
    assert "x" not in outputs


def test_a_sample_of_the_blocks_masks_what_it_did_not_write() -> None:
    run = launch(MANY, sum_up=0)
    assert run.measurement.coverage.blocks_emulated < MANY // 256
    y = run.outputs["y"]
    assert 0 < y.count() <= run.measurement.coverage.blocks_emulated * 256
    assert y[0] == 1
    written = np.flatnonzero(~y.mask)
    np.testing.assert_array_equal(y.data[written], 2 * np.arange(MANY, dtype="f4")[written] + 1)


def test_sums_of_a_sample_are_refused() -> None:
    with pytest.raises(memlab.UsageError, match="atomics, and not all of them ran"):
        launch(MANY, sum_up=1).outputs["sum"]


@pytest.mark.gpu
def test_a_gpu_writes_all_outputs_also_where_a_sample_is_emulated() -> None:
    run = launch(MANY, sum_up=1, device=0)
    assert run.measurement.coverage.blocks_emulated < MANY // 256
    expected = 2 * np.arange(MANY, dtype="f4") + 1
    expected[-1] = 1
    np.testing.assert_array_equal(run.outputs["y"], expected, strict=True)
    assert not np.ma.isMaskedArray(run.outputs["y"])
    assert run.outputs["sum"].tolist() == [7, MANY - 2]  # added to -1, which a new array holds
    assert list(run.outputs) == ["y", "sum"]


COPY = """\
#include <cuda_fp16.h>
template <class T> __global__ void copy(const T *x, T *y) { y[threadIdx.x] = x[threadIdx.x]; }
"""
TYPES = {
    "int8": "signed char",
    "uint16": "unsigned short",
    "int64": "long long",
    "float16": "__half",
    "float64": "double",
    "bool": "bool",
}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES)
def test_a_gpu_gives_back_each_type_in_its_shape(dtype: str) -> None:
    values = (np.arange(-48, 48) % 97).astype(dtype).reshape(8, 12)
    copy = memlab.source(COPY, f"copy<{TYPES[dtype]}>")
    given = [values, memlab.out((8, 12), dtype)]
    run = memlab.run(copy, grid=1, block=96, args=given, device=0, samples=5)
    np.testing.assert_array_equal(run.outputs["y"], values, strict=True)


def test_an_unknown_output_is_refused_with_the_known_ones() -> None:
    with pytest.raises(memlab.UsageError, match="no output 'x': known: sum, y"):
        launch(1000, sum_up=0).outputs["x"]


def test_documents_and_the_catalog_have_no_outputs() -> None:
    run = launch(1000, sum_up=0)
    again = run_from_document(run_document(run))
    assert again == run
    for other in (again, memlab.run("naive", width=8, device="a100")):
        assert list(other.outputs) == []
        with pytest.raises(memlab.UsageError, match="no store keeps them"):
            other.outputs["y"]


COMMAND = [
    "run",
    "axpy.cu:axpy",
    "--grid",
    "4",
    "--block",
    "256",
    "-D",
    "SUM=0",
    "--device",
    "a100",
    "--no-store",
]
ARGUMENTS = ["2.0", "f32[1000]=arange", "inout:f32[1000]=ones", "out:i32[2]", "1000"]


def command(*options: str) -> list[str]:
    return [*COMMAND, *(part for text in ARGUMENTS for part in ("--arg", text)), *options]


def test_save_writes_a_file_that_numpy_reads(folder: Path) -> None:
    assert main(command("--save", "y=y.npy")) == 0
    assert np.load(folder / "y.npy")[3] == 7
    assert main(command("--save", "y=y.npy")) == 2  # it exists
    assert main(command("--save", "y=y.npy", "--force")) == 0


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("y", "is not NAME=FILE.npy"),
        ("y=y.txt", "is not NAME=FILE.npy"),
        ("y=no/y.npy", "the folder no does not exist"),
        ("z=z.npy", "no output 'z'"),
    ],
)
def test_save_refuses_what_it_cannot_write(
    option: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command("--save", option)) == 2
    lines = capsys.readouterr().err.splitlines()
    assert message in lines[-1]


def test_save_refuses_a_sample(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    many = [text.replace("1000", str(MANY)) for text in ARGUMENTS]
    words = [*COMMAND, *(part for text in many for part in ("--arg", text))]
    words[words.index("4")] = str(MANY // 256)
    assert main([*words, "--save", "y=y.npy"]) == 2
    assert "use fewer blocks" in capsys.readouterr().err
    assert not (folder / "y.npy").exists()


def test_save_refuses_kernels_of_the_catalog(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "naive", "--width", "8", "--save", "c=c.npy"]) == 2
    assert "leave --save out" in capsys.readouterr().err
