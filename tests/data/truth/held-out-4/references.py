"""What the kernels beside this file must compute, by NumPy, in float64."""

import numpy as np

from benchmarks.truth.by_numpy import doubles, in_pieces


def sum_pairs(array, out, n):
    return array.reshape(-1, 512).sum(axis=1)


def sum_last_block(array, partial, ended, total, n):
    # Block b adds the elements at b * 256 + 128 pairs, each 256 * 64 apart.
    of_block = doubles(array).reshape(-1, 64, 256).sum(axis=(0, 2))
    return {"partial": of_block, "ended": [64], "total": [of_block.sum()]}


def scan_fours(array, out):
    rows = array.reshape(-1, 1024)
    return (np.cumsum(rows, axis=1) - rows).reshape(-1)


def _filtered(image):
    padded = np.pad(doubles(image), ((0, 0), (8, 8)))
    return sum((16 - k) * padded[:, k : k + image.shape[1]] for k in range(17))


def filter_rows(image, out, width):
    return in_pieces(_filtered, image)


def filter_columns(image, out, width, height):
    return _filtered(image.T).T


def count_bytes(array, partial):
    bins = array.view(np.uint8).reshape(4096, -1) >> 2
    return np.concatenate([np.bincount(row, minlength=64) for row in bins])


def option_trees(price, strike, value):
    node = np.exp(0.0066 * (2.0 * np.arange(2049) - 2048))
    call = np.maximum(np.outer(price, node) - doubles(strike)[:, None], 0)
    # Steps are linear: 2048 of them weigh the last values by as many terms of a binomial.
    weight = np.ones(1)
    for _ in range(2048):
        weight = np.convolve(weight, [0.4985, 0.5012])
    return call @ weight


def simulate_calls(option, sample, result, paths):
    rows = []
    for price, strike, drift, volatility in doubles(option):
        payoff = np.maximum(price * np.exp(drift + volatility * doubles(sample)) - strike, 0)
        rows.append([payoff.mean(), (payoff**2).mean()])
    return np.array(rows)


def sobol_points(points, direction, out):
    index = np.arange(points, dtype=np.uint32)
    gray = index ^ (index >> 1)
    word = np.zeros((100, points), np.uint32)
    for bit in range(17):
        word ^= np.where(gray >> bit & 1, direction[:, bit, None], np.uint32(0))
    return doubles(word) / 2**32


def cosine_8x8(image, out, width):
    matrix = np.arange(64.0).reshape(8, 8)
    blocks = (doubles(image) - 128).reshape(64, 8, 64, 8)
    return np.einsum("uy,aybx,vx->aubv", matrix, blocks, matrix).reshape(512, 512)


