"""What the kernels beside this file must compute, by NumPy, in float64."""

import numpy as np

from benchmarks.truth.by_numpy import doubles, in_pieces


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
    return np.array([doubles(a).sum()])


def row_sums(a, out):
    return in_pieces(lambda rows: doubles(rows).sum(axis=1), a.reshape(out.size, -1))


def convolve_depthwise(image, weight, out, width, height):
    image, weight, result = doubles(image), doubles(weight), np.zeros(out.shape)
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
    sums = np.cumsum(np.pad(doubles(image), ((0, 0), (9, 8))), axis=1)
    return (sums[:, 17:] - sums[:, :-17]) / 17


def life(cells, out, width, height):
    rows = cells + np.roll(cells, 1, axis=1) + np.roll(cells, -1, axis=1)
    three = rows + np.roll(rows, 1, axis=0) + np.roll(rows, -1, axis=0)
    return (three == 3) | ((three == 4) & (cells > 0))


def bias_silu(x, bias, out, pairs, columns):
    v = doubles(x) + doubles(bias)
    return v / (1 + np.exp(-v))


def add_norm(x, residual, out, rows):
    v = doubles(x) + doubles(residual)
    return v / np.sqrt((v**2).mean(axis=1, keepdims=True) + 1e-5)


def product_4_bits(weight, scale, x, y, rows, words):
    nibbles = (weight[:, :, None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
    return (nibbles.reshape(rows, -1).astype(int) - 8) @ doubles(x) * scale


def batch_statistics(a, out, images, channels, size):
    a = doubles(a)
    return np.stack([a.mean(axis=(0, 2)), a.var(axis=(0, 2))], axis=1)


def embedding_bag(token, table, out, each, columns):
    return doubles(table)[token.reshape(-1, each)].mean(axis=1)


def smooth_in_time(a, out, keep, steps, columns):
    a, result, state = doubles(a), np.empty(out.shape), np.zeros(columns)
    for step in range(steps):
        state = keep * state + (1 - keep) * a[step]
        result[step] = state
    return result


def coo_product(row, column, value, x, y, entries):
    return y + np.bincount(row, doubles(value) * x[column], minlength=y.size)


def csr_columns(start, column, value, b, c, rows):
    def of_rows(first, end):
        these = slice(first[0], end[-1])
        products = doubles(value[these])[:, None] * b[column[these]]
        row = np.flatnonzero(end > first)
        sums = np.zeros((len(first), b.shape[1]))
        sums[row] = np.add.reduceat(products, first[row] - first[0])
        return sums

    return in_pieces(of_rows, start[:-1], start[1:])


def product_transposed(a, x, y, columns):
    return y + doubles(x) @ doubles(a)


def solve_small(a, b, x, systems):
    matrices = doubles(a).reshape(8, 8, systems).transpose(2, 0, 1) + 8 * np.eye(8)
    return np.linalg.solve(matrices, doubles(b).T[:, :, None])[:, :, 0].T


def search_tree(tree, query, out, levels, n):
    node = np.ones(n, np.int64)
    for _ in range(levels):
        node = 2 * node + (query >= tree[node])
    return node


def product(a, b, *_):
    return doubles(a) @ doubles(b)


def product_relu(a, b, *_):
    return np.maximum(doubles(a) @ doubles(b), 0)
