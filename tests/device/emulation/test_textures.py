"""Tests of textures and surfaces on all devices, against padded arrays in float64."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import memlab

DATA = Path(__file__).parents[2] / "data" / "h200-textures.csv"
"""Requests and sectors of fetches that Nsight Compute counted: see docs/results/README.md."""

PADDINGS: dict[str, Any] = {
    "clamp": "edge",
    "wrap": "wrap",
    "mirror": "symmetric",
    "border": "constant",
}
"""How `numpy.pad` continues an array as an address mode does."""

FETCHES = """
__global__ void fetch1(cudaTextureObject_t t, const float *x, float *out)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = tex1D<float>(t, x[i]); }
__global__ void fetch2(cudaTextureObject_t t, const float *x, const float *y, float *out)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = tex2D<float>(t, x[i], y[i]); }
__global__ void fetch3(cudaTextureObject_t t, const float *x, const float *y, const float *z,
                       float *out)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = tex3D<float>(t, x[i], y[i], z[i]); }
"""
COUNT = 512


@pytest.fixture(params=["h200", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def sampled(
    texels: NDArray[Any],
    coordinates: list[NDArray[np.float32]],
    linear: bool,
    modes: list[str],
    normalized: bool,
) -> NDArray[np.float64]:
    """The fetch rule of the CUDA C++ Programming Guide, on an array that is padded on all sides.

    `coordinates` and `modes` are for x first, the extents of `texels` for x last. Normalized
    coordinates are rounded down to 2^-21, and weights to 1/256, as an H200 does.
    """
    padded, corners = texels.astype(np.float64), []
    for axis, (coordinate, mode) in enumerate(zip(coordinates, modes, strict=True)):
        place = texels.ndim - 1 - axis
        extent = texels.shape[place]
        border = [(0, 0)] * texels.ndim
        border[place] = (4 * extent, 4 * extent)
        padded = np.pad(padded, border, PADDINGS[mode])
        x = coordinate.astype(np.float64)
        if normalized:
            x = np.floor(x * 2**21) / 2**21 * extent
        if linear:
            steps = np.floor((x - 0.5) * 256 + 0.5)
            index = np.floor(steps / 256)
            weight = steps / 256 - index
        else:
            index, weight = np.floor(x), np.zeros_like(x)
        start = index.astype(int) + 4 * extent
        corners.append(((start, 1 - weight), (start + 1, weight)))
    total = np.zeros(len(coordinates[0]))
    both = np.prod([corner[1][1] for corner in corners], axis=0)
    rounding = np.floor(both * 256 + 0.5) / 256 - both if len(corners) == 2 else 0
    for chosen in itertools.product(*corners):
        weights = np.prod([weight for _, weight in chosen], axis=0)
        opposite = sum(item is corner[0] for item, corner in zip(chosen, corners, strict=True)) % 2
        weights = weights + (-rounding if opposite else rounding)
        total += weights * padded[tuple(start for start, _ in reversed(chosen))]
    return total


TOLERANCES = {1: 1e-6, 2: 1e-6, 3: 0.03}
"""By dimensions. In 3, a GPU rounds the weights of 8 elements to 1/256 in an unknown order."""


def random_coordinates(
    generator: np.random.Generator, shape: tuple[int, ...], normalized: bool
) -> list[NDArray[np.float32]]:
    """Coordinates on all sides of an array; some hit the edges of elements."""
    found = []
    for extent in reversed(shape):
        x = generator.uniform(-2.5 * extent, 3.5 * extent, COUNT)
        x[:64] = np.round(x[:64])
        x[64:128] = np.round(x[64:128]) + 0.5
        x[128:136] = [0, extent, -0.5, extent - 0.5, extent + 0.5, 0.5, -1e-3, extent - 1e-3]
        found.append((x / extent if normalized else x).astype(np.float32))
    return found


def fetched(
    texture: object, coordinates: list[NDArray[np.float32]], device: str = "h200"
) -> NDArray[np.float64]:
    kernel = memlab.source(FETCHES, f"fetch{len(coordinates)}")
    arguments = [texture, *coordinates, memlab.out(COUNT, "f32")]
    result = memlab.run(kernel, device=device, grid=COUNT // 128, block=128, args=arguments)
    return result.outputs["out"].astype(np.float64)


@pytest.mark.parametrize("interpolation", ["point", "linear"])
@pytest.mark.parametrize(
    ("mode", "normalized"),
    [("clamp", False), ("border", False), *((mode, True) for mode in PADDINGS)],
)
@pytest.mark.parametrize("shape", [(37,), (16,), (19, 45), (5, 11, 9)])
def test_fetches_follow_the_programming_guide(
    shape: tuple[int, ...], mode: str, normalized: bool, interpolation: str, device: str
) -> None:
    generator = np.random.default_rng(len(shape))
    texels = generator.normal(size=shape).astype(np.float32)
    coordinates = random_coordinates(generator, shape, normalized)
    texture = memlab.texture(texels, filter=interpolation, address=mode, normalized=normalized)
    expected = sampled(
        texels, coordinates, interpolation == "linear", [mode] * len(shape), normalized
    )
    tolerance = TOLERANCES[len(shape)] if interpolation == "linear" else 0
    np.testing.assert_allclose(fetched(texture, coordinates, device), expected, atol=tolerance)


def test_each_dimension_has_its_own_address_mode(device: str) -> None:
    generator = np.random.default_rng(4)
    texels = generator.normal(size=(6, 7, 8)).astype(np.float32)
    coordinates = random_coordinates(generator, texels.shape, True)
    modes = ["mirror", "border", "wrap"]
    texture = memlab.texture(texels, filter="linear", address=modes, normalized=True)
    expected = sampled(texels, coordinates, True, modes, True)
    found = fetched(texture, coordinates, device)
    np.testing.assert_allclose(found, expected, atol=TOLERANCES[3])


def test_coordinates_without_a_place_read_an_element_or_the_border(device: str) -> None:
    strange = np.zeros(COUNT, np.float32)
    strange[:5] = [np.nan, np.inf, -np.inf, 3e38, -3e38]
    texels = np.arange(1, 9, dtype=np.float32)
    assert fetched(memlab.texture(texels, filter="point"), [strange], device)[:5].tolist() == [
        1,
        8,
        1,
        8,
        1,
    ]
    border = memlab.texture(texels, address="border")
    assert fetched(border, [strange], device)[:5].tolist() == [1, 0, 0, 0, 0]
    for mode in ("wrap", "mirror"):
        folded = memlab.texture(texels, address=mode, normalized=True, filter="linear")
        assert set(fetched(folded, [strange], device)) <= set(np.arange(1, 9, 0.5))


NUMBERS = """
extern "C" __global__ void raw4(cudaTextureObject_t t, TYPE4 *out)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = tex1Dfetch<TYPE4>(t, i); }
extern "C" __global__ void floats4(cudaTextureObject_t t, float4 *out)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = tex1Dfetch<float4>(t, i); }
"""


@pytest.mark.parametrize(
    ("dtype", "vector"),
    [
        ("i8", "char"),
        ("u8", "uchar"),
        ("i16", "short"),
        ("u16", "ushort"),
        ("i32", "int"),
        ("u32", "uint"),
        ("f32", "float"),
    ],
)
def test_elements_are_read_as_they_are(dtype: str, vector: str, device: str) -> None:
    bits = np.random.default_rng(1).integers(0, 256, 32 * 4 * int(dtype[1:]) // 8, np.uint8)
    values = bits.view(dtype[0] + str(int(dtype[1:]) // 8)).reshape(32, 4)
    kernel = memlab.source(NUMBERS.replace("TYPE4", f"{vector}4"), "raw4")
    arguments = [memlab.texture(values, channels=4), memlab.out((64, 4), dtype)]
    found = memlab.run(kernel, device=device, grid=1, block=64, args=arguments).outputs["out"]
    expected = np.concatenate([values, np.zeros_like(values)])  # linear memory reads 0 outside
    np.testing.assert_array_equal(found.view("u1"), expected.view("u1"))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "float16"])
def test_elements_are_read_as_floats(dtype: str, device: str) -> None:
    info = np.iinfo(dtype) if dtype != "float16" else None
    values = np.random.default_rng(2).integers(-100, 100, (32, 4)).astype(dtype)
    if info:
        values[0] = [info.min, info.max, 0, 1]
    kernel = memlab.source(NUMBERS.replace("TYPE4", "float4"), "floats4")
    texture = memlab.texture(values, channels=4, normalized_float=info is not None)
    found = memlab.run(
        kernel, device=device, grid=1, block=32, args=[texture, memlab.out((32, 4), "f32")]
    )
    scaled = values if info is None else np.maximum(values / info.max, -1)
    np.testing.assert_allclose(found.outputs["out"], scaled, rtol=1e-7)


LAYERS = """
__global__ void layers(cudaTextureObject_t one, cudaTextureObject_t two, const float *x,
                       const float *y, const int *layer, float *first, float2 *second)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  first[i] = tex1DLayered<float>(one, x[i], layer[i]);
  second[i] = tex2DLayered<float2>(two, x[i], y[i], layer[i]);
}
"""


def test_layers_are_unsigned_and_not_interpolated(device: str) -> None:
    generator = np.random.default_rng(5)
    one = generator.normal(size=(3, 21)).astype(np.float32)
    two = generator.normal(size=(3, 13, 21, 2)).astype(np.float32)
    coordinates = random_coordinates(generator, (13, 21), False)
    layer = generator.integers(-2, 6, COUNT).astype(np.int32)
    arguments = [
        memlab.texture(one, layered=True, filter="linear"),
        memlab.texture(two, layered=True, filter="linear", address="border", channels=2),
        *coordinates,
        layer,
        memlab.out(COUNT, "f32"),
        memlab.out((COUNT, 2), "f32"),
    ]
    result = memlab.run(memlab.source(LAYERS), device=device, grid=4, block=128, args=arguments)
    for number in range(3):
        chosen = np.minimum(layer.view(np.uint32), 2) == number
        places = [coordinate[chosen] for coordinate in coordinates]
        first = sampled(one[number], places[:1], True, ["clamp"], False)
        np.testing.assert_allclose(result.outputs["first"][chosen], first, rtol=1e-6, atol=1e-6)
        for channel in range(2):
            second = sampled(two[number, ..., channel], places, True, ["border"] * 2, False)
            found = result.outputs["second"][chosen, channel]
            np.testing.assert_allclose(found, second, rtol=1e-6, atol=1e-6)


GATHER = """
__global__ void gather(cudaTextureObject_t t, const float *x, const float *y, float4 *out)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = tex2Dgather<float4>(t, x[i], y[i], 2); }
"""


def test_gather_gives_one_channel_of_four_elements(device: str) -> None:
    generator = np.random.default_rng(6)
    texels = generator.normal(size=(9, 12, 4)).astype(np.float32)
    x, y = (generator.integers(-8, 20, COUNT).astype(np.float32) for _ in range(2))
    arguments = [memlab.texture(texels, channels=4), x, y, memlab.out((COUNT, 4), "f32")]
    result = memlab.run(memlab.source(GATHER), device=device, grid=4, block=128, args=arguments)
    left, low = np.floor(x - 0.5).astype(int), np.floor(y - 0.5).astype(int)
    for number, (dx, dy) in enumerate([(0, 1), (1, 1), (1, 0), (0, 0)]):
        column, row = np.clip(left + dx, 0, 11), np.clip(low + dy, 0, 8)
        np.testing.assert_array_equal(result.outputs["out"][:, number], texels[row, column, 2])


SURFACES = """
template <typename T, cudaSurfaceBoundaryMode M>
__global__ void shift(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int dx, int dy)
{
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  T value;
  surf2Dread(&value, from, (x + dx) * (int)sizeof(T), y + dy, M);
  surf2Dwrite(value, to, x * (int)sizeof(T), y, cudaBoundaryModeZero);
}
"""


@pytest.mark.parametrize(
    ("kind", "dtype", "channels"),
    [
        ("unsigned char", "uint8", 1),
        ("ushort2", "uint16", 2),
        ("float", "float32", 1),
        ("float4", "float32", 4),
        ("short4", "int16", 4),
    ],
)
@pytest.mark.parametrize(("mode", "padding"), [("Zero", "constant"), ("Clamp", "edge")])
def test_surfaces_are_read_and_written(
    kind: str, dtype: str, channels: int, mode: str, padding: Any, device: str
) -> None:
    shape = (21, 37) if channels == 1 else (21, 37, channels)
    values = np.random.default_rng(7).integers(0, 100, shape).astype(dtype)
    arguments = [
        memlab.surface(values, role="in", channels=channels),
        memlab.surface(memlab.out(shape, dtype), channels=channels),
        3,
        -2,
    ]
    kernel = memlab.source(SURFACES, f"shift<{kind}, cudaBoundaryMode{mode}>")
    result = memlab.run(kernel, device=device, grid=(3, 3), block=(16, 8), args=arguments)
    around = [(4, 4), (4, 4)] + [(0, 0)] * (len(shape) - 2)
    expected = np.pad(values, around, padding)[2:23, 7:44]
    np.testing.assert_array_equal(result.outputs["to"], expected)


VOLUMES = """
__global__ void copy(cudaSurfaceObject_t from, cudaSurfaceObject_t to, cudaSurfaceObject_t line,
                     cudaSurfaceObject_t rows)
{
  int x = threadIdx.x, y = threadIdx.y, z = blockIdx.x;
  float value;
  surf3Dread(&value, from, x * 4, y, z);
  surf2DLayeredwrite(value, to, x * 4, y, z);
  surf1Dwrite(value, line, (x + 8 * y + 64 * z) * 4);
  surf1DLayeredwrite(value, rows, (x + 8 * y) * 4, z);
  __syncthreads();  // none of these lies in its surface
  surf2DLayeredwrite(7.f, to, x * 4, y, z + 5, cudaBoundaryModeZero);
  surf1DLayeredwrite(7.f, rows, x * 4, -1 - z, cudaBoundaryModeZero);
  surf1Dwrite(7.f, line, (320 + x) * 4, cudaBoundaryModeZero);
}
"""
SIZES_OF_SURFACES = """
__global__ void query(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int *sizes)
{
  asm("suq.width.b32 %0, [%1];" : "=r"(sizes[0]) : "l"(from));
  asm("suq.height.b32 %0, [%1];" : "=r"(sizes[1]) : "l"(from));
  asm("suq.depth.b32 %0, [%1];" : "=r"(sizes[2]) : "l"(from));
  asm("suq.array_size.b32 %0, [%1];" : "=r"(sizes[3]) : "l"(to));
}
"""


def test_surfaces_have_every_shape(device: str) -> None:
    values = np.random.default_rng(8).normal(size=(5, 8, 8)).astype(np.float32)
    arguments = [
        memlab.surface(values, role="in"),
        memlab.surface(memlab.out((5, 8, 8), "f32"), layered=True),
        memlab.surface(memlab.out(320, "f32")),
        memlab.surface(memlab.out((5, 64), "f32"), layered=True),
    ]
    kernel = memlab.source(VOLUMES)
    outputs = memlab.run(kernel, device=device, grid=5, block=(8, 8), args=arguments).outputs
    for name in ("to", "line", "rows"):
        np.testing.assert_array_equal(outputs[name].reshape(values.shape), values)


def test_surfaces_tell_their_sizes() -> None:
    """Only emulated: an H200 does not load code with `suq`."""
    volume, layers = np.ones((5, 8, 8), np.float32), np.ones((4, 8, 8), np.float32)
    arguments = [memlab.surface(volume), memlab.surface(layers, layered=True), memlab.out(4, "i32")]
    result = memlab.run(memlab.source(SIZES_OF_SURFACES), grid=1, block=1, args=arguments)
    assert result.outputs["sizes"].tolist() == [8, 8, 5, 4]


COUNTED = """
template <typename T> __global__ void plane(cudaTextureObject_t t, float shift, int lanes_per_row,
                                            int x, int y, unsigned char *out)
{
  int column = x + threadIdx.x % lanes_per_row, row = y + threadIdx.x / lanes_per_row;
  T value = tex2D<T>(t, column + shift, row + shift);
  memcpy(out + threadIdx.x * sizeof(T), &value, sizeof(T));
}
template <typename T> __global__ void memory(cudaTextureObject_t t, float, int step, int x, int,
                                             unsigned char *out)
{
  T value = tex1Dfetch<T>(t, x + threadIdx.x * step);
  memcpy(out + threadIdx.x * sizeof(T), &value, sizeof(T));
}
"""
ELEMENTS: dict[str, tuple[str, str, int]] = {
    "u8": ("unsigned char", "u1", 1),
    "u16": ("unsigned short", "u2", 1),
    "f16": ("float", "f2", 1),
    "f32": ("float", "f4", 1),
    "f32x2": ("float2", "f4", 2),
    "f32x4": ("float4", "f4", 4),
}
"""C++ type, type of a number and channels of the elements in the hardware's table."""


