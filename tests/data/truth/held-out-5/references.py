"""What the kernels beside this file must compute, by NumPy, in float64."""

import numpy as np

from benchmarks.truth.by_numpy import doubles, in_pieces


def silu_and_multiply(out, x, size):
    def of_rows(x):
        a, b = doubles(x[:, :size]), doubles(x[:, size:])
        return a / (1 + np.exp(-a)) * b

    return in_pieces(of_rows, x)


def rotate_cached(position, query, cache, heads, size):
    row, x = doubles(cache)[position][:, None], doubles(query)
    half = size // 2
    c, s, a, b = row[..., :half], row[..., half:], x[..., :half], x[..., half:]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)


def attend_pages(out, query, keys, values, tables, tokens, pages, scale):
    result = np.zeros(query.shape)
    for sequence, table in enumerate(tables):
        for head in range(32):
            own = [doubles(a[table, head]).reshape(-1, 128)[:tokens] for a in (keys, values)]
            logits = scale * (own[0] @ doubles(query[sequence, head]))
            weight = np.exp(logits - logits.max())
            result[sequence, head] = weight @ own[1] / weight.sum()
    return result


def route_tokens(logits, weight, expert, tokens):
    share = np.exp(doubles(logits))
    share /= share.sum(axis=1, keepdims=True)
    order = np.argsort(-share, axis=1)[:, :8]
    return {"weight": np.take_along_axis(share, order, axis=1), "expert": order}


def product_four_bits(vector, weight, out, scale, zero, height, width):
    four = np.stack([weight >> 4 * i & 15 for i in range(8)], axis=1).reshape(-1, width)
    return doubles(vector) @ (doubles(scale) * four - doubles(zero))


def decay_scan(times, channels, decay, bonus, key, value, out):
    p, q, result = 0.0, 0.0, np.zeros(key.shape)
    fade = np.exp(-np.exp(doubles(decay)))
    for t in range(times):
        k, v = np.exp(doubles(key[:, t])), doubles(value[:, t])
        now = k * np.exp(doubles(bonus))
        result[:, t] = (p + now * v) / (q + now)
        p, q = fade * p + k * v, fade * q + k
    return result


def select_scan(u, delta, a, b, c, out, channels, times):
    rates, result = doubles(a).T.copy(), np.zeros(u.shape)
    for sequence in range(len(u)):
        state = np.zeros(rates.shape)
        for t in range(times):
            d, given = doubles(delta[sequence, t]), doubles(u[sequence, t])
            state *= np.exp(d * rates)
            state += np.outer(b[sequence, t], given * d)
            result[sequence, t] = doubles(c[sequence, t]) @ state
    return result


def adam_step(parameter, gradient, m, v, n, rate, beta1, beta2, c1, c2, eps, decay):
    def of(parameter, gradient, m, v):
        g, first = doubles(gradient), doubles(parameter)
        a = beta1 * doubles(m) + (1 - beta1) * g
        b = beta2 * doubles(v) + (1 - beta2) * g * g
        step = a / c1 / (np.sqrt(b / c2) + eps) + decay * first
        return np.stack([first - rate * step, a, b]).T

    changed = in_pieces(of, parameter, gradient, m, v).T
    return dict(zip(("parameter", "m", "v"), changed, strict=True))


def group_norm(x, weight, bias, out, channels, groups, pixels):
    rows = doubles(x).reshape(-1, channels // groups * pixels)
    rows = (rows - rows.mean(axis=1, keepdims=True)) / np.sqrt(
        rows.var(axis=1, keepdims=True) + 1e-5
    )
    shape = (1, channels, 1, 1)
    return rows.reshape(x.shape) * weight.reshape(shape) + bias.reshape(shape)


def convolve_depthwise(x, weight, out, n, channels, side):
    padded = np.pad(doubles(x), ((0, 0), (0, 0), (1, 1), (1, 1)))
    taps = doubles(weight).reshape(channels, 3, 3)
    return sum(
        padded[..., dy : dy + side, dx : dx + side] * taps[:, dy, dx, None, None]
        for dy in range(3)
        for dx in range(3)
    )


def image_to_columns(n, image, side, columns):
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1)))
    shifts = [padded[:, dy : dy + side, dx : dx + side] for dy in range(3) for dx in range(3)]
    return np.stack(shifts, axis=1)


