"""Arrays of pointers and of structures with pointers, compared with NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memlab
from memlab.errors import UsageError

SOURCE = """
__global__ void scale(float** y, const float* const* x, int n) {
  int b = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[b][i] = 2.0f * x[b][i];
}

struct Row { float weights[2]; double* data; int n; const float* bias[2]; };

__global__ void rows(Row* r) {
  Row row = r[blockIdx.x];
  int i = threadIdx.x;
  if (i < row.n) {
    row.data[i] = row.weights[0] * row.bias[0][i] + row.weights[1] * row.bias[1][i];
  }
  if (i == 0) r[blockIdx.x].n = -row.n;
}

struct Batch { float* const* y; int n; };

__global__ void batch(Batch b) { if (threadIdx.x < b.n) b.y[blockIdx.x][threadIdx.x] += 1.0f; }

struct Node { Node* next; float value; };

__global__ void list(const Node* head, float* sum) {
  float total = 0;
  for (const Node* at = head; at; at = at->next) total += at->value;
  *sum = total;
}

__global__ void plain(float* y) { y[threadIdx.x] = 0; }
"""

RNG = np.random.default_rng(5)
X = [RNG.random(48, np.float32), RNG.random(64, np.float32)]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("pointers") / "p.cu"
    path.write_text(SOURCE)
    return str(path)


def scale(file: str, y: Any, x: Any, **options: Any) -> Any:
    return memlab.run(f"{file}:scale", grid=(1, 2), block=64, args=[y, x, 48], **options)


def test_a_list_of_arrays_is_passed_as_an_array_of_pointers(file: str) -> None:
    run = scale(file, [memlab.out(48, "f32"), "out:f32[48]"], X)

    assert list(run.outputs) == ["y[0]", "y[1]"]
    for number, x in enumerate(X):
        np.testing.assert_array_equal(run.outputs[f"y[{number}]"], 2 * x[:48])


def test_words_give_an_array_for_each_pointer_or_one_for_all(file: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X[1])
    words = f"ptr[2]=(f32[N]=arange),f32[]=@{tmp_path}/x.npy"

    run = scale(file, "ptr[2]=out:f32[N-1]", words, symbols={"N": 49})

    np.testing.assert_array_equal(run.outputs["y[0]"], 2 * np.arange(48))
    np.testing.assert_array_equal(run.outputs["y[1]"], 2 * X[1][:48])


def test_pointers_are_null_or_the_array_of_another(file: str) -> None:
    run = scale(file, "ptr[2]=inout:f32[48]=zeros,@y[0]", ["@x[1]", X[0]])

    np.testing.assert_array_equal(run.outputs["y[0]"], 2 * X[0])
    with pytest.raises(memlab.MemlabError, match="a null pointer"):
        scale(file, "ptr[2]=out:f32[48],null", X)


def returns(y: Any, x: Any, n: int) -> Any:
    return [2 * each[:n] for each in x]


def overwrites(y: Any, x: Any, n: int) -> None:
    for target, each in zip(y, x, strict=True):
        target[:] = 2 * each[:n]


def names(y: Any, x: Any, n: int) -> Any:
    return {"y[1]": 2 * x[1][:n], "y": [2 * x[0][:n], None]} if n < 0 else {"y": returns(y, x, n)}


@pytest.mark.parametrize("reference", [returns, overwrites, names])
def test_references_take_and_give_lists(file: str, reference: Any) -> None:
    run = scale(file, "ptr[2]=out:f32[48]", X, reference=reference)

    assert run.measurement.verification.status == "passed"
    assert run.measurement.verification.checked == 96


def test_a_wrong_array_is_named(file: str) -> None:
    def wrong(y: Any, x: Any, n: int) -> Any:
        return [2 * x[0][:n], np.where(np.arange(n) == 7, -1, 2 * x[1][:n])]

    found = scale(file, "ptr[2]=out:f32[48]", X, reference=wrong).measurement.verification

    assert (found.status, found.wrong) == ("failed", 1)
    assert found.worst.startswith("y[1][7] is ")
    with pytest.raises(UsageError, match=r"returned 1 arrays for y, whose outputs are y\[0\], y"):
        scale(file, "ptr[2]=out:f32[48]", X, reference=lambda y, x, n: [x[0]])


def test_expected_outputs_are_named_by_pointer(file: str) -> None:
    run = scale(file, "ptr[2]=out:f32[48]", X, expect={"y[1]": 2 * X[1][:48]})

    assert (run.measurement.verification.status, run.measurement.verification.checked) == (
        "passed",
        48,
    )
    assert run.measurement.verification.unverified == "y[0]"


def test_a_check_names_the_array_behind_a_pointer(file: str) -> None:
    report = memlab.check(
        f"{file}:scale", grid=(1, 2), block=64, args=["ptr[2]=out:f32[48],out:f32[40]", X, 48]
    )

    assert [finding.element for finding in report.findings] == ["y[1][40] of 40 elements"]


def test_structures_with_pointers_are_given_by_member(file: str) -> None:
    words = "inout:struct[3]=arange,inout:f64[8]=zeros,5,f32[8]=arange"

    run = memlab.run(f"{file}:rows", grid=3, block=32, args=[words])

    for number in range(3):
        weights = 2.0 * number, 2.0 * number + 1
        expected = np.where(np.arange(8) < 5, sum(weights) * np.arange(8), 0)
        np.testing.assert_array_equal(run.outputs[f"r[{number}].data"], expected)
    assert run.outputs["r"]["n"].tolist() == [-5, -5, -5]


def test_structures_with_pointers_are_given_one_by_one(file: str) -> None:
    rows = [
        ((1.0, 0.5), memlab.inout(np.zeros(4)), 4, (X[0], X[1])),
        ((2.0, 0.0), memlab.inout(np.zeros(6)), 3, (X[1], "@r[0].bias[0]")),
    ]

    def reference(given: list[tuple[Any, ...]]) -> Any:
        numbers = []
        for first, second, data, n, *bias in given:
            data[:n] = first * bias[0][:n] + second * bias[1][:n]
            numbers.append(-n)
        return {"r[0].data": given[0][2], "r[1].data": given[1][2]}

    run = memlab.run(
        f"{file}:rows", grid=2, block=32, args=[memlab.inout(rows)], reference=reference
    )

    assert run.measurement.verification.status == "passed"
    expected = X[0][:4].astype(float) + 0.5 * X[1][:4]
    np.testing.assert_allclose(run.outputs["r[0].data"], expected, rtol=1e-6)
    assert run.outputs["r[1].data"][3:].tolist() == [0, 0, 0]
    assert run.outputs["r"]["n"].tolist() == [-4, -3]


def test_a_structure_holds_a_pointer_to_pointers(file: str) -> None:
    run = memlab.run(
        f"{file}:batch", grid=2, block=32, args=["struct=ptr[2]=(inout:f32[20]=arange),20"]
    )

    assert list(run.outputs) == ["b.y[0]", "b.y[1]"]
    np.testing.assert_array_equal(run.outputs["b.y[1]"], np.arange(20) + 1)


def test_nodes_of_a_list_point_to_nodes(file: str) -> None:
    words = "struct[1]=((struct[1]=((struct[1]=(null,4)),2)),1)"

    run = memlab.run(f"{file}:list", grid=1, block=1, args=[words, "out:f32[1]"])

    assert run.outputs["sum"].tolist() == [7]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("f32[64]", "points to pointers, got 'f32[64]': write ptr[N]=inout:f32[N]"),
        ("5", "takes an array, got '5': write ptr[N]=inout:f32[N], or null"),
        ("ptr[2]", "names no arrays: write ptr[2]=in:f32[64],in:f32[32]"),
        ("ptr", "has no dimensions: write ptr[2]="),
        ("ptr[2]=f32[4],,f32[4]", "names no arrays"),
        ("ptr[3]=f32[4],f32[4]", "has 3 pointers, got 'ptr[3]=f32[4],f32[4]' with 2 arrays"),
        ("ptr[0]=f32[4]", "invalid dimensions"),
        ("ptr[5000]=f32[4]", "has 5000 pointers, got 'ptr[5000]=f32[4]', and memlab gives memory"),
        (
            "ptr[2]=f32[4],i32[4]",
            "argument 0 (y, float **)[1] (float *) points to f32, got 'i32[4]'",
        ),
        ("ptr[2]=f32[4],7", "[1] (float *) takes an array, got '7'"),
        ("ptr[2]=f32[4],@z", "y[1] is @z, and no array argument has this name"),
        ("ptr[2]=f32[4],f33[4]", "[1] (float *): 'f33[4]' has the unknown type 'f33'"),
        ("out:ptr[2]=f32[4]", "a kernel reads the pointers of an array: write ptr[...], and out:"),
        ("struct[2]=f32[4]", "points to pointers, got 'struct[2]=f32[4]': write ptr["),
        ([], "a list holds arrays, for a pointer to pointers, tuples"),
        ([1.0], "got one of float: give numbers as numpy.array(list)"),
        ([X[0], (1, 2)], "got one of ndarray and tuple"),
    ],
)
def test_a_wrong_array_of_pointers_is_one_line(file: str, words: Any, said: str) -> None:
    with pytest.raises(UsageError) as error:
        scale(file, words, X)

    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("struct[2]", "has structures with pointers, got 'struct[2]': write struct[2]="),
        ("struct[2]=1,f64[4]", "a fill or an array for each member (weights, data, n, bias)"),
        ("struct[2]=@x.npy", "a fill or an array for each member"),
        ("struct[2]=(1,2,null,3,null,null),(1,2)", "[1] is a structure of 6 values, got '(1,2)'"),
        ("struct[3]=(1,2,null,3,null,null),(1,2)", "has 3 structures, got"),
        ("struct[2]=1,f32[4],3,null", "[0].data (double *) points to f64, got 'f32[4]'"),
        ("struct[2]=1,null,0.5,null", "argument 0 (r, Row *): n (i32): '0.5' is not of type i32"),
        ("ptr[2]=f32[4]", "points to structures, got 'ptr[2]=f32[4]': write struct[N]="),
        ("struct[2000]=1,f64[4],3,null", "has 6000 pointers"),
    ],
)
def test_wrong_structures_with_pointers_are_one_line(file: str, words: Any, said: str) -> None:
    with pytest.raises(UsageError) as error:
        memlab.run(f"{file}:rows", grid=2, block=32, args=[words])

    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_pointer_to_numbers_takes_no_array_of_pointers(file: str) -> None:
    with pytest.raises(UsageError, match=r"points to f32, got 'ptr\[2\]=.*write inout:f32"):
        memlab.run(f"{file}:plain", grid=1, block=32, args=["ptr[2]=f32[4]"])
