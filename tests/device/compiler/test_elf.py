"""Sections and symbols of a cubin, compared with those that pyelftools reads."""

from io import BytesIO

import pytest
from elftools.elf.elffile import ELFFile

from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.elf import read_sections, symbol_names
from memlab.device.compiler.translation_unit import TranslationUnit

SOURCE = """__constant__ float weights[16] = {1};
__global__ void first(float* a) { __shared__ float tile[64]; tile[threadIdx.x] = a[0];
    __syncthreads(); a[threadIdx.x] = tile[63 - threadIdx.x] * weights[threadIdx.x & 15]; }
__global__ void second(int* a) { a[threadIdx.x] = 1; }"""


@pytest.fixture(scope="module", params=[(7, 5), (9, 0), (12, 0)])
def code(request: pytest.FixtureRequest) -> bytes:
    return compile_unit(TranslationUnit(SOURCE, "k.cu", request.param)).cubin


def test_sections_and_symbols_are_those_of_pyelftools(code: bytes) -> None:
    expected = list(ELFFile(BytesIO(code)).iter_sections())
    sections = read_sections(code)

    assert [(section.name, section.size) for section in sections] == [
        (section.name, section["sh_size"]) for section in expected
    ]
    for section, other in zip(sections, expected, strict=True):
        if other["sh_type"] not in ("SHT_NULL", "SHT_NOBITS"):
            assert section.data == other.data()
        if other["sh_type"] == "SHT_SYMTAB":
            assert symbol_names(section) == [symbol.name for symbol in other.iter_symbols()]


@pytest.mark.parametrize("size", [0, 6, 50, 200])
def test_a_file_that_is_cut_off_is_refused(code: bytes, size: int) -> None:
    with pytest.raises(ValueError, match=r"cut off|begin"):
        read_sections(code[:size])