def pool_most(n, x, side, wide, out, where):
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    y, x_ = np.indices((wide, wide))
    most = np.full((len(x), wide, wide), -np.inf, x.dtype)
    places = np.zeros(most.shape, int)
    for dy in range(3):
        for dx in range(3):
            here = padded[:, dy : dy + 2 * wide : 2, dx : dx + 2 * wide : 2]
            place = (2 * y - 1 + dy) * side + 2 * x_ - 1 + dx
            np.copyto(places, place, where=here > most)
            np.maximum(most, here, out=most)
    return {"out": most, "where": places}


def likeliest(logits, word, words):
    return logits.argmax(axis=1)


def quantize_tokens(x, out, scales, size):
    most = np.abs(x).max(axis=1)
    scaled = x * (np.float32(127) / most)[:, None]
    return {"out": np.rint(scaled), "scales": most / 127}


def sum_bags(index, table, out, bags, size):
    return sum(doubles(table[index[:, k]]) for k in range(32))


def ball_query(n, m, radius, centres, clouds, found):
    result = np.zeros(found.shape, np.int32)
    limit = np.float32(radius) * np.float32(radius)
    for cloud, (some, points) in enumerate(zip(centres, clouds, strict=True)):
        apart = (doubles(some)[:, None, axis] - doubles(points)[:, axis] for axis in range(3))
        distance = sum(each * each for each in apart)
        for centre, near in enumerate(distance < limit):
            places = np.flatnonzero(near)[:32]
            if len(places):
                result[cloud, centre] = places[0]
                result[cloud, centre, : len(places)] = places
    return result


def overlaps(n, limit, boxes, mask):
    b = doubles(boxes)
    size = 1.0
    for low, high in (b[:, [0, 2]].T, b[:, [1, 3]].T):
        size *= np.maximum(np.minimum(high[:, None], high) - np.maximum(low[:, None], low), 0)
    area = (b[:, 2:] - b[:, :2]).prod(axis=1)
    over = np.triu(size / (area[:, None] + area - size) > limit, 1)
    bits = np.zeros((n, 63 * 64), bool)
    bits[:, :n] = over
    return np.packbits(bits, axis=1, bitorder="little").view("<u8")


def smooth_bilateral(image, out, width, height, space, span):
    own, padded = doubles(image), np.pad(doubles(image), 4, mode="edge")
    total = weights = 0.0
    for dy in range(-4, 5):
        for dx in range(-4, 5):
            v = padded[4 + dy : 4 + dy + height, 4 + dx : 4 + dx + width]
            w = np.exp(-(dx * dx + dy * dy) * space - (v - own) ** 2 * span)
            total, weights = total + w * v, weights + w
    return total / weights


def median_3x3(image, out, width, height):
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3))
    result = np.zeros_like(image)
    result[1:-1, 1:-1] = np.median(windows, axis=(2, 3))
    return result


def flood_seeds(seed, out, side, step):
    y, x = np.indices((side, side), np.int32)

    def distance(seeds):
        return (seeds[..., 0] - x) ** 2 + (seeds[..., 1] - y) ** 2

    wide = seed.astype(np.int32)
    best, least = wide.copy(), distance(wide)
    for dy in (-step, 0, step):
        for dx in (-step, 0, step):
            moved = np.full_like(wide, 1 << 14)  # too far away
            moved[max(-dy, 0) : side - max(dy, 0), max(-dx, 0) : side - max(dx, 0)] = wide[
                max(dy, 0) : side + min(dy, 0), max(dx, 0) : side + min(dx, 0)
            ]
            apart = distance(moved)
            np.copyto(best, moved, where=(apart < least)[..., None])
            least = np.minimum(least, apart)
    return best


