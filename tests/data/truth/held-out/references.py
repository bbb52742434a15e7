"""What the kernels beside this file must compute, by NumPy, in float64."""

import numpy as np


def _wide(array):
    return np.asarray(array, np.float64)


def _in_pieces(function, *arrays):
    """What a function gives for all rows, of some at a time: its temporaries stay in the caches."""
    rows = len(arrays[0])
    step = max(1, (rows << 15) // arrays[0].size)
    for start in range(0, rows, step):
        piece = slice(start, start + step)
        part = function(*(array[piece] for array in arrays))
        if start == 0:
            result = np.empty_like(part, shape=(rows, *part.shape[1:]))
        result[piece] = part
    return result


def scan_tree(a, out):
    rows = a.reshape(-1, 512)
    return (rows.cumsum(axis=1) - rows).reshape(-1)


def add_offsets(offset, data):
    return (data.reshape(offset.size, -1) + offset[:, None]).reshape(-1)


def sort_insertion(a, out, threads):
    return np.sort(a.reshape(16, threads), axis=0).reshape(a.shape)


def sort_odd_even(a, out):
    return np.sort(a.reshape(-1, 256), axis=1).reshape(-1)


def histogram(values, bins, n):
    return bins + np.bincount(values, minlength=bins.size)


def group_minima(group, key, least, n):
    result = least.copy()
    np.minimum.at(result, group, key)
    return result


def total(a, out, n):
    return np.array([_wide(a).sum()])


def row_sums(a, out):
    return _in_pieces(lambda rows: _wide(rows).sum(axis=1), a.reshape(out.size, -1))


def convolve_depthwise(image, weight, out, width, height):
    image, weight, result = _wide(image), _wide(weight), np.zeros(out.shape)
    for r in range(3):
        for q in range(3):
            result += weight[:, r, q, None, None] * image[:, r : r + height, q : q + width]
    return result


def image_to_columns(image, out, channels, width, height):
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1)))
    parts = [padded[:, r : r + height, q : q + width] for r in range(3) for q in range(3)]
    return np.stack(parts, axis=1)


def pool_max(image, out, width, height):
    return image.reshape(-1, height, 2, width, 2).max(axis=(2, 4))


def blur_rows(image, out, width):
    sums = np.cumsum(np.pad(_wide(image), ((0, 0), (9, 8))), axis=1)
    return (sums[:, 17:] - sums[:, :-17]) / 17


def life(cells, out, width, height):
    rows = cells + np.roll(cells, 1, axis=1) + np.roll(cells, -1, axis=1)
    three = rows + np.roll(rows, 1, axis=0) + np.roll(rows, -1, axis=0)
    return (three == 3) | ((three == 4) & (cells > 0))


def bias_silu(x, bias, out, pairs, columns):
    v = _wide(x) + _wide(bias)
    return v / (1 + np.exp(-v))


def add_norm(x, residual, out, rows):
    v = _wide(x) + _wide(residual)
    return v / np.sqrt((v**2).mean(axis=1, keepdims=True) + 1e-5)


def product_4_bits(weight, scale, x, y, rows, words):
    nibbles = (weight[:, :, None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
    return (nibbles.reshape(rows, -1).astype(int) - 8) @ _wide(x) * scale


def batch_statistics(a, out, images, channels, size):
    a = _wide(a)
    return np.stack([a.mean(axis=(0, 2)), a.var(axis=(0, 2))], axis=1)


def embedding_bag(token, table, out, each, columns):
    return _wide(table)[token.reshape(-1, each)].mean(axis=1)


def smooth_in_time(a, out, keep, steps, columns):
    a, result, state = _wide(a), np.empty(out.shape), np.zeros(columns)
    for step in range(steps):
        state = keep * state + (1 - keep) * a[step]
        result[step] = state
    return result


def coo_product(row, column, value, x, y, entries):
    return y + np.bincount(row, _wide(value) * x[column], minlength=y.size)


def csr_columns(start, column, value, b, c, rows):
    def of_rows(first, end):
        these = slice(first[0], end[-1])
        products = _wide(value[these])[:, None] * b[column[these]]
        row = np.flatnonzero(end > first)
        sums = np.zeros((len(first), b.shape[1]))
        sums[row] = np.add.reduceat(products, first[row] - first[0])
        return sums

    return _in_pieces(of_rows, start[:-1], start[1:])


def product_transposed(a, x, y, columns):
    return y + _wide(x) @ _wide(a)


def solve_small(a, b, x, systems):
    matrices = _wide(a).reshape(8, 8, systems).transpose(2, 0, 1) + 8 * np.eye(8)
    return np.linalg.solve(matrices, _wide(b).T[:, :, None])[:, :, 0].T


def search_tree(tree, query, out, levels, n):
    node = np.ones(n, np.int64)
    for _ in range(levels):
        node = 2 * node + (query >= tree[node])
    return node


def product(a, b, *_):
    return _wide(a) @ _wide(b)


def product_relu(a, b, *_):
    return np.maximum(_wide(a) @ _wide(b), 0)
