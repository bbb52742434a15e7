"""What the planted matrix products must hold, in float64."""

import numpy as np


def product(m, n, p, width):
    return m.astype(np.float64) @ n


def rectangle(m, n, p, rows, inner, columns):
    return m.astype(np.float64) @ n


def dynamic(m, n, p, width, m_bytes, n_bytes):
    return m.astype(np.float64) @ n


def warpgroup_product(a, b, d):
    """Of each of two blocks, the elements of D in the order of its threads (PTX ISA, wgmma)."""
    units = a.astype(np.float64).reshape(8, 2, 8, 8)  # rows / 8, k / 8, rows, k
    left = units.transpose(0, 2, 1, 3).reshape(64, 16)
    right = b.astype(np.float64).reshape(2, 8, 8).transpose(0, 2, 1).reshape(16, 8)
    thread, item = np.divmod(np.arange(512), 4)
    lane = thread % 32
    held = (left @ right)[thread // 32 * 16 + lane // 4 + item // 2 * 8, lane % 4 * 2 + item % 2]
    return np.tile(held, 2)
