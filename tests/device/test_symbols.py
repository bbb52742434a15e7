"""Names and dimensions, read from symbols as compilers write them and from declarations."""

import pytest

from memlab.device.symbols import dimensions, source_name


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZZ5tiledE6M_tile", "M_tile"),
        ("_ZZ4tilePKfPfE3buf", "buf"),
        ("_ZZ6kernelE1E", "E"),
        ("_ZZ6kernelE4tile_0", "tile"),
        ("tiles", "tiles"),
        ("__local_depot0", "local"),
    ],
)
def test_names(symbol: str, name: str) -> None:
    assert source_name(symbol) == name


def test_dimensions() -> None:
    source = """
    #define DEPTH 8  // __shared__ float wrong[1];
    constexpr int PAD = TILE < 32 ? 32 / TILE : 1, TAPS = 16;
    __constant__ float weights[TAPS];
    /* __shared__ float wrong[2]; */
    __shared__ __align__(16) float M_tile[2][DEPTH][TILE + PAD], N_tile[DEPTH * 2][TILE];
    extern __shared__ float dynamic[];
    __shared__ Element odd[sizeof(Element)];
    __shared__ float loop[A];
    #define A B
    #define B A
    """
    assert dimensions(source, {"TILE": "16"}) == {
        "weights": (16,),
        "M_tile": (2, 8, 18),
        "N_tile": (16, 16),
    }
