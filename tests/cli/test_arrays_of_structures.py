"""Arrays of structures: their layout against NumPy's, and what reaches the kernel and returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memlab
from memlab.cli.app import main
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.debug_info.kernel_lookup import signatures
from memlab.device.structure_arrays import padding_bytes, structure_type
from memlab.errors import UsageError

C_TYPES = {
    "int8": "signed char",
    "uint16": "unsigned short",
    "int32": "int",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
    "bool": "bool",
}

PARTICLES = """
struct Vec { float x, y; };
struct Body { int id; };
struct Particle : Body { Vec at[2]; double mass; bool fixed; };
__constant__ Particle model[2];
__constant__ float2 pairs[3];
__global__ void move(Particle* out, const Particle* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i].id = in[i].id + model[1].id;
  out[i].at[0] = in[i].at[1];
  out[i].at[1].x = in[i].at[0].y * 2 + pairs[2].y;
#ifndef FORGET
  out[i].at[1].y = 1;
#endif
  out[i].mass = in[i].mass + model[0].mass;
  out[i].fixed = !in[i].fixed;
}
union Either { float f; int i; };
struct Node { Either value; Node* next; };
struct Flags { int a : 3; int b; };
struct Hidden : Body { float id; };
__global__ void others(Node* node, Flags* flags, Hidden* hidden, void* any, float* x) {
  x[0] = node->value.f + flags->b + hidden->id;
}
"""
VEC = np.dtype([("x", "f4"), ("y", "f4")])
PARTICLE = np.dtype([("id", "i4"), ("at", VEC, 2), ("mass", "f8"), ("fixed", "?")])
ALIGNED = np.dtype(
    {
        "names": ["id", "at", "mass", "fixed"],
        "formats": ["i4", (VEC, 2), "f8", "?"],
        "offsets": [0, 4, 24, 32],
        "itemsize": 40,
    }
)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file with the kernels, in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("p.cu").write_text(PARTICLES)
    return "p.cu:move"


def particles(count: int) -> Any:
    """Particles with random members."""
    generator, made = np.random.default_rng(5), np.zeros(count, PARTICLE)
    made["id"] = generator.integers(-9, 9, count)
    made["at"]["x"], made["at"]["y"] = generator.random((2, count, 2))
    made["mass"], made["fixed"] = generator.random(count), generator.random(count) < 0.5
    return made


def moved(out: Any, given: Any, n: int) -> Any:
    """The result of `move` without constants, of NumPy."""
    result = given.copy()
    result["at"][:, 0] = given["at"][:, 1]
    result["at"]["x"][:, 1] = given["at"]["y"][:, 0] * np.float32(2)
    result["at"]["y"][:, 1] = 1
    result["fixed"] = ~given["fixed"]
    return result


def test_a_range_for_all_members_suits_their_types(source: str) -> None:
    Path("r.cu").write_text(
        "struct Item { float x; int i; unsigned u; double d; };"
        "__global__ void copy(Item* out, const Item* in) { out[threadIdx.x] = in[threadIdx.x]; }"
    )

    def filled(fill: str) -> Any:
        args = ["out:struct[256]", f"struct[256]={fill}"]
        return memlab.run("r.cu:copy", grid=1, block=256, args=args).outputs["out"]

    of = filled("uniform:0.5:3")
    assert set(of["i"]) == set(of["u"]) == {1, 2}
    assert ((of["x"] >= 0.5) & (of["x"] < 3)).all()
    assert len(set(of["d"])) == 256
    of = filled("randint:2:5")
    assert set(of["i"]) == set(of["u"]) == {2, 3, 4}
    assert ((of["d"] >= 2) & (of["d"] < 5)).all()
    assert len(set(of["d"])) == 256


def structures(depth: int = 2) -> st.SearchStrategy[np.dtype[Any]]:
    """Random structures of numbers, arrays and structures, laid out as C does."""
    numbers = st.sampled_from(sorted(C_TYPES)).map(np.dtype)
    member = numbers if depth == 0 else st.one_of(numbers, structures(depth - 1))
    shapes = st.sampled_from([(), (), (3,), (2, 2)])
    return st.lists(st.tuples(member, shapes), min_size=1, max_size=5).map(
        lambda members: np.dtype([(f"m{i}", *each) for i, each in enumerate(members)], align=True)
    )


def declared(dtype: np.dtype[Any], name: str) -> str:
    """The declaration of a structure in C++, after those of its members."""
    before, members = "", []
    for field in dtype.names or ():
        inner, extents = dtype[field].base, dtype[field].shape
        kind = C_TYPES.get(inner.name, f"{name}_{field}")
        before += "" if inner.names is None else declared(inner, kind)
        members.append(f"{kind} {field}{''.join(f'[{extent}]' for extent in extents)};")
    return f"{before}struct {name} {{ {' '.join(members)} }};\n"


@settings(max_examples=15)
@given(structures())
def test_the_layout_is_that_of_c(dtype: np.dtype[Any]) -> None:
    text = declared(dtype, "S") + (
        "__global__ void k(S* out, const S* in) { out[threadIdx.x] = in[threadIdx.x]; }"
    )
    (signature,) = signatures(TranslationUnit(text, "s.cu", (9, 0)))
    for parameter in signature.parameters:
        assert parameter.structure is not None
        assert structure_type(parameter.structure) == dtype
        assert parameter.structure.nbytes == parameter.element_bytes == dtype.itemsize


def test_padding_is_what_no_member_covers(source: str) -> None:
    move = next(each for each in memlab_signatures() if each.name == "move")
    structure = move.parameters[0].structure
    assert structure is not None
    assert structure_type(structure) == ALIGNED
    assert np.flatnonzero(padding_bytes(structure)).tolist() == [20, 21, 22, 23, *range(33, 40)]


def memlab_signatures() -> tuple[Any, ...]:
    """The signatures of the kernels in the file."""
    return signatures(TranslationUnit(PARTICLES, "p.cu", (9, 0)))


@pytest.mark.parametrize("dtype", [PARTICLE, ALIGNED])
def test_arrays_from_python_are_verified_by_member(source: str, dtype: np.dtype[Any]) -> None:
    given = particles(70).astype(dtype)
    args = [memlab.out(70, dtype), given, 70]
    constants = ["model=zeros", "pairs=zeros"]
    run = memlab.run(source, grid=3, block=32, args=args, constants=constants, reference=moved)
    check = run.measurement.verification
    assert (check.status, check.checked, check.total) == ("passed", 7 * 70, 7 * 70)
    output = run.outputs["out"]
    assert output.dtype == ALIGNED
    expected = moved(None, given, 70)
    for name in ("id", "mass", "fixed"):
        assert np.array_equal(output[name], expected[name])
    assert np.array_equal(output["at"]["x"], expected["at"]["x"])

    wrong = expected.copy()
    wrong["at"]["x"][61, 1] += 3
    wrong["mass"][3] *= 1 + 1e-8  # rounding explains it in float32, but not in float64
    run = memlab.run(
        source, grid=3, block=32, args=args, constants=constants, expect={"out": wrong}
    )
    check = run.measurement.verification
    assert (check.status, check.wrong) == ("failed", 2)
    assert check.worst.startswith("out[61].at[1].x is ")

    wrong["at"]["x"][61, 1] -= 3
    run = memlab.run(
        source, grid=3, block=32, args=args, constants=constants, expect={"out": wrong}
    )
    check = run.measurement.verification
    assert (check.status, check.wrong, check.tolerance) == ("failed", 1, 1e-10)
    assert check.worst.startswith("out[3].mass is ")


def test_inout_arrays_files_and_constants_by_member(source: str) -> None:
    np.save("in.npy", particles(64).reshape(8, 8))
    model = np.zeros(2, ALIGNED)
    model["id"][1], model["mass"][0] = 100, 0.5
    np.save("model.npy", model)
    pairs = np.zeros(3, VEC)
    pairs["y"][2] = 7
    np.save("pairs.npy", pairs)
    run = memlab.run(
        source,
        grid=2,
        block=32,
        args=["inout:struct[8,8]=5,5,5,5,1", "struct[]=@in.npy", 64],
        constants=["model=@model.npy", "pairs=@pairs.npy"],
    )
    given, output = np.load("in.npy"), run.outputs["out"]
    assert output.shape == (8, 8)
    assert np.array_equal(output["id"], given["id"] + 100)
    assert np.array_equal(output["mass"], given["mass"] + 0.5)
    assert np.array_equal(
        output["at"]["x"][..., 1], given["at"]["y"][..., 0] * np.float32(2) + np.float32(7)
    )


def test_fills_are_one_for_all_or_one_for_each_number(source: str) -> None:
    def received(fill: str, **options: Any) -> Any:
        got: list[Any] = []

        def reference(out: Any, given: Any, n: int) -> Any:
            got.append(given)
            return moved(out, given, n)

        run = memlab.run(
            source,
            grid=2,
            block=32,
            args=["out:struct[N]", f"struct[N]{fill}", "N"],
            symbols={"N": 64, **options},
            constants=["model=zeros,0,0,0,0", "pairs=zeros"],
            reference=reference,
        )
        assert run.measurement.verification.status == "passed"
        return got[0]

    drawn = received("")
    assert np.unique(drawn["id"]).size == 64
    assert np.abs(drawn["id"].astype(np.int64)).max() > 1 << 29
    assert 0 <= drawn["at"]["x"].min() < 0.1
    assert 0.9 < drawn["at"]["x"].max() < 1
    assert np.unique(drawn["at"]["x"]).size > 100
    assert set(drawn["fixed"]) == {False, True}
    ones = received("=ones")
    assert ones["id"].tolist() == [1] * 64
    assert (ones["at"]["y"] == 1).all()
    assert ones["fixed"].all()
    each = received("=arange,uniform:-S:S,random,S/2,zeros", S=9)
    assert each["id"].tolist() == list(range(64))
    assert -9 < each["at"]["x"].min() < -6
    assert (each["mass"] == 4.5).all()
    assert not each["fixed"].any()


def test_elements_that_are_not_written_are_found_but_no_padding(source: str) -> None:
    options: dict[str, Any] = {
        "grid": 2,
        "block": 32,
        "args": ["out:struct[64]", "struct[64]", 64],
        "constants": ["model=zeros", "pairs=zeros"],
    }
    assert not memlab.check(source, **options).findings
    (finding,) = memlab.check(source, **options, defines={"FORGET": "1"}).findings
    assert (finding.kind, finding.element) == ("never written", "out[0] and 63 more of 64 elements")
    run = memlab.run(source, **options, defines={"FORGET": "1"}, reference=moved)
    assert run.measurement.verification.status == "failed"


def test_accesses_are_named_by_member(source: str) -> None:
    trace = memlab.trace(
        source,
        grid=1,
        block=32,
        args=["out:struct[32]", "struct[32]", 32],
        constants=["model=zeros", "pairs=zeros"],
    )
    named = {access.element.name for access in trace.followed.accesses}
    assert {"in[0].at[1].x", "in[0].mass", "out[0].fixed"} <= named


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("struct[64]=random,ones", "has 2 fills for 5 members (id, at.x, at.y, mass, fixed)"),
        ("struct[64]=uniform:0.2:0.8", "id (i32): uniform does not fill i32 elements"),
        ("struct[64]=ones,@x.npy,1,1,1", "at.x cannot be read from a file of its own"),
        ("in:struct", "'in:struct' has no dimensions: write in:struct[N]"),
        ("struct[9]=@p.npy", "p.npy holds 8 elements, and 9 structures are needed"),
        ("struct[]=@x.npy", "x.npy holds float32, and structures of id int32, at.x float32[2]"),
        (particles(8)[["mass", "id"]], "the array for in holds structures of mass float64"),
    ],
)
def test_refusals(source: str, argument: Any, message: str) -> None:
    np.save("p.npy", particles(8))
    np.save("x.npy", np.zeros(8, np.float32))
    with pytest.raises(UsageError) as caught:
        memlab.run(
            source,
            grid=1,
            block=8,
            args=["out:struct[8]", argument, 8],
            constants=["model=zeros", "pairs=zeros"],
        )
    assert message in str(caught.value)


def test_members_in_another_order_are_refused(source: str) -> None:
    reordered = np.zeros(
        8, [("id", "i4"), ("at", [("y", "f4"), ("x", "f4")], 2), ("mass", "f8"), ("fixed", "?")]
    )
    with pytest.raises(UsageError, match="the array for in holds"):
        memlab.run(source, grid=1, block=8, args=["out:struct[8]", reordered, 8])


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (0, "(node, Node *) points to no structures whose members are all numbers or pointers"),
        (1, "(flags, Flags *) points to no structures whose members are all numbers or pointers"),
        (2, "u8[4,8], their bytes"),
        (3, "(any, void *) points to no structures whose members are all numbers or pointers"),
        (4, "(x, float *) points to f32, got 'struct[4]': write in:f32[4]"),
    ],
)
def test_what_is_no_structure_of_numbers_is_refused(
    source: str, number: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["null"] * 5
    given[number] = "struct[4]"
    words = [word for text in given for word in ("--arg", text)]
    assert main(["run", "p.cu:others", "--grid", "1", "--block", "1", *words]) == 2
    assert message in capsys.readouterr().err


ONE_BY_ONE = """
struct Node { int left, right; float v; };
struct Big { short a[2]; Node n; double d; unsigned char flags[3]; bool on; };
__global__ void weigh(const Big* t, double* out) {
  const Big& b = t[threadIdx.x];
  out[threadIdx.x] = b.a[0] + 2 * b.a[1] + 4 * b.n.left + 8 * b.n.right + 16 * b.n.v + 32 * b.d
    + 64 * b.flags[0] + 128 * b.flags[2] + 256 * b.on;
}
"""


def test_structures_of_numbers_are_given_one_by_one() -> None:
    texts = "(1,2,3,-4,0.5,2.5,7,8,9,1),(0,0,0,0,0,0,0,5,0,0)"
    run = memlab.run(
        memlab.source(ONE_BY_ONE),
        grid=1,
        block=2,
        args=[f"struct[2]={texts}", "out:f64[2]"],
        device="h200",
    )
    weighed = 1 + 2 * 2 + 4 * 3 - 8 * 4 + 16 * 0.5 + 32 * 2.5 + 64 * 7 + 128 * 9 + 256
    assert run.outputs["out"].tolist() == [weighed, 0]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("(1,2)", r"\[0\] is a structure of 10 numbers, got '\(1,2\)'"),
        ("(1,2,3,4,1,1,1,1,1,0.5),(1,2)", r"\[0\].on: '0.5' is not of type bool"),
        ("(1,2,3.5,4,1,1,1,1,1,1)", r"\[0\].n.left: '3.5' is not of type i32"),
    ],
)
def test_a_structure_that_does_not_suit_its_members_is_refused(texts: str, message: str) -> None:
    args = [f"struct[2]={texts}", "out:f64[2]"]
    with pytest.raises(UsageError, match=message):
        memlab.run(memlab.source(ONE_BY_ONE), grid=1, block=2, args=args, device="h200")