@pytest.mark.parametrize("elements", ELEMENTS)
def test_requests_and_sectors_are_those_of_an_h200(elements: str) -> None:
    kind, number, channels = ELEMENTS[elements]
    last = (channels,) if channels > 1 else ()
    line, image = np.ones((4096, *last), number), np.ones((64, 128, *last), number)
    textures = {
        "memory": memlab.texture(line, channels=channels),
        "point": memlab.texture(image, channels=channels),
    }
    if number[0] == "f":
        textures["linear"] = memlab.texture(image, channels=channels, filter="linear")
    with DATA.open() as file:
        rows = [row for row in csv.DictReader(file) if row["elements"] == elements]
    assert len(rows) >= 12
    for row in rows:
        entry = "memory" if row["kind"] == "memory" else "plane"
        shift = 1.0 if row["kind"] == "linear" else 0.5
        given = [int(row[name]) for name in ("lanes_per_row", "x", "y")]
        arguments = [textures[row["kind"]], shift, *given, memlab.out(512, "u8")]
        kernel = memlab.source(COUNTED, f"{entry}<{kind}>")
        counters = memlab.run(kernel, grid=1, block=32, args=arguments).measurement.counters
        counted = counters.texture_requests, counters.texture_sectors
        assert counted == (int(row["requests"]), int(row["sectors"])), row
        hits = counters.l1_read_sector_hits
        assert counters.global_load_sectors - hits == int(row["sectors_missed"]), row
        assert counters.surface_requests == 0