def blend_rays(density, colour, out, rays, steps, length):
    alpha = 1 - np.exp(-doubles(density) * length)
    left = np.cumprod(1 - alpha, axis=1)
    before = np.concatenate([np.ones((rays, 1)), left[:, :-1]], axis=1)
    weight = alpha * before * (before >= 1e-4)
    return np.einsum("rs,rsc->rc", weight, doubles(colour))


def sha256_blocks(message, out, n):
    def turn(x, k):
        return x >> np.uint32(k) | x << np.uint32(32 - k)

    w = [message[:, t].byteswap() for t in range(16)]
    for t in range(16, 64):
        s0 = turn(w[t - 15], 7) ^ turn(w[t - 15], 18) ^ w[t - 15] >> np.uint32(3)
        s1 = turn(w[t - 2], 17) ^ turn(w[t - 2], 19) ^ w[t - 2] >> np.uint32(10)
        w.append(w[t - 16] + s0 + w[t - 7] + s1)
    words = "6a09e667 bb67ae85 3c6ef372 a54ff53a 510e527f 9b05688c 1f83d9ab 5be0cd19"
    start = np.array([int(word, 16) for word in words.split()], np.uint32)
    a, b, c, d, e, f, g, h = (np.full(n, word) for word in start)
    for t in range(64):
        one = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g))
        one = one + np.uint32(t) + w[t]
        two = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))
        a, b, c, d, e, f, g, h = one + two, a, b, c, d + one, e, f, g
    return np.stack([a, b, c, d, e, f, g, h], axis=1) + start


def cipher_tables(x, out, table, key, n):
    def turn(words, k):
        return words << np.uint32(k) | words >> np.uint32(32 - k)

    s = [x[:, c] ^ key[c] for c in range(4)]
    for place in range(1, 11):
        s = [
            table[s[c] & 255]
            ^ turn(table[s[(c + 1) % 4] >> 8 & 255], 8)
            ^ turn(table[s[(c + 2) % 4] >> 16 & 255], 16)
            ^ turn(table[s[(c + 3) % 4] >> 24], 24)
            ^ key[4 * place + c]
            for c in range(4)
        ]
    return np.stack(s, axis=1)


def checksum_pieces(data, out, table, pieces):
    crc = np.full(pieces, 0xFFFFFFFF, np.uint32)
    for column in data.T:
        crc = table[(crc ^ column) & 255] ^ crc >> np.uint32(8)
    return ~crc


def edit_distance(a, b, out, n):
    a, b = a.T.copy(), b.T.copy()
    row = np.repeat(np.arange(33, dtype=np.int8)[:, None], n, axis=1)
    for y in range(32):
        above, row = row, np.empty_like(row)
        row[0] = y + 1
        for x in range(32):
            cost = above[x] + (a[y] != b[x])
            row[x + 1] = np.minimum(cost, np.minimum(row[x], above[x + 1]) + 1)
    return row[32]


def test_filter(bits, key, found, n, mask):
    h, every = key.copy(), np.ones(n, bool)
    step = key * np.uint32(0x85EBCA6B) | np.uint32(1)
    for _ in range(4):
        x = (h ^ h >> np.uint32(16)) * np.uint32(0x7FEB352D)
        x ^= x >> np.uint32(15)
        every &= (bits[(x & np.uint32(mask)) >> 5] >> (x & 31) & 1).astype(bool)
        h = h + step
    return every


def count_words(base, count, n):
    letters = (base & 3).astype(np.int64)
    word = sum(letters[k : n - 7 + k] << 2 * (7 - k) for k in range(8))
    return np.bincount(word, minlength=65536)


def merge_sorted(a, b, out, n):
    return np.sort(np.concatenate([a, b]))


