"""What the kernels beside this file must compute, by NumPy, in float64."""

from itertools import pairwise

import numpy as np

from benchmarks.truth.by_numpy import doubles, in_pieces

NF4 = np.array(
    [
        *(-1.0, -0.69619280, -0.52507305, -0.39491749, -0.28444138, -0.18477343),
        *(-0.09105004, 0.0, 0.07958030, 0.16093020, 0.24611230, 0.33791524),
        *(0.44070983, 0.56261700, 0.72295684, 1.0),
    ]
)


def _fused(a, b, c):
    """`a * b + c` of float32s, rounded once."""
    return np.float32(doubles(a) * doubles(b) + doubles(c))


def gemv_int8(weight, x, w_scale, x_scale, y, rows, cols16):
    return (doubles(weight) @ doubles(x)) * doubles(w_scale) * x_scale


def gemv_q4_blocks(weight, x, y, rows, blocks):
    packed = weight.reshape(rows, blocks, 18)
    scale = doubles(np.ascontiguousarray(packed[..., :2]).view(np.float16))
    q = packed[..., 2:].astype(np.int64)
    values = np.concatenate([(q & 15) - 8, (q >> 4) - 8], axis=-1)
    return (scale * values).reshape(rows, -1) @ doubles(x)


def dequantize_nf4(packed, absmax, out, words):
    four = np.stack([packed >> 4 * k & 15 for k in range(8)], axis=1)
    return (NF4[four].reshape(-1, 64) * doubles(absmax)[:, None]).reshape(out.shape)


