"""References of the kernels of HeCBench."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
VOLUME_EDGE = 64
WAVE_EDGE = 2048
NOISE_EDGE = 128


def get_block(*arguments: Any) -> Array:
    """Gather the patch at each block's place and fifteen patches at its offsets."""
    image, offsets = arguments[1].reshape(512, 512), arguments[2].reshape(32, 64, 15)
    x, y = (offsets & 0xFF).astype(np.int8), (offsets >> 8).astype(np.int8)
    found = np.empty((32, 64, 16, 8, 8), np.float32)
    for row in range(32):
        for column in range(64):
            places = [(3 * row, 3 * column)] + [
                (3 * row + int(dy), 3 * column + int(dx))
                for dx, dy in zip(x[row, column], y[row, column], strict=True)
            ]
            for number, (top, left) in enumerate(places):
                found[row, column, number] = image[top : top + 8, left : left + 8]
    return found


def hypterm_3(*arguments: Any) -> None:
    """Subtract the differences along z, and those along y for the last flux."""
    shape = (VOLUME_EDGE,) * 3
    fluxes = [each.reshape(shape) for each in arguments[:5]]
    cons = [each.reshape(shape) for each in arguments[5:9]]
    q = [each.reshape(shape) for each in arguments[9:13]]
    dy, dz = arguments[14], arguments[15]
    terms = [
        (cons[2], 0, dz),
        (cons[0] * q[2], 0, dz),
        (cons[1] * q[2], 0, dz),
        (cons[2] * q[2] + q[3], 0, dz),
        (cons[3] * q[1] + q[3] * q[1], 1, dy),
    ]
    inner = (slice(4, -4),) * 3
    for flux, (term, axis, inverse) in zip(fluxes, terms, strict=True):
        flux[inner] -= (_difference(term, axis) * inverse)[inner]


def _difference(term: Array, axis: int) -> Array:
    """The eighth-order difference; its coefficients are float32."""
    weights = [float(np.float32(each)) for each in (0.8, -0.2, 0.038, -0.0035)]
    total = np.zeros_like(term)
    for step, weight in enumerate(weights, 1):
        total += weight * (np.roll(term, -step, axis) - np.roll(term, step, axis))
    return total


def iso_2dfd(following: Array, before: Array, velocity: Array, scale: float, *_: Any) -> None:
    """Advance the wave by one step inside the border."""
    new, old, speed = (
        each.reshape(WAVE_EDGE, WAVE_EDGE).astype(float) for each in (following, before, velocity)
    )
    inner = old[1:-1, 1:-1]
    sides = old[1:-1, 2:] + old[1:-1, :-2] + old[2:, 1:-1] + old[:-2, 1:-1] - 4 * inner
    view = following.reshape(WAVE_EDGE, WAVE_EDGE)
    view[1:-1, 1:-1] = 2 * inner - new[1:-1, 1:-1] + sides * scale * speed[1:-1, 1:-1]


def last_entries(x: Array, y: Array, s: int, r: int) -> None:
    """The last 256 numbers of each row, from those of the row before."""
    lags, end = (55, 119, 179, 256), 256
    a0 = y.astype(np.uint64)
    b0, c0, d0 = (np.concatenate((a0[:512],)).copy() for _ in range(3))
    for buffer in (b0, c0, d0):
        buffer[:512] = a0[256:768]
    place = np.arange(512)
    b0 += a0[256 - (lags[3] - lags[2]) + place]
    c0 += a0[256 - (lags[2] - lags[1]) + place] + a0[256 - (lags[3] - lags[1]) + place]
    d0 += (
        a0[256 - (lags[1] - lags[0]) + place]
        + a0[256 - (lags[2] - lags[0]) + place]
        + a0[256 - (lags[3] - lags[0]) + place]
    )
    thread = np.arange(256)
    parts = ((a0, 512, 256, 77), (b0, 256, 179, 60), (c0, 256, 119, 64), (d0, 256, 55, 55))
    for row in range(1, r):
        start = row * s
        total = np.zeros(256, np.uint64)
        for buffer, middle, lag, count in parts:
            for k in range(count):
                total += np.uint64(x[start - lag + k]) * buffer[middle + thread - k]
            total &= np.uint64(0xFFFFFFFF)
        x[start + s - end : start + s] = total.astype(np.uint32)


def stencil_1d(values: Array, out: Array) -> Array:
    """Sums of seven neighbours on both sides and the element itself."""
    padded = np.concatenate((np.zeros(7, np.int32), values))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 15)
    return np.asarray(windows.sum(1, dtype=np.int32)[: len(out)])


