"""What the kernels beside this file must compute, by NumPy, in float64."""

import numpy as np

from benchmarks.truth.by_numpy import doubles, in_pieces


def first(a, *_):
    return a


def scaled(a, b, factor, *_):
    return factor * doubles(a)


def add_bytes(a, b, out, n):
    return np.minimum(a.astype(int) + b, 255)


def triad(a, b, c, factor, n):
    return b + factor * doubles(c)


def axpy_double(a, x, y, n):
    return y + a * x


def axpy_half2(x, y, a, n):
    return a * doubles(x) + y


def gelu(x, out, n):
    def of(some):
        x = doubles(some)
        return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))

    return in_pieces(of, x)


def drift_structures(particles, dt, n):
    result = doubles(particles)
    result[:, :3] += dt * result[:, 4:7]
    return result


def adam(weight, gradient, mean, square, rate, n):
    def step(weight, gradient, mean, square):
        m, s = 0.9 * doubles(mean) + 0.1 * gradient, 0.999 * doubles(square) + 0.001 * gradient**2
        return np.stack([weight - rate * m / (np.sqrt(s) + 1e-8), m, s]).T

    return tuple(in_pieces(step, weight, gradient, mean, square).T)


def total(a, start, n):
    return start + doubles(a).sum()


def block_sums(a, out):
    return doubles(a).reshape(out.size, -1).sum(axis=1)


def dot(a, b, start, n):
    return start + a @ b


def argmax_rows(a, out, rows, columns):
    return a.argmax(axis=1)


def scan_1024(a, out):
    kind = int if a.dtype.kind == "i" else float
    return a.reshape(-1, 1024).cumsum(axis=1, dtype=kind).reshape(-1)


def sorted_1024(a, out):
    return np.sort(a.reshape(-1, 1024), axis=1).reshape(-1)


def merged(a, out, half):
    return np.sort(a.reshape(-1, 2 * half), axis=1).reshape(-1)


def histogram(values, bins, n):
    return bins + np.bincount(values, minlength=bins.size)


def smooth_1d(a, out, n):
    sums = np.cumsum(np.pad(doubles(a), (5, 4)))
    return (sums[9:] - sums[:-9]) / 9


def jacobi_2d(a, out, width, height):
    a, result = doubles(a), doubles(out)
    result[1:-1, 1:-1] = (a[1:-1, :-2] + a[1:-1, 2:] + a[:-2, 1:-1] + a[2:, 1:-1]) / 4
    return result


def heat_3d(a, out, nx, ny, nz, k):
    a, result, inner = doubles(a), doubles(out), slice(1, -1)
    for z in range(1, nz - 1):
        here = a[z, inner, inner]
        around = a[z, inner, :-2] + a[z, inner, 2:] + a[z, :-2, inner] + a[z, 2:, inner]
        around += a[z - 1, inner, inner] + a[z + 1, inner, inner]
        result[z, inner, inner] = here + k * (around - 6 * here)
    return result


def convolve_channels(image, weight, out, channels, width, height):
    image, weight, result = doubles(image), doubles(weight), np.zeros(out.shape)
    for r in range(3):
        for q in range(3):
            part = image[:, r : r + height - 2, q : q + width - 2]
            result += np.einsum("oc,chw->ohw", weight[:, :, r, q], part)
    return np.maximum(result, 0)


def csr(start, column, value, x, y, rows):
    sums = np.concatenate([[0.0], np.cumsum(doubles(value) * x[column])])
    return sums[start[1:]] - sums[start[:-1]]


def ell(column, value, x, y, rows, width):
    return (doubles(value) * x[column]).sum(axis=0)


def gather(index, table, out, n):
    return table[index]


def embed(token, table, out, tokens):
    return table[token]


def sum_columns(a, out, rows, columns):
    return a.sum(axis=0, dtype=np.float64)


def lower_bound(table, query, out, size, n):
    return np.searchsorted(table, query)