def edges(image, out, width, height):
    p = doubles(image)
    across = p[:, 2:] - p[:, :-2]
    across = across[:-2] + 2 * across[1:-1] + across[2:]
    along = p[2:] - p[:-2]
    along = along[:, :-2] + 2 * along[:, 1:-1] + along[:, 2:]
    return np.pad(np.minimum(255, (np.abs(across) + np.abs(along)) // 2), 1)


def resample(image, out, width, height, wide, high, scale):
    def weights(count, size):
        matrix = np.zeros((count, size))
        for i in range(count):
            whole, a = divmod(i * scale, 1)
            b, c = a * a, a**3
            four = (1 - 3 * a + 3 * b - c, 4 - 6 * b + 3 * c, 1 + 3 * a + 3 * b - 3 * c, c)
            for k, weight in enumerate(four):
                matrix[i, int(np.clip(whole + k - 1, 0, size - 1))] += weight / 6
        return matrix

    return weights(high, height) @ doubles(image) @ weights(wide, width).T


def inner_products(a, b, out, vectors, length):
    return (doubles(a) * doubles(b)).sum(axis=1)


def sum_along_rows(image, out):
    return np.cumsum(image.view(np.uint8).reshape(1080, 1920), axis=1)


def sort_network(key, value, key_out, value_out):
    rows = key.reshape(-1, 1024)
    order = np.argsort(rows, axis=1)
    values = np.take_along_axis(value.reshape(-1, 1024), order, axis=1)
    keys = np.take_along_axis(rows, order, axis=1)
    return {"key_out": keys.reshape(-1), "value_out": values.reshape(-1)}


def token_position(out, token, words, positions, batches, times, channels):
    return (words[token].reshape(batches, -1) + doubles(positions).reshape(-1)).reshape(out.shape)


def norm_rows(out, means, scales, x, weight, bias, rows, channels):
    x = doubles(x)
    mean, scale = x.mean(axis=1), 1 / np.sqrt(x.var(axis=1) + 1e-5)
    normal = scale[:, None] * (x - mean[:, None]) * weight + bias
    return {"out": normal, "means": mean, "scales": scale}


def norm_gradients(weight, bias, gradient, x, means, scales, rows, channels):
    normal = (doubles(x) - means[:, None]) * scales[:, None]
    summed = (normal * gradient).sum(axis=0)
    return {"weight_gradient": summed, "bias_gradient": doubles(gradient).sum(axis=0)}


def softmax_causal(out, scale, x, heads, times):
    def of_rows(x, row):
        shown = np.arange(times) <= row[:, None]
        weight = np.where(shown, np.exp(scale * doubles(x)), 0)
        return weight / weight.sum(axis=1, keepdims=True)

    return in_pieces(of_rows, x, np.arange(heads * times) % times)


def loss_gradient(out, above, probability, target, rows, words):
    wanted = doubles(probability)
    wanted[np.arange(rows), target] -= 1
    return wanted * above[:, None]


def bias_gradient(out, gradient, rows, columns):
    return doubles(gradient).sum(axis=0)


def rms_rows(x, out, columns, eps):
    x = doubles(x)
    return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + eps)


def rotary_angles(x, out, position, size, heads, base):
    power = doubles(base) ** (-np.arange(0, size, 2) / size)
    theta = np.repeat(position, heads)[:, None] * power
    a, b = doubles(x[:, : size // 2]), doubles(x[:, size // 2 :])
    cosine, sine = np.cos(theta), np.sin(theta)
    return np.concatenate([a * cosine - b * sine, a * sine + b * cosine], axis=1)


def _halves(array):
    return doubles(np.ascontiguousarray(array).view(np.float16))


def product_packed(weight, x, out, blocks):
    scale, shift = np.moveaxis(_halves(x[:, :4]), 1, 0)
    given = doubles(x[:, 4:].view(np.int8))

    def of_rows(weight):
        packed = weight[..., 2:]
        values = doubles(np.concatenate([packed & 15, packed >> 4], axis=-1))
        inner = np.einsum("rbk,bk->rb", values, given)
        # Two threads share a block, and each subtracts half of the shift.
        return (_halves(weight[..., :2])[..., 0] * (inner * scale - 8 * shift)).sum(axis=1)

    return in_pieces(of_rows, weight)


def unpack(packed, out, n):
    return (_halves(packed[:, :2]) * packed[:, 2:].view(np.int8)).reshape(-1)


def gelu_gradient(out, x, above, n):
    def of(x, above):
        x = doubles(x)
        tangent = np.tanh(0.7978845608 * (x + 0.044715 * x * x * x))
        slope = 0.7978845608 * (1 + 3 * 0.044715 * x**2) * (1 - tangent**2)
        return (0.5 * (1 + tangent) + 0.5 * x * slope) * above

    return in_pieces(of, x, above)


def decode_part(query, key, value, out, state, tokens):
    key, value = (doubles(array).reshape(8, 8, -1, 128) for array in (key, value))
    score = np.einsum("ghc,gptc->ghpt", doubles(query).reshape(8, 4, 128), key) / np.sqrt(128)
    most = score.max(axis=-1)
    weight = np.exp(score - most[..., None])
    total = weight.sum(axis=-1)
    result = np.einsum("ghpt,gptc->ghpc", weight, value) / total[..., None]
    state = np.stack([most, total], axis=-1)
    return {"out": result.reshape(32, 8, 128), "state": state.reshape(32, 8, 2)}


def attend_tiles(query, key, value, out, times):
    def of_heads(query, key, value):
        score = doubles(query) @ doubles(key).transpose(0, 2, 1) / 8
        weight = np.exp(score - score.max(axis=-1, keepdims=True))
        return weight @ doubles(value) / weight.sum(axis=-1, keepdims=True)

    return in_pieces(of_heads, query, key, value)


def heat_pyramid(steps, power, before, out, columns, rows, border, capacity, rx, ry, rz):
    now = doubles(before)
    for _ in range(steps):
        p = np.pad(now, 1, mode="edge")
        along = (p[2:, 1:-1] + p[:-2, 1:-1] - 2 * now) * ry
        across = (p[1:-1, 2:] + p[1:-1, :-2] - 2 * now) * rx
        now = now + capacity * (power + along + across + (80 - now) * rz)
    return now


def ways_down(rows, wall, before, out, columns, border):
    cost = before
    for row in wall:
        p = np.pad(cost, 1, mode="edge")
        cost = row + np.minimum(cost, np.minimum(p[2:], p[:-2]))
    return cost


def align_diagonal(similar, table, columns, penalty, diagonal):
    table = np.array(table)
    bx = np.arange(diagonal)
    by = diagonal - 1 - bx
    for dy in range(1, 17):
        for dx in range(1, 17):
            y, x = by * 16 + dy, bx * 16 + dx
            across = np.maximum(table[y, x - 1], table[y - 1, x]) - penalty
            table[y, x] = np.maximum(table[y - 1, x - 1] + similar[y, x], across)
    return table


def diffusion_factors(image, east, west, north, south, factor, columns, rows, q0):
    c = doubles(image)
    p = np.pad(c, 1, mode="edge")
    n, s = p[:-2, 1:-1] - c, p[2:, 1:-1] - c
    w, e = p[1:-1, :-2] - c, p[1:-1, 2:] - c
    squares, total = (n**2 + s**2 + w**2 + e**2) / c**2, (n + s + w + e) / c
    q = (0.5 * squares - total**2 / 16) / (1 + 0.25 * total) ** 2
    k = np.clip(1 / (1 + (q - q0) / (q0 * (1 + q0))), 0, 1)
    return {"east": e, "west": w, "north": n, "south": s, "factor": k}


def lu_inner(m, size, offset):
    result = doubles(m).copy()
    result[16:, 16:] -= result[16:, :16] @ result[:16, 16:]
    return result


def expand_frontier(vertex, edge, frontier, reached, visited, cost, n):
    starts, counts = vertex[frontier].T
    first = np.repeat(starts - np.cumsum(counts) + counts, counts)
    to = edge[first + np.arange(counts.sum())]
    found = np.zeros(n, bool)
    found[to] = True
    found &= ~visited
    return {"frontier": np.zeros(n, bool), "reached": found, "cost": found.astype(np.int32)}


def layer_forward(given, products, partial, units):
    result = doubles(products).copy()
    weight = (result[1:, 1:] * given[1:, None]).reshape(-1, 16, 16)
    for power in (2, 4, 8, 16):
        weight[:, ::power] += weight[:, power // 2 :: power]
    result[1:, 1:] = weight.reshape(-1, 16)
    return {"products": result, "partial": weight[:, 0]}


def layer_adjust(delta, units, value, weight, before):
    weight, before = doubles(weight).copy(), doubles(before).copy()
    step = 0.3 * np.outer(value[1:], doubles(delta)[1:]) + 0.3 * before[1:, 1:]
    weight[1:, 1:] += step
    before[1:, 1:] = step
    return {"weight": weight, "before": before}


def eliminate(factor, a, b, size, step):
    a, b = doubles(a).copy(), doubles(b).copy()
    a[1:] -= factor[1:, :1] * a[:1]
    b[1:] -= factor[1:, 0] * b[0]
    return {"a": a, "b": b}


def assign_clusters(feature, centre, cluster, points, features, clusters):
    distance = [((doubles(feature) - row[:, None]) ** 2).sum(axis=0) for row in centre]
    return np.argmin(distance, axis=0)


def distances(place, distance, n, x, y):
    return np.hypot(x - doubles(place)[:, 0], y - doubles(place)[:, 1])


def gain_of_centre(n, dimensions, centre, x, weight, cost, lower):
    distance = ((doubles(x) - x[:, centre, None]) ** 2).sum(axis=0)
    return np.minimum(distance * weight - cost, 0)


def rows_by_threads(a, x, out, rows, columns):
    return doubles(a) @ x


def correlate(out, data, columns, rows):
    result = doubles(data).T @ doubles(data)
    result[np.diag_indices(columns)] = 1
    result[-1, -1] = 0
    return result


def field_step(ex, ey, hz, nx, ny):
    return hz - 0.7 * (np.diff(doubles(ex), axis=1) + np.diff(doubles(ey), axis=0))


def column_length(a, r, k, rows, columns):
    result = doubles(r).copy()
    result[k, k] = np.sqrt((doubles(a)[:, k] ** 2).sum())
    return result


def project_columns(a, r, q, k, rows, columns):
    a, r = doubles(a).copy(), doubles(r).copy()
    r[k, k + 1 :] = doubles(q)[:, k] @ a[:, k + 1 :]
    a[:, k + 1 :] -= np.outer(q[:, k], r[k, k + 1 :])
    return {"a": a, "r": r}


def rank_update(alpha, beta, a, c, n, m):
    return beta * doubles(c) + alpha * (doubles(a) @ doubles(a).T)


def stencil_plane(a, b, i, nj, nk):
    terms = [
        *((2, -1, -1, -1), (4, 1, -1, -1), (5, -1, 0, -1), (7, 1, 0, -1), (-8, -1, 1, -1)),
        *((10, 1, 1, -1), (-3, 0, -1, 0), (6, 0, 0, 0), (-9, 0, 1, 0), (2, -1, -1, 1)),
        (4, 1, 1, 1),
    ]
    result = doubles(b).copy()
    for factor, di, dj, dk in terms:
        part = a[i + di, 1 + dj : nj - 1 + dj, 1 + dk : nk - 1 + dk]
        result[i, 1 : nj - 1, 1 : nk - 1] += factor * doubles(part)
    return result


def columns_by_threads(a, r, s, rows, columns):
    return doubles(r) @ doubles(a)


def product(m, n, k, alpha, a, b, beta, c):
    return alpha * (doubles(a) @ doubles(b)) + beta * doubles(c)