def merge_states(states: Array, scores: Array, *arguments: Any) -> tuple[Array, Array]:
    """The mean of the states with weights of two to the power of the scores, and the new scores."""
    sets, heads = arguments[-2:]
    weights = np.exp2(scores.astype(float).reshape(-1, sets, heads))
    total = weights.sum(1)
    values = states.astype(float).reshape(*weights.shape, -1)
    merged = (weights[..., None] * values).sum(1) / total[..., None]
    return merged.ravel(), np.log2(total).ravel()


def perlin(_start: int, height: int, parameters: tuple[Any, ...], pixels: Array) -> None:
    """Noise of three octaves as grey pixels, in the part of the image that the blocks cover."""
    per_unit, seed, octaves, lacunarity, persistence = parameters
    text = Path("src/perlin-cuda/noise.cu").read_text("utf-8")
    table = re.search(r"_hash\[256\] = \{([^}]*)\}", text)
    assert table
    hashes = np.array([int(each) for each in table[1].split(",")])
    place = np.arange(NOISE_EDGE, dtype=np.float32) / np.float32(per_unit)
    total, amplitude, frequency, scale = 0.0, 1.0, 1.0, 0.0
    for _ in range(octaves):
        total = total + amplitude * _noise(place * np.float32(frequency), hashes, seed)
        scale += amplitude
        amplitude, frequency = amplitude * persistence, frequency * lacunarity
    view = pixels.reshape(height, -1, 4)[:NOISE_EDGE, :NOISE_EDGE]
    view[..., :3] = np.floor(total / scale * 255)[..., None]
    view[..., 3] = 255


def _noise(place: Array, hashes: Array, seed: int) -> Array:
    """Gradient noise at all pairs of two coordinates, rows for y, from 0 to 1."""
    half = np.sqrt(0.5)
    gradient_x = np.array([1, -1, 0, 0, half, -half, half, -half])
    gradient_y = np.array([0, 0, 1, -1, half, half, -half, -half])
    cell = place.astype(int)
    within = place.astype(float) - cell
    corners = {}
    for right in (0, 1):
        for below in (0, 1):
            column = hashes[(cell + right) & 255][None, :]
            row = ((cell + below) & 255)[:, None]
            number = (hashes[column + row] + seed) % 8
            x, y = (within - right)[None, :], (within - below)[:, None]
            corners[right, below] = gradient_x[number] * x + gradient_y[number] * y
    smooth = within**3 * (within * (within * 6 - 15) + 10)
    down, along = smooth[:, None], smooth[None, :]
    left = corners[0, 0] + down * (corners[0, 1] - corners[0, 0])
    right_side = corners[1, 0] + down * (corners[1, 1] - corners[1, 0])
    return np.asarray((left + along * (right_side - left) + 1) / 2)


def add_bias(out: Array, bias: Array, *_sizes: int) -> Array:
    """Each row and the bias."""
    return (out.astype(float).reshape(-1, len(bias)) + bias).ravel()


def update_pressures(particles: Array, parameters: Array) -> None:
    """Add the change of density by all particles, and compute the pressure from it."""
    fixed = parameters[0]
    radius, mass, step = (
        fixed[name] for name in ("smoothing_radius", "mass_particle", "time_step")
    )
    places, speeds = (
        np.stack([particles[name][axis] for axis in "xyz"], 1) for name in ("pos", "v")
    )
    density = particles["density"].copy()
    for number, (place, speed) in enumerate(zip(places, speeds, strict=True)):
        apart = place - places
        distance = np.sqrt((apart**2).sum(1))
        with np.errstate(divide="ignore"):
            far = -3 / (4 * radius * distance) * (2 - distance / radius) ** 2
        near = -(3 - 9 / 4 * distance / radius) / radius**2
        gradient = np.where(distance < radius, near, np.where(distance < 2 * radius, far, 0))
        change = mass / (np.pi * radius**3) * gradient * ((speed - speeds) * apart).sum(1)
        density[number] += step * change.sum()
    rest = fixed["rest_density"]
    particles["density"] = density
    particles["pressure"] = rest * fixed["speed_sound"] ** 2 / 7 * ((density / rest) ** 7 - 1)


def zeros(out: Array, _count: int) -> Array:
    """Zeros."""
    return np.zeros_like(out)


def column_index(_out: Array, rows: int, columns: int) -> Array:
    """The index of the column, in each row."""
    return np.tile(np.arange(columns), rows)