def softmax(a, *_):
    powers = np.exp(doubles(a) - a.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def layer_norm(a, gain, shift, out, columns):
    a = doubles(a)
    centred = a - a.mean(axis=1, keepdims=True)
    return centred / np.sqrt(a.var(axis=1, keepdims=True) + 1e-5) * gain + shift


def attention_scores(q, k, out, length):
    return 0.125 * doubles(q) @ doubles(k).transpose(0, 2, 1)


def attention(q, k, v, out, length):
    def of_heads(q, k, v):
        scores = attention_scores(q, k, out, length)
        powers = np.exp(scores - scores.max(axis=2, keepdims=True))
        return powers @ doubles(v) / powers.sum(axis=2, keepdims=True)

    return in_pieces(of_heads, q, k, v)


def transpose(a, out, width, height):
    return a.T


def permute_heads(a, out, *_):
    return a.transpose(0, 2, 1, 3)


def permute_reverse(a, out, *_):
    return a.transpose(3, 2, 1, 0)


def fft_1024(a, out):
    spectrum = np.fft.fft(doubles(a).view(complex).reshape(-1, 1024), axis=1)
    return spectrum.reshape(-1, 1).view(float)


def product(a, b, *_):
    return doubles(a) @ doubles(b)


def product_vector(a, x, y, rows, quads):
    return doubles(a) @ doubles(x)


def product_batched(a, b, c):
    return doubles(a) @ doubles(b)


def black_scholes(price, strike, call, put, n):
    s, x = doubles(price), doubles(strike)
    d1 = (np.log(s / x) + (0.02 + 0.5 * 0.3**2) * 1.5) / (0.3 * 1.5**0.5)
    n1, n2, discounted = _normal(d1), _normal(d1 - 0.3 * 1.5**0.5), x * np.exp(-0.02 * 1.5)
    return s * n1 - discounted * n2, discounted * (1 - n2) - s * (1 - n1)


def _normal(x):
    """The normal distribution: its density integrated over steps of 1/2000 and interpolated."""
    steps = np.linspace(-12, 12, 48001)
    density = np.exp(-(steps**2) / 2) / np.sqrt(2 * np.pi)
    areas = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2) * (24 / 48000)])
    return np.interp(x, steps, areas)


def polynomial(a, out, n):
    x, y = doubles(a), 1.0
    for degree in range(1, 33):
        y = y * x + 1 / degree
    return y


def gravity(body, out, n):
    body, result = doubles(body), np.zeros((n, 4))
    place = body.T[:3].copy()
    for start in range(0, n, 256):
        apart = [axis - axis[start : start + 256, None] for axis in place]
        squares = sum(distance * distance for distance in apart) + 0.01
        pull = body[:, 3] / (squares * np.sqrt(squares))
        for axis, distance in enumerate(apart):
            result[start : start + 256, axis] = (distance * pull).sum(axis=1)
    return result


def mixed(words, out, n):
    h = words.copy()
    for _ in range(8):
        h ^= h >> 16
        h *= np.uint32(0x85EBCA6B)
        h ^= h >> 13
        h *= np.uint32(0xC2B2AE35)
        h ^= h >> 16
    return h


def xorshift(words, out, rounds, n):
    x = words.copy()
    for _ in range(rounds):
        x ^= x << 13
        x ^= x >> 17
        x ^= x << 5
    return x


def generators(words, out, rounds, n):
    narrow, wide = words.copy(), words.astype(np.uint64)
    for _ in range(rounds):
        narrow = narrow * np.uint32(1664525) + np.uint32(1013904223)
        wide = wide * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    return narrow ^ (wide >> 32).astype(np.uint32)


def divides(a, b, quotient, remainder, n):
    return a // b, a % b


def counts_of_bits(words, out, rounds, n):
    halves = [f"{half:016b}" for half in range(1 << 16)]
    ones = np.array([half.count("1") for half in halves], np.uint32)
    turned = np.array([int(half[::-1], 2) for half in halves], np.uint32)

    def of(words):
        x, total = words, np.zeros_like(words)
        for _ in range(rounds):
            high, low = x >> 16, x & 0xFFFF
            leading = 32 - np.frexp(doubles(x))[1]
            total += ones[high] + ones[low] + leading.astype(np.uint32)
            x = (turned[low] << 16 | turned[high]) + total
        return total

    return in_pieces(of, words)


def bytes_and_choices(a, b, out, rounds, n):
    def of(a, b):
        x, y, total = a, b, np.zeros_like(a)
        for _ in range(rounds):
            for byte in range(0, 32, 8):
                # Shifted left, then right, a byte keeps its sign.
                total += (x << (24 - byte) >> 24) * (y << (24 - byte) >> 24)
            x = np.minimum(x, y ^ total)
            y = np.where(total > 0, np.maximum(y, x), y + np.int32(1))
        return total

    return in_pieces(of, a, b)


def halves(x, out, n):
    x, y = doubles(x), 1.0
    for _ in range(32):
        y = y * x + 0.5
    return y * x + x


def threads_1m(start):
    return start + 4096 * 256


def sum_of(start, values):
    return start + values.sum(dtype=np.float64)


def shared_counts(out, words, rounds):
    return np.full(out.shape, 256 // words * rounds)


def shared_sums(out, term, words, rounds):
    return np.full(out.shape, 256 // words * rounds * term)