def count_digits(key, count, n, shift):
    digits = (key >> np.uint32(shift) & 15).reshape(1024, -1)
    return np.stack([np.bincount(row, minlength=16) for row in digits], axis=1)


def lattice_step(before, after, side, omega):
    ways = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
    f = np.stack(
        [np.roll(doubles(p), (y, x), (0, 1)) for p, (x, y) in zip(before, ways, strict=True)]
    )
    rho = f.sum(axis=0)
    u, v = (np.tensordot([way[axis] for way in ways], f, 1) / rho for axis in (0, 1))
    weights = [4 / 9] + 4 * [1 / 9] + 4 * [1 / 36]
    rest = []
    for weight, (x, y) in zip(weights, ways, strict=True):
        along = 3 * (x * u + y * v)
        rest.append(weight * rho * (1 + along + along**2 / 2 - 1.5 * (u * u + v * v)))
    return f + omega * (np.stack(rest) - f)


def reduce_tridiagonal(lower, middle, upper, right, out):
    a, b, c, d = (doubles(x).T.copy() for x in (lower, middle, upper, right))
    for i in range(1, 256):
        share = a[i] / b[i - 1]
        b[i] -= share * c[i - 1]
        d[i] -= share * d[i - 1]
    x = np.empty_like(d)
    x[255] = d[255] / b[255]
    for i in range(254, -1, -1):
        x[i] = (d[i] - c[i] * x[i + 1]) / b[i]
    return x.T


def factor_blocks(matrix):
    return np.linalg.cholesky(doubles(matrix))


def search_motion(current, before, out, width):
    blocks = current.astype(np.int64).reshape(30, 16, 40, 16)
    result = np.zeros((30, 40, 16, 16))
    for y in range(16):
        for x in range(16):
            moved = before[y : y + 480, x : x + 640].astype(np.int64).reshape(30, 16, 40, 16)
            result[:, :, y, x] = np.abs(blocks - moved).sum(axis=(1, 3))
    return result.reshape(out.shape)


def multiply_links(a, b, c, sites):
    right = doubles(b).view(complex).reshape(4, 3, 3)

    def of_sites(a):
        left = doubles(a).view(complex).reshape(-1, 4, 3, 3)
        product = np.empty_like(left)
        for way in range(4):
            product[:, way] = (left[:, way].reshape(-1, 3) @ right[way]).reshape(-1, 3, 3)
        return product.view(float).reshape(a.shape)

    return in_pieces(of_sites, a)


def dot_parts(a, b, total, n):
    return (a * b).reshape(-1, 256, 1024).sum(axis=(0, 2))


def relax_red(u, right, side, h2):
    new = doubles(u)
    y, x = np.indices((side, side))[:, 1:-1, 1:-1]
    near = new[1:-1, :-2] + new[1:-1, 2:] + new[:-2, 1:-1] + new[2:, 1:-1]
    relaxed = 0.25 * (near - h2 * doubles(right)[1:-1, 1:-1])
    new[1:-1, 1:-1] = np.where((x + y) % 2 == 0, relaxed, new[1:-1, 1:-1])
    return new


def restrict_grid(fine, coarse, side):
    return doubles(fine).reshape(side, 2, side, 2, side, 2).mean(axis=(1, 3, 5))


def multiply_entries(row, column, value, x, y, n):
    return np.bincount(row, doubles(value) * x[column], len(y))


def sample_products(row, column, a, b, out, n, size):
    return (doubles(a)[row] * doubles(b)[column]).sum(axis=1)


def transform_haar(rows, out, width):
    result, left = np.zeros(rows.shape), doubles(rows)
    while left.shape[1] > 1:
        half = left.shape[1] // 2
        result[:, half : 2 * half] = (left[:, ::2] - left[:, 1::2]) / np.sqrt(2)
        left = (left[:, ::2] + left[:, 1::2]) / np.sqrt(2)
    result[:, :1] = left
    return result