def reshape_and_cache(key, value, keys, values, slots, heads, size):
    keys, values = keys.copy(), values.copy()
    block, offset = slots // 16, slots % 16
    keys[block, :, :, offset] = key.reshape(-1, heads, size // 8, 8)
    values[block, :, :, offset] = value.reshape(-1, heads, size)
    return {"key_cache": keys, "value_cache": values}


def reorder_beams(x, out, parent, beams, words):
    return x[parent]


def align_experts(ids, ordered, tile_expert, total, n, tile):
    count = np.bincount(ids, minlength=64)
    padded = -(-count // tile) * tile
    first = np.cumsum(padded) - padded
    ordered, experts = ordered.copy(), tile_expert.copy()
    for expert in range(64):
        ordered[first[expert] : first[expert] + count[expert]] = np.flatnonzero(ids == expert)
    owners = np.repeat(np.arange(64), padded // tile)
    experts[: len(owners)] = owners
    return {"sorted_ids": ordered, "tile_expert": experts, "total": [padded.sum()]}


def apply_penalties(logits, counts, in_prompt, repetition, frequency, presence, temperature, vocab):
    def of_rows(logits, counts, in_prompt, r, frequency, presence, temperature):
        x, r = doubles(logits), doubles(r)[:, None]
        seen = (counts > 0) | in_prompt.astype(bool)
        x = np.where(seen, np.where(x > 0, x / r, x * r), x)
        x = x - doubles(frequency)[:, None] * counts - doubles(presence)[:, None] * (counts > 0)
        return x / doubles(temperature)[:, None]

    return in_pieces(
        of_rows, logits, counts, in_prompt, repetition, frequency, presence, temperature
    )


def sample_inverse(probs, uniform, sampled, vocab):
    above = np.cumsum(doubles(probs), axis=1) > doubles(uniform)[:, None]
    return np.where(above.any(axis=1), above.argmax(axis=1), vocab - 1)


def radix_select(x, kth, width, k):
    return np.sort(x, axis=1)[:, -k]


def combine_splits(partial, lse, out, splits, size):
    weight = np.exp(doubles(lse) - doubles(lse).max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    return (weight[..., None] * doubles(partial)).sum(axis=1)


def norm_heads(qkv, weight, heads, eps):
    def of_rows(qkv):
        x = doubles(qkv)
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps) * doubles(weight)

    return in_pieces(of_rows, qkv)


def softmax_masked(out, x, mask, scale, rows):
    def of_rows(x, mask):
        logits = np.where(mask, -10000.0, scale * doubles(x))
        share = np.exp(logits - logits.max(axis=1, keepdims=True))
        return share / share.sum(axis=1, keepdims=True)

    return in_pieces(of_rows, x, mask)


def scores_causal(q, k, out, n, scale):
    tile = np.arange(n) // 64

    def of_heads(q, k, out):
        scores = scale * doubles(q) @ doubles(k).transpose(0, 2, 1)
        np.copyto(scores, out, where=tile[:, None] < tile)
        return scores

    return in_pieces(of_heads, q, k, out)


def product_three_stages(a, b, c, m, n, k):
    return doubles(a) @ doubles(b)


def dilate_5x5(x, out, width, height):
    padded = np.pad(x, 2, mode="edge")
    shifts = [padded[j : j + height, i : i + width] for j in range(5) for i in range(5)]
    return np.maximum.reduce(shifts)


def box_columns(x, out, w, h, r):
    padded = np.pad(doubles(x), ((r + 1, r), (0, 0)), mode="edge").cumsum(axis=0)
    return (padded[2 * r + 1 :] - padded[: -2 * r - 1]) / (2 * r + 1)


def nv12_to_rgb(luma, chroma, rgb, width, height):
    c = 298 * (luma.astype(np.int32) - 16)
    both = chroma.astype(np.int32).repeat(2, axis=0).repeat(2, axis=1) - 128
    d, e = both[..., 0], both[..., 1]
    colours = [c + 409 * e, c - 100 * d - 208 * e, c + 516 * d]
    return np.stack([np.clip((colour + 128) >> 8, 0, 255) for colour in colours], axis=-1)


def integral_rows(x, out, width4):
    return np.cumsum(x, axis=1, dtype=np.uint64)


def undistort(x, out, w, h, focal, k1, k2):
    # Places are single: in float64, a pixel would be read beside the one that the kernel reads.
    single = np.float32
    v, u = np.indices((h, w), single)
    u, v = (u - single(w / 2)) / single(focal), (v - single(h / 2)) / single(focal)
    r2 = _fused(u, u, v * v)
    f = _fused(r2, _fused(r2, single(k2), single(k1)), 1)
    sx = np.clip(_fused(u * f, focal, w / 2), 0, single(w) - single(1.001))
    sy = np.clip(_fused(v * f, focal, h / 2), 0, single(h) - single(1.001))
    ix, iy = sx.astype(int), sy.astype(int)
    ax, ay = doubles(sx - ix)[..., None], doubles(sy - iy)[..., None]
    x = doubles(x)
    above = (1 - ax) * x[iy, ix] + ax * x[iy, ix + 1]
    below = (1 - ax) * x[iy + 1, ix] + ax * x[iy + 1, ix + 1]
    return (1 - ay) * above + ay * below


def march_volume(volume, image, size, width, step, density):
    # Places are single: their error adds up along a ray.
    single = np.float32
    x = y = single(size - 1.01) * (np.arange(width, dtype=single) + single(0.5)) / single(width)
    total, left = np.zeros((width, width)), np.ones((width, width))

    def between(values, place):
        """Values at places between planes, rows or columns."""
        whole = place.astype(int)
        part = doubles(place - whole)[(..., *[None] * (values.ndim - 1))]
        return (1 - part) * values[whole] + part * values[whole + 1]

    for z in np.arange(0, size - 1.01, step):
        # All rays move alike, and those of a row or a column have left the volume at once.
        rows, columns = np.count_nonzero([y <= size - 1.01, x <= size - 1.01], axis=1)
        seen = np.s_[:rows, :columns]
        plane = between(doubles(volume[int(z) : int(z) + 2]), np.array(z - int(z)))
        value = between(between(plane, y[:rows]).T.copy(), x[:columns]).T
        alpha = 1 - np.exp(-density * value * step)
        alpha[left[seen] < 0.01] = 0
        total[seen] += left[seen] * alpha * value
        left[seen] *= 1 - alpha
        x, y = x + single(0.1 * step), y + single(0.05 * step)
    return total


def render_splats(ranges, points, width, xy, conic, features, out):
    pixel, across = np.arange(16)[:, None], width // 16
    image = np.zeros((3, len(ranges) // across, 16, across, 16))
    for tile, (start, end) in enumerate(ranges):
        i = points[start:end]
        a, b, c, opacity = doubles(conic[i]).T
        dx, dy = doubles(xy[i]).T[:, None] - pixel
        dy = dy[:, None]
        power = -0.5 * (a * dx * dx + c * dy * dy) - b * dx * dy
        alpha = np.minimum(0.99, opacity * np.exp(np.minimum(power, 0)))
        alpha[(power > 0) | (alpha < 1 / 255)] = 0
        left = np.cumprod(1 - alpha, axis=2)
        # A pixel ends before the splat that would leave less.
        lasts = left >= 0.0001
        rest = np.where(lasts, left, 1).min(axis=2)
        before = np.concatenate([np.ones((16, 16, 1)), left[..., :-1]], axis=2)
        colour = np.moveaxis((lasts * alpha * before) @ doubles(features[i]), 2, 0)
        image[:, tile // across, :, tile % across] = colour + 0.5 * rest
    return image.reshape(out.shape)


def label_tiles(image, labels, width):
    def of_tiles(tiles):
        label = np.broadcast_to(np.arange(512).reshape(16, 32), tiles.shape).copy()
        down, right = tiles[:, 1:] == tiles[:, :-1], tiles[..., 1:] == tiles[..., :-1]
        while True:
            old = label.copy()
            for low, high, same in (
                (label[:, :-1], label[:, 1:], down),
                (label[..., :-1], label[..., 1:], right),
            ):
                least = np.where(same, np.minimum(low, high), 512)
                np.minimum(low, least, out=low)
                np.minimum(high, least, out=high)
            # The pixel that a label names may have a lower one by now.
            flat = label.reshape(-1, 512)
            label = np.take_along_axis(flat, flat, axis=1).reshape(tiles.shape)
            if (old == label).all():
                return label

    shape = (len(image) // 16, width // 32, 16, 32)
    tiles = image.reshape(shape[0], 16, shape[1], 32).transpose(0, 2, 1, 3)
    label = in_pieces(of_tiles, tiles.reshape(-1, 16, 32)).reshape(shape)
    return label.transpose(0, 2, 1, 3).reshape(image.shape)


def pyramid_down(x, out, rows, cols):
    padded = np.pad(doubles(x), 2, mode="edge")
    taps = np.array([1, 4, 6, 4, 1]) / 16
    down = sum(t * padded[k : k + rows : 2] for k, t in enumerate(taps))
    return sum(t * down[:, k : k + cols : 2] for k, t in enumerate(taps))


def _ones(words):
    """How many bits of 64 are one: they are added by twos, fours and eights, then all bytes."""
    pairs, fours, bytes_ = (np.uint64((2**64 - 1) // n) for n in (3, 5, 17))
    words = words - (words >> 1 & pairs)
    words = (words & fours) + (words >> 2 & fours)
    words = words + (words >> 4) & bytes_
    return words * np.uint64((2**64 - 1) // 255) >> 56


def match_census(left, right, disparity, width):
    padded = np.pad(right, ((0, 0), (63, 0)), constant_values=np.uint64(2**64 - 1))

    def of_rows(left, padded):
        moved = (padded[:, 63 - d : 63 - d + width] for d in range(64))
        return np.argmin([_ones(left ^ right).astype(np.uint8) for right in moved], axis=0)

    return in_pieces(of_rows, left, padded)


def winograd_input(x, out, channels, size, tiles):
    padded = np.pad(doubles(x), ((0, 0), (1, 3), (1, 3)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (4, 4), axis=(1, 2))
    d = windows[:, : 2 * tiles : 2, : 2 * tiles : 2]
    b = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
    return np.einsum("ij,ctujk,lk->ilctu", b, d, b, optimize=True).reshape(out.shape)


def channels_last(x, out, channels, pixels):
    return x.transpose(0, 2, 1)


def _sums_of_rows(start, values):
    total = np.concatenate([[0], np.cumsum(doubles(values), axis=0)])
    return total[start[1:]] - total[start[:-1]]


def pagerank_pull(start, column, degree, rank, out, n, damping):
    share = doubles(rank) / degree
    return (1 - damping) / n + damping * _sums_of_rows(start, share[column])


def count_triangles(start, column, source, total, edges):
    linked = [set(column[a:b].tolist()) for a, b in pairwise(start)]
    ends = zip(source.tolist(), column.tolist(), strict=True)
    return [sum(len(linked[u] & linked[v]) for u, v in ends)]


def bfs_queue(start, column, level, queue, following, count, size, now):
    near = np.unique(np.concatenate([column[start[v] : start[v + 1]] for v in queue[:size]]))
    new, level = near[level[near] == -1], level.copy()
    level[new] = now + 1
    return {"level": level, "next_queue": None, "next_size": [len(new)]}


def _hash32(x):
    x = np.asarray(x, np.uint32)
    x = (x ^ x >> 16) * np.uint32(0x7FEB352D)
    x = (x ^ x >> 15) * np.uint32(0x846CA68B)
    return x ^ x >> 16


def color_step(n, colour, start, column, colours, out):
    source = np.repeat(np.arange(n), np.diff(start))
    rival = (source != column) & (colours[column] == -1)
    own, other = _hash32(source), _hash32(column)
    largest, smallest = np.ones(n, bool), np.ones(n, bool)
    largest[source[rival & (own <= other)]] = False
    smallest[source[rival & (own >= other)]] = False
    new = np.select([largest, smallest], [colour, colour + 1], -1)
    return np.where(colours == -1, new, colours)


def relax_edges(edges, distance, following, m):
    following = following.copy()
    np.minimum.at(following, edges[:, 1], distance[edges[:, 0]] + edges[:, 2])
    return following


def scan_segments(x, flags, out):
    def of_blocks(x, flags):
        blocks, at = doubles(x), np.arange(1024)
        first = np.maximum.accumulate(np.where(flags != 0, at, 0), axis=1)
        total = np.cumsum(blocks, axis=1)
        return total - np.take_along_axis(total - blocks, first, axis=1)

    return in_pieces(of_blocks, x.reshape(-1, 1024), flags.reshape(-1, 1024)).reshape(x.shape)


def probe_table(keys, table, mask, out, n):
    taken = table[:, 0] != 0xFFFFFFFF
    order = np.argsort(table[taken, 0])
    known, values = table[taken, 0][order], table[taken, 1][order]
    place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.where(known[place] == keys, values[place], 0xFFFFFFFF)


def warp_series(a, b, cost, length):
    def of_series(a, b):
        a, b = doubles(a).T, doubles(b).T[::-1]
        # Two diagonals of the table, by row; beyond it, all but the corner is infinite.
        older, old = np.full((2, length + 1, a.shape[1]), np.inf)
        older[0] = 0
        for d in range(2 * length - 1):
            first, end = max(0, d - length + 1), min(d + 1, length)
            last = length - 1 - d
            difference = (a[first:end] - b[last + first : last + end]) ** 2
            before = np.minimum(old[first:end], old[first + 1 : end + 1])
            new = np.full_like(old, np.inf)
            new[first + 1 : end + 1] = difference + np.minimum(older[first:end], before)
            older, old = old, new
        return old[length]

    return in_pieces(of_series, a, b)


def viterbi(observed, transition, emission, back, last, steps, symbols):
    # Single, as there: of two like ways the rounded sums decide.
    score, back = emission.T[observed[:, 0]], back.copy()
    for t in range(1, steps):
        ways = score[:, None] + transition.T
        best = ways.argmax(axis=2)
        back[:, t] = best
        score = np.take_along_axis(ways, best[..., None], axis=2)[..., 0]
        score += emission.T[observed[:, t]]
    return {"back": back, "last": score}


def _complex(array):
    return doubles(array)[..., 0] + 1j * doubles(array)[..., 1]


def _pairs(array):
    return np.stack([array.real, array.imag], axis=-1)


def fft_warp(x, out, batch):
    return in_pieces(lambda rows: _pairs(np.fft.fft(_complex(rows), axis=1)), x)


def ntt_stage(a, roots, half, n, prime):
    blocks = a.astype(np.uint64).reshape(-1, 2, half)
    u, v = blocks[:, 0], blocks[:, 1] * roots[half : 2 * half] % np.uint64(prime)
    both = [(u + v) % np.uint64(prime), (u + np.uint64(prime) - v) % np.uint64(prime)]
    return np.stack(both, axis=1).reshape(-1)


def flip_spins(own, other, accept, nx, ny, black, seed):
    low, rest = np.arange(nx * ny, dtype=np.uint64), np.full(nx * ny, black, np.uint64)
    for r in range(10):
        key = np.uint64((seed + r * 0x9E3779B9) % 2**32)
        product = low * np.uint64(0xD256D193)
        low, rest = product >> np.uint64(32) ^ key ^ rest, product & np.uint64(0xFFFFFFFF)
    drawn = ((low >> np.uint64(8)) / 2**24).reshape(nx, ny)
    odd = np.arange(nx)[:, None] % 2 == 1
    left, right = np.roll(other, 1, axis=1), np.roll(other, -1, axis=1)
    beside = np.where(odd, right, left) if black else np.where(odd, left, right)
    around = np.roll(other, 1, axis=0) + other + np.roll(other, -1, axis=0) + beside
    limit = accept[np.where(own > 0, 5, 0) + (around + 4) // 2]
    return np.where(drawn < limit, -own, own)


def bond_forces(pos, bonds, force, k, length, n):
    p, result = doubles(pos)[:, :3], doubles(force)
    d = p[bonds[:, 1]] - p[bonds[:, 0]]
    r = np.sqrt((d * d).sum(axis=1, keepdims=True) + 1e-6)
    f = k * (r - length) / r * d
    for axis in range(3):
        for side, sign in ((0, 1), (1, -1)):
            result[:, axis] += np.bincount(bonds[:, side], sign * f[:, axis], len(p))
    return result


def update_magnetic(hx, hy, hz, ex, ey, ez, n, c):
    hx, hy, hz = (doubles(field) for field in (hx, hy, hz))
    for z in range(n - 1):
        x, y, near_z = (doubles(field[z]) for field in (ex, ey, ez))
        inner = np.s_[z, :-1, :-1]
        hx[inner] -= c * (np.diff(near_z, axis=0)[:, :-1] - (ey[z + 1] - y)[:-1, :-1])
        hy[inner] -= c * ((ex[z + 1] - x)[:-1, :-1] - np.diff(near_z, axis=1)[:-1])
        hz[inner] -= c * (np.diff(y, axis=1)[:-1] - np.diff(x, axis=0)[:, :-1])
    return {"hx": hx, "hy": hy, "hz": hz}


def advect(out, x, velocity, n, dt):
    rows, columns = np.indices((n, n))
    # Places are single, as in `undistort`.
    px = np.clip(_fused(velocity[..., 0], -dt, columns), 0.5, n - 1.5)
    py = np.clip(_fused(velocity[..., 1], -dt, rows), 0.5, n - 1.5)
    i, j = px.astype(int), py.astype(int)
    s, t, x = doubles(px) - i, doubles(py) - j, doubles(x)
    above = (1 - s) * x[j, i] + s * x[j, i + 1]
    return (1 - t) * above + t * ((1 - s) * x[j + 1, i] + s * x[j + 1, i + 1])


def deposit_charge(px, py, charge, density, n, side):
    ix, iy, result = px.astype(int), py.astype(int), doubles(density).reshape(-1)
    fx, fy = doubles(px) - ix, doubles(py) - iy
    for dy, dx in ((0, 0), (0, 1), (1, 0), (1, 1)):
        share = charge * (fx if dx else 1 - fx) * (fy if dy else 1 - fy)
        result += np.bincount((iy + dy) * side + ix + dx, share, side * side)
    return result.reshape(density.shape)


def moments(x, sums, n4):
    x = doubles(x)
    return [x.sum(), x @ x]


def product_complex(a, b, c, n):
    return _pairs(_complex(a) @ _complex(b))
