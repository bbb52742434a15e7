"""Outputs that were not written; `test_accesses` compares reads."""

import numpy as np
import pytest
from ptx import check, kernel

WORDS = np.zeros(8, np.uint32)


def never_written(body: str, outputs: dict[str, np.ndarray], name: str = "b") -> list[int]:
    head = ".reg .b64 %b, %c; .reg .b32 %t; .reg .b64 %d; mov.u32 %t, %tid.x;"
    head += " ".join(f"ld.param.u64 %{each}, [{each}];" for each in outputs)
    text = kernel(f"{head} {body} ret;", ", ".join(f".u64 {each}" for each in outputs))
    found = check(text, outputs, block=8, outputs=tuple(outputs))
    return found.checker.never_written(name).tolist()


def at(offsets: list[int], width: int, array: str = "b") -> str:
    """Stores of so many bytes."""
    return "".join(f"st.global.u{8 * width} [%{array}+{each}], 1;" for each in offsets)


def test_an_element_of_which_half_is_written_is_not() -> None:
    body = at([0, 2, 4, 10, *range(12, 32, 2)], 2)
    assert never_written(body, {"b": WORDS}) == [1, 2]


def test_only_arrays_of_bytes_have_padding() -> None:
    body = at([0], 4) + at([8, 16, 24], 8)
    assert never_written(body, {"b": WORDS}) == [1]
    assert never_written(body, {"b": WORDS.view(np.uint8)}) == []


def test_an_atomic_writes() -> None:
    body = "mul.wide.u32 %d, %t, 4; add.u64 %b, %b, %d; red.global.add.u32 [%b], 1;"
    assert never_written(body, {"b": WORDS}) == []


@pytest.mark.parametrize(
    ("written", "missing"),
    [
        ({1: [0, 8], 4: [4, 12]}, []),  # three bytes of padding, twice
        ({1: [1, 8], 4: [4, 12]}, [0]),  # nothing lies so before an aligned byte
        ({1: [0, 1, 2, 3, 7, 8], 4: [12]}, [4, 5, 6]),  # what follows is not aligned to four
        ({1: [*range(7), 8], 4: [12]}, []),  # but to two
        ({1: [*range(6), 7, 8], 4: [12]}, [6]),
        ({1: [*range(4), 8], 4: [12]}, [4, 5, 6, 7]),  # as wide as what is aligned
        ({1: [0, 9], 4: [4, 12]}, [8]),
        ({4: [0, 4, 8]}, [12, 13, 14, 15]),
        ({1: [12], 4: [0, 4, 8]}, []),  # three bytes at the end
        ({2: [0, 4, 6, 8, 10, 12, 14]}, [2, 3]),
        ({1: [0], 2: [2, 4, 6, 8, 10, 12, 14]}, []),  # a byte, and one before two
        ({1: [0], 2: [4, 6, 8, 10, 12, 14]}, [1, 2, 3]),  # nothing is aligned to four
        ({1: [*range(1, 16)]}, [0]),
        ({}, list(range(16))),
    ],
)
def test_gaps_that_may_be_padding_of_structures_are_left_out(
    written: dict[int, list[int]], missing: list[int]
) -> None:
    body = "".join(at(offsets, width) for width, offsets in written.items())
    assert never_written(body, {"b": np.zeros(16, np.uint8)}) == missing


def test_another_output_says_nothing_of_padding() -> None:
    outputs = {"b": np.zeros(8, np.uint8), "c": np.zeros(8, np.uint8)}
    body = at([0, 2, 3, 4, 5, 6, 7], 1) + at([0, 4], 4, "c")
    assert never_written(body, outputs) == [1]
    assert never_written(body, outputs, "c") == []
    body = at([0, 2, 3, 4, 5, 6, 7], 1, "c") + at([0, 4], 4)
    assert never_written(body, outputs, "c") == [1]


def test_a_load_says_nothing_of_padding() -> None:
    body = "ld.global.u32 %t, [%b+4];" + at([0, 2, 3, 4, 5, 6, 7], 1)
    assert never_written(body, {"b": np.zeros(8, np.uint8)}) == [1]


def test_a_vector_is_as_wide_as_all_of_it() -> None:
    body = "st.global.v2.u32 [%b], {1, 2};" + at([8], 1) + "st.global.v2.u32 [%b+16], {1, 2};"
    assert never_written(body, {"b": np.zeros(24, np.uint8)}) == []


@pytest.mark.parametrize(
    ("tools", "barrier", "bytes_per_unit"),
    [
        (("memcheck",), "", 4),
        (("initcheck",), "", 5),
        (("racecheck",), "", 4 + 8 * 3),
        (("initcheck", "racecheck"), "bar.warp.sync -1;", 5 + 8 * 4),
    ],
)
def test_what_remembering_all_accesses_takes_is_known(
    tools: tuple[str, ...], barrier: str, bytes_per_unit: int
) -> None:
    text = kernel(
        f".reg .b64 %b; ld.param.u64 %b, [b]; {barrier} st.global.u16 [%b], 1; ret;", ".u64 b"
    )
    found = check(text, {"b": WORDS}, tools=tools)
    units = (-(-(32 + 4096) // 512) * 512 + 16) // 2  # with the guard behind the array
    assert found.checker.memory_bytes == units * bytes_per_unit
    text = text.replace("st.global.u16 [%b], 1;", "")
    found = check(text, {"b": WORDS}, tools=tools)
    assert found.checker.memory_bytes == units // 8 * bytes_per_unit  # as if accesses had 16 bytes