def test_bytes_of_a_fetch_are_those_of_the_elements_that_it_needs() -> None:
    """A warp needs 8 by 4 elements, and with a linear filter one more row and column."""
    image, kernel = np.ones((64, 128), np.float32), memlab.source(COUNTED, "plane<float>")
    for interpolation, shift, used, moved in (("point", 0.5, 32, 32), ("linear", 1.0, 45, 4 * 32)):
        texture = memlab.texture(image, filter=interpolation)
        arguments = [texture, shift, 8, 16, 16, memlab.out(128, "u8")]
        counters = memlab.run(kernel, grid=1, block=32, args=arguments).measurement.counters
        assert counters.global_load_used_bytes == 4 * used
        assert counters.requested_load_bytes == 4 * moved


def test_lanes_of_a_warp_fetch_from_textures_of_several_kinds() -> None:
    kernel = memlab.source(
        "__global__ void k(cudaTextureObject_t a, cudaTextureObject_t b, float *out) {\n"
        "  int i = threadIdx.x;\n"
        "  out[i] = tex2D<float>(i % 2 ? a : b, i / 2 + 0.5f, 0.5f);\n}"
    )
    generator = np.random.default_rng(5)
    bytes_ = generator.integers(0, 256, (3, 16), np.uint8)
    floats = generator.random((3, 16, 4), np.float32)
    textures = (
        memlab.texture(bytes_, normalized_float=True),
        memlab.texture(floats, channels=4),
    )
    for first, second in (textures, textures[::-1]):
        arguments = [first, second, memlab.out(32, "f32")]
        result = memlab.run(kernel, grid=1, block=32, args=arguments)
        pairs = (bytes_[0] / 255, floats[0, :, 0])
        odd, even = pairs if first is textures[0] else pairs[::-1]
        expected = np.stack([even, odd], axis=1).ravel()
        np.testing.assert_allclose(result.outputs["out"], expected, rtol=1e-6)
        assert result.measurement.counters.requested_load_bytes == 16 * (1 + 16)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("tex1D<float>(t, i)", "other dimensions"),
        ("tex1D<float>(m, i)", "linear memory, which tex1Dfetch alone reads"),
        ("tex1Dfetch<float>(a, i)", "a CUDA array, which tex1Dfetch does not read"),
        ("tex2D<float>(77ull, i, 0)", "no texture or surface of this launch"),
        ("tex2D<int>(t, i, 0)", "another type"),
        ("tex2D<float>(s, i, 0)", "a surface is used as a texture"),
        ("surf2Dread<float>(s, 4 * i, 30)", "outside the surface"),
    ],
)
def test_wrong_objects_are_faults(statement: str, message: str) -> None:
    kernel = memlab.source(
        "__global__ void k(cudaTextureObject_t t, cudaTextureObject_t m, cudaTextureObject_t a, "
        "cudaSurfaceObject_t s, float *out)\n"
        f"{{ int i = threadIdx.x; out[i] = {statement}; }}"
    )
    square = np.ones((16, 32), np.float32)
    surface = memlab.surface(square, role="in")
    line = np.ones(32, np.float32)
    lines = memlab.texture(line), memlab.texture(line, filter="point")
    arguments = [memlab.texture(square), *lines, surface, memlab.out(32, "f32")]
    with pytest.raises(memlab.MemlabError, match=message):
        memlab.run(kernel, grid=1, block=32, args=arguments)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("f32[64]", "takes a texture.*write texture="),
        ("surface=f32[64]", "takes no surface"),
        ("texture=f64[64]", "f64, which no texture has"),
        ("texture=f32x3[64]", "3 channels"),
        ("texture=f32[64]:wrap", "wrap needs normalized"),
        ("texture=f32[64]:lineer", "did you mean 'linear'"),
        ("texture=i8[64]:linear", "integers are not interpolated"),
        ("texture=f32[64]:normalized-float", "not read as a normalized float"),
        ("texture=out:f32[64]", "only read textures"),
        ("texture=f32[2,2,2,2]", "shape of no texture"),
        ("texture=f32[64]:clamp,clamp", "one address mode"),
    ],
)
def test_wrong_arguments_say_what_to_write(argument: str, message: str) -> None:
    kernel = memlab.source(FETCHES, "fetch1")
    with pytest.raises(memlab.UsageError, match=message):
        memlab.run(kernel, grid=1, block=32, args=[argument, "f32[32]", "out:f32[32]"])


