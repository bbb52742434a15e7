"""What the kernels beside this file must compute, by NumPy, in float64."""

import numpy as np

from benchmarks.truth.by_numpy import doubles


def norm_backward(x, gradient, scale, out):
    x, wanted = doubles(x), doubles(gradient) * doubles(scale)
    inverse = 1 / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    normal = (x - x.mean(axis=1, keepdims=True)) * inverse
    along = (wanted * normal).mean(axis=1, keepdims=True)
    return inverse * (wanted - wanted.mean(axis=1, keepdims=True) - normal * along)


def embed(token, table, out, scale):
    return doubles(table)[token] * scale


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_cell(gates, before, cell, hidden, units):
    into, forget, candidate, out = np.moveaxis(doubles(gates), 1, 0)
    state = _sigmoid(forget) * before + _sigmoid(into) * np.tanh(candidate)
    return {"cell": state, "hidden": _sigmoid(out) * np.tanh(state)}


def attend_one(query, key, value, out):
    score = np.einsum("hc,htc->ht", doubles(query), doubles(key)) / 8
    weight = np.exp(score - score.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    return np.einsum("ht,htc->hc", weight, doubles(value))


def top_four(rows, out):
    return -np.sort(-rows, axis=1)[:, :4]


def filter_signal(signal, taps, out, n):
    padded = np.pad(doubles(signal), 16)
    return sum(taps[t] * padded[t : t + n] for t in range(33))


def ell_product(column, value, x, y, rows):
    return (doubles(value) * doubles(x)[column]).sum(axis=0)


def rows_by_warps(column, value, x, y):
    return (doubles(value) * doubles(x)[column]).sum(axis=1)


def twiddle_transpose(array, out, n):
    index = np.arange(n, dtype=np.int64)
    wide = doubles(array)
    factor = np.exp(-2j * np.pi * np.outer(index, index) / n**2)
    turned = ((wide[..., 0] + 1j * wide[..., 1]) * factor).T
    return np.stack([turned.real, turned.imag], axis=-1)


def smooth_3d(array, out, n):
    padded, result = np.pad(array, 1), np.empty(array.shape)
    for z in range(n):
        planes = padded[z : z + 3].sum(axis=0, dtype=np.float64)
        rows = planes[:-2] + planes[1:-1] + planes[2:]
        result[z] = (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) / 27
    return result


def products_32(a, b, out):
    return doubles(a) @ doubles(b)


def count_private(values, bins, n):
    return np.bincount(values >> 27, minlength=32)


def run_starts(values, starts, many):
    start = np.r_[True, values[1:] != values[:-1]].reshape(-1, 256)
    packed = np.zeros_like(starts).reshape(-1, 256)
    for block, flags in enumerate(start):
        packed[block, : flags.sum()] = np.flatnonzero(flags) + 256 * block
    return {"starts": packed.reshape(-1), "many": start.sum(axis=1)}


def lower_bounds(table, key, out):
    return np.searchsorted(table, key)
