"""Arrays from files: a damaged file is refused, and no code in it is executed."""

from __future__ import annotations

import io
import os
import pickle
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from fuzzing import cases
from hypothesis import given
from hypothesis import strategies as st

from memlab.device.inputs import load_array
from memlab.device.structure_arrays import element_type
from memlab.errors import UsageError

SHAPE = (4, 8)


class Trap:
    """An object whose unpickling creates a file."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("unpickled",)


def saved(array: np.ndarray, version: tuple[int, int] = (1, 0)) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version, allow_pickle=True)
    return file.getvalue()


def zipped() -> bytes:
    file = io.BytesIO()
    np.savez(file, x=np.zeros(SHAPE, np.float32))
    return file.getvalue()


SOUND = np.arange(32, dtype=np.float32).reshape(SHAPE)
FILES = [
    saved(SOUND),
    saved(SOUND, (2, 0)),
    saved(SOUND, (3, 0)),
    saved(np.asfortranarray(SOUND)),
    saved(SOUND.astype(">f4")),
    saved(np.zeros(4, [("a", "f4"), ("b", "i8")])),
    saved(np.array([Trap()], dtype=object)),
    saved(np.array(["text"])),
    saved(np.float32(1.0)),
    pickle.dumps(Trap()),
    zipped(),
    b"",
]
SHAPES = ["()", "(0,)", "(-32,)", "(32.0,)", "(True,)", "32", "(" * 300 + ")" * 300, "[4, 8]"]
SHAPES += [f"({2**62},)", f"({2**62}, {2**62})", f"({'9' * 400},)", f"({'9' * 5000},)", "(8, 4,)"]
SHAPES += ["(" + "1, " * 80 + ")", "(4, 8, 1)", "('4', 8)", "(1e400,)", "(4L, 8L)", "(__import__,)"]
TYPES = [
    "<f4",
    "|O",
    ">f4",
    "<f9",
    "",
    "V4",
    "V0",
    "f4,f4",
    "<U1",
    "<M8[ns]",
    "object",
    "\\n",
    "4f4",
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A file with a changed header, or with changed, removed or added bytes."""
    content = draw(st.sampled_from(FILES))
    if draw(st.booleans()):
        kind, shape = draw(st.sampled_from(TYPES)), draw(st.sampled_from(SHAPES))
        order = draw(st.sampled_from(["False", "True", "None", "1"]))
        header = f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}".encode()
        length = draw(st.sampled_from([len(header), 0, len(header) + 9, 2**16 - 1]))
        content = b"\x93NUMPY\x01\x00" + length.to_bytes(2, "little") + header + bytes(128)
    changed = bytearray(content)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, min(len(changed), 140)))
        changed[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=3))
    return bytes(changed[: draw(st.sampled_from([len(changed)] * 3 + [9, 64, 128, 130]))])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("arrays")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder / "x.npy"


@given(content=damaged(), dtype=st.sampled_from(["float32", "int8", "bfloat16", "bool"]))
@cases(100)
def test_a_damaged_file_is_refused(file: Path, content: bytes, dtype: str) -> None:
    file.write_bytes(content)
    with suppress(UsageError):
        array = load_array(str(file), SHAPE, dtype)
        assert array.shape == SHAPE
        assert array.dtype == element_type(dtype)
        array.copy()  # what is mapped is there
    assert [path.name for path in file.parent.iterdir()] == ["x.npy"]