def test_check_has_no_findings_on_correct_kernels() -> None:
    values = np.ones((21, 37), np.float32)
    kernel = memlab.source(SURFACES, "shift<float, cudaBoundaryModeClamp>")
    arguments = [
        memlab.surface(values, role="in"),
        memlab.surface(memlab.out((21, 37), "f32")),
        3,
        -2,
    ]
    assert not memlab.check(kernel, grid=(3, 3), block=(16, 8), args=arguments).findings
    # A block less, and elements of the surface are not written; its padding is not among them.
    report = memlab.check(kernel, grid=(2, 3), block=(16, 8), args=arguments)
    (finding,) = report.findings
    assert finding.tool == "initcheck"
    texture = memlab.texture(values, filter="linear")
    arguments = [texture, "f32[512]", "f32[512]", memlab.out(512, "f32")]
    kernel = memlab.source(FETCHES, "fetch2")
    assert not memlab.check(kernel, grid=4, block=128, args=arguments).findings


def test_requests_of_surfaces_are_counted() -> None:
    values = np.ones((16, 32), np.float32)
    arguments = [memlab.surface(values, role="in"), memlab.surface(values), 0, 0]
    kernel = memlab.source(SURFACES, "shift<float, cudaBoundaryModeTrap>")
    counters = memlab.run(kernel, grid=(4, 4), block=(8, 4), args=arguments).measurement.counters
    assert counters.surface_requests == 2 * 16 * 4  # a row of 8 elements each
    assert counters.surface_sectors == 2 * 16 * 4 * 2  # 4 of them lie in a sector
    assert counters.texture_requests == 0


def test_requests_of_surfaces_of_3_dimensions_are_counted() -> None:
    source = """extern "C" __global__ void k(cudaSurfaceObject_t from, cudaSurfaceObject_t to) {
        int x = threadIdx.x, y = threadIdx.y;
        float value = surf3Dread<float>(from, x * 4, y, 1);
        if (x < 6) surf3Dwrite(value, to, x * 4, y, 0);
    }"""
    volume = np.ones((2, 4, 8), np.float32)
    arguments = [memlab.surface(volume, role="in"), memlab.surface(volume)]
    kernel = memlab.source(source, "k")
    counters = memlab.run(kernel, grid=1, block=(8, 4), args=arguments).measurement.counters
    # Groups of 4 lanes are halves of a row; of each second one, two lanes write.
    assert counters.surface_requests == 2 * 8
    assert counters.surface_sectors == 2 * 8
