"""Specifications of arguments and options: any text is read or refused, any written one read."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from fuzzing import NUMBERS, ODD, WORDS, cases
from hypothesis import given
from hypothesis import strategies as st

from memlab.device.inputs import argument_bytes, make_inputs
from memlab.device.references import output_references
from memlab.device.structure_arrays import element_type
from memlab.errors import MemlabError, UsageError
from memlab.kernels.kernel import Limits
from memlab.kernels.launch import (
    Arange,
    NpyFile,
    NullPointer,
    Scalar,
    SingleValue,
    Structure,
    Uniform,
)
from memlab.kernels.signature import KernelParameter, ModuleVariable, Signature, StructureMember
from memlab.kernels.user import kernel as user_kernel
from memlab.kernels.user import launch as user_launch
from memlab.kernels.user import symbols
from memlab.kernels.user.arguments import binding, parsing, specifications
from memlab.kernels.user.compiler_flags import SWITCHES
from memlab.kernels.user.kernel import UserKernel
from memlab.kernels.user.launch_options import CPP_STANDARDS

LIMITS = Limits("NVIDIA H200", total_memory_bytes=140 << 30)
TYPES = st.sampled_from(sorted(specifications.NUMPY_DTYPES))
SMALL = 1 << 16
"""The largest array that is filled; larger arrays are only described."""

PARTS = st.one_of(
    TYPES,
    st.sampled_from(["in:", "out:", "inout:", "[", "]", ",", "=", "@x.npy", "random", "zeros"]),
    st.sampled_from(["ones", "arange", "randint:", "uniform:", ":", "1", "64", "-1", "2.5", "0xf"]),
    WORDS,
)
ARRAYS = st.tuples(
    st.sampled_from(["", "", "in:", "out:", "inout:", "on:"]),
    TYPES,
    st.lists(NUMBERS | st.sampled_from(["1", "8", " 64 "]), max_size=3).map(",".join),
    st.sampled_from(
        ["", "=zeros", "=random", "=@x.npy", "=@", "=1", "=randint:0:2", "=uniform:0:1"]
    )
    | NUMBERS.map("={}".format)
    | st.tuples(st.sampled_from(["randint", "uniform"]), NUMBERS, NUMBERS).map(":".join),
).map(lambda part: f"{part[0]}{part[1]}[{part[2]}]{part[3]}")
SCALARS = st.tuples(TYPES, NUMBERS).map("=".join)
STRUCTURES = st.one_of(
    st.lists(NUMBERS, max_size=3).map(lambda values: f"struct={','.join(values)}"),
    st.sampled_from(["struct", "struct=@x.npy", "null"]),
)
TENSOR_MAPS = st.tuples(
    st.sampled_from(["", "in:", "out:", "@x", "@x+3", "@"]),
    st.sampled_from(["f32[64,64]", "f16[8]", "[4,4]", "u8[]", "f32", ""]),
    st.lists(
        st.sampled_from(["box[8,8]", "box[]", "strides[64]", "step[2,1]", "lower[-1]", "upper[1]"])
        | st.sampled_from(["swizzle128", "interleave16", "promote64", "tf32", "nan", "swizzle"])
        | WORDS,
        max_size=4,
    ).map(":".join),
    st.sampled_from(["", "=zeros", "=@x.npy", "=randint:0:2"]),
).map(lambda part: f"tensormap={part[0]}{part[1]}:{part[2]}{part[3]}")
PAIR = (StructureMember("x", "f32", 0, "float"), StructureMember("n", "u8", 5, "unsigned char"))
TEXTS = st.one_of(
    ARRAYS, SCALARS, STRUCTURES, TENSOR_MAPS, st.lists(PARTS, max_size=8).map("".join), WORDS
)
EXTENTS = st.one_of(NUMBERS, st.lists(NUMBERS, max_size=4).map(",".join), WORDS)


@st.composite
def written(
    draw: st.DrawFn,
) -> tuple[str, specifications.ScalarSpecification | specifications.ArraySpecification]:
    """A valid specification and its content."""
    kind = draw(TYPES)
    if draw(st.booleans()):
        value = draw(numbers(kind))
        text = f"{kind}={value}"
        return text, specifications.ScalarSpecification(kind, value, text)
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    role = draw(st.sampled_from(["in", "out", "inout"]))
    fills: dict[str, Any] = {"random": None, "zeros": SingleValue(0), "ones": SingleValue(1)}
    fills |= {"arange": Arange(), "@some where=x.npy": NpyFile("some where=x.npy")}
    if kind != "bool":
        low, high = sorted(
            draw(st.lists(numbers(kind, half=True), min_size=2, max_size=2, unique=True))
        )
        name = "uniform" if kind in specifications.MAX_FLOATS else "randint"
        fills[f"{name}:{low}:{high}"] = Uniform(low, high)
    fill = None if role == "out" else draw(st.sampled_from([None, *fills]))
    start = draw(st.integers(0, math.prod(shape) - 1))
    text = f"{role}:{kind}[{','.join(map(str, shape))}]" + (f"+{start}" if start else "")
    text += "" if fill is None else f"={fill}"
    return text, specifications.ArraySpecification(
        kind, shape, role, fills.get(fill or "random"), text, start=start
    )


def numbers(kind: str, half: bool = False) -> st.SearchStrategy[Any]:
    """Values of a type; for floats optionally only up to half of the largest."""
    if kind in specifications.MAX_FLOATS:
        most = specifications.MAX_FLOATS[kind] / (2 if half else 1)
        return st.floats(-most, most)
    if kind == "bool":
        return st.integers(0, 1)
    info = np.iinfo(specifications.NUMPY_DTYPES[kind])
    return st.integers(int(info.min), int(info.max))


@given(written())
@cases(100)
def test_what_is_written_is_read(case: tuple[str, Any]) -> None:
    text, meant = case
    assert parsing.parse_specification(text) == meant


def parameters() -> st.SearchStrategy[KernelParameter]:
    """Parameters as a compiler describes them."""
    kinds = st.sampled_from(["scalar", "pointer", "structure"])
    return st.builds(
        lambda kind, dtype, readonly, wide: KernelParameter(
            name="p",
            kind=kind,
            dtype="" if kind == "structure" or (kind == "pointer" and wide) else dtype,
            spelling="T",
            nbytes=8,
            element_bytes=16 if wide and kind == "pointer" else 0,
            readonly=readonly and kind == "pointer",
            parts=PAIR if wide and kind == "structure" else None,
        ),
        kinds,
        TYPES,
        st.booleans(),
        st.booleans(),
    )


@given(TEXTS | written().map(lambda pair: pair[0]), parameters())
@cases(300)
def test_an_argument_is_one_of_its_parameter_or_refused(
    text: str, parameter: KernelParameter
) -> None:
    try:
        (bound,) = binding.bind_arguments([text], [parameter])
    except UsageError:
        return
    if isinstance(bound, Structure):
        assert parameter.kind == "structure"
        assert bool(bound.path) != bool(bound.members)
        assert len(argument_bytes(replace(bound, path=""), {})) == parameter.nbytes
    elif isinstance(bound, NullPointer):
        assert parameter.kind == "pointer"
    elif isinstance(bound, Scalar):
        assert parameter.kind == "scalar"
        held = element_type(bound.dtype).type(bound.value)
        assert math.isnan(bound.value) or math.isfinite(bound.value) == math.isfinite(float(held))
    else:
        assert parameter.kind == "pointer"
        assert min(bound.shape) >= 1
        assert not (parameter.readonly and bound.role != "in")
        assert bound.nbytes < 2**70  # so that messages can tell it


VARIABLES = (
    ModuleVariable("weights", "weights", "const", "f32", (4,), 16),
    ModuleVariable("table", "table", "global", "u8", (2, 3), 6),
    ModuleVariable("rows", "rows", "const", "", (2,), 32, member_dtype="f32"),
    ModuleVariable("odd", "odd", "global", "", (), 12),
)
SIGNATURE = Signature(
    "saxpy",
    "saxpy",
    (
        KernelParameter("a", "scalar", "f32", "float", 4),
        KernelParameter("x", "pointer", "f32", "const float *", 8, 4, readonly=True),
        KernelParameter("y", "pointer", "f32", "float *", 8, 4),
    ),
    VARIABLES,
)
SOUND: dict[str, Any] = {"args": ["f32=2", "f32[8]", "f32[8]"], "grid": 2, "block": "32"}
VALUES = st.one_of(TEXTS, EXTENTS, st.integers(), st.floats(), st.none(), st.booleans())
PAIRS = st.tuples(
    st.sampled_from(["weights", "table", "rows", "odd", "0", "1", "2", "y", "NAME"]) | WORDS,
    st.sampled_from(["=", "", " = ", "=="]),
    st.sampled_from(["random", "zeros", "@x.npy", "@", "1", "ones:", "randint:0:2"]) | ODD,
).map("".join)
CHOICES = {
    "grid": EXTENTS | VALUES | st.lists(st.integers(), max_size=4),
    "block": EXTENTS | VALUES,
    "cluster": EXTENTS | VALUES | st.lists(st.integers(1, 4), max_size=4),
    "shared": NUMBERS | VALUES,
    "defines": st.lists(PAIRS | WORDS, max_size=3) | VALUES,
    "include": st.lists(WORDS, max_size=2) | VALUES,
    "root": st.sampled_from((".", "nowhere")) | VALUES,
    "std": st.sampled_from(CPP_STANDARDS) | VALUES,
    "max_registers": NUMBERS | VALUES,
    "use_fast_math": st.booleans() | VALUES,
    **dict.fromkeys(SWITCHES, st.booleans() | st.sampled_from(("true", "false")) | VALUES),
    "ptxas_options": st.lists(st.sampled_from(("-O1", "-O3,-v", "-o x")), max_size=2) | VALUES,
    "args": st.lists(TEXTS, max_size=4) | VALUES,
    "constants": st.lists(PAIRS, max_size=3) | VALUES,
    "expect": st.lists(PAIRS, max_size=3) | VALUES,
    "reference": VALUES | st.just("x.py:f"),
    "tolerance": NUMBERS | VALUES,
    "symbols": st.dictionaries(WORDS, NUMBERS | WORDS, max_size=3) | VALUES,
    "restrict": st.lists(WORDS, max_size=2) | VALUES,
}


@st.composite
def choices(draw: st.DrawFn) -> dict[str, Any]:
    """Launch options, mostly valid."""
    chosen: dict[str, Any] = {**SOUND, "args": list(SOUND["args"])}
    for name in draw(st.lists(st.sampled_from([*CHOICES, "args", "arg"]), max_size=3)):
        if name == "arg":
            chosen["args"] = [*SOUND["args"]]
            chosen["args"][draw(st.integers(0, 2))] = draw(TEXTS)
        else:
            chosen[name] = draw(CHOICES[name])
    return chosen


def test_every_choice_is_drawn() -> None:
    assert set(CHOICES) == set(user_kernel.LAUNCH_OPTIONS)


@given(WORDS, choices())
@cases(200)
def test_choices_make_a_launch_within_limits_or_are_refused(
    entry: str, chosen: dict[str, Any]
) -> None:
    try:
        kernel = symbols.evaluated(
            user_kernel.apply_launch_options(UserKernel("x.cu", entry), chosen)
        )
        launch = user_launch.make_user_launch(kernel, SIGNATURE, "", LIMITS)
    except UsageError:
        return
    assert all(1 <= n <= most for n, most in zip(launch.grid, LIMITS.max_grid_dim, strict=True))
    assert launch.threads_per_block <= LIMITS.max_threads_per_block
    with suppress(UsageError):
        output_references(kernel, launch)
    if all(
        isinstance(argument, Scalar | NullPointer | Structure) or argument.elements <= SMALL
        for argument in launch.arguments
    ):
        with suppress(MemlabError):
            make_inputs(launch, 0)


@given(st.lists(st.sampled_from([".cu", ":", "::", "saxpy", "<32>", "/", ".cuh", "a"]) | WORDS))
@cases(50)
def test_any_target_names_a_file_or_none(parts: list[str]) -> None:
    target = "".join(parts)
    found = user_kernel.split_target(target)
    if found is None:
        assert ".cu:" not in target
    else:
        file, entry = found
        assert target.startswith(file)
        assert target.endswith(entry) or target.strip() != target
