"""What the planted matrix products must hold, in float64."""

import numpy as np


def product(m, n, p, width):
    return m.astype(np.float64) @ n


def rectangle(m, n, p, rows, inner, columns):
    return m.astype(np.float64) @ n


def dynamic(m, n, p, width, m_bytes, n_bytes):
    return m.astype(np.float64) @ n
