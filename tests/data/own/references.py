"""What the kernels beside this file must compute, in float64."""

import numpy as np


def reduce_shuffle(x, total, n):
    return total + x.sum(dtype=np.float64)


def reduce_shared(x, sums, n):
    padded = np.zeros(sums.size * 256)
    padded[:n] = x
    return padded.reshape(-1, 256).sum(axis=1)


def histogram(values, bins, n):
    return bins + np.bincount(values, minlength=256)


def stencil3d(box, out, nx, ny, nz, c):
    box = box.astype(np.float64)
    inside = slice(1, -1)
    around = (
        box[inside, inside, :-2]
        + box[inside, inside, 2:]
        + box[inside, :-2, inside]
        + box[inside, 2:, inside]
        + box[:-2, inside, inside]
        + box[2:, inside, inside]
    )
    here = box[inside, inside, inside]
    result = out.astype(np.float64)
    result[inside, inside, inside] = here + c * (around - 6 * here)
    return result


def csr(start, column, value, x, y, rows):
    products = np.concatenate([[0.0], np.cumsum(value.astype(np.float64) * x[column])])
    return products[start[1:]] - products[start[:-1]]


def softmax(matrix, out, columns):
    matrix = matrix.astype(np.float64)
    powers = np.exp(matrix - matrix.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def nbody(bodies, acceleration, n, softening):
    bodies = bodies.astype(np.float64)
    result = np.zeros((n, 4))
    for first in range(0, n, 256):  # some at once: all pairs would take much memory
        apart = bodies[None, :, :3] - bodies[first : first + 256, None, :3]
        distance = np.sqrt((apart**2).sum(axis=2) + softening)
        pull = bodies[None, :, 3] / distance**3
        result[first : first + 256, :3] = (apart * pull[:, :, None]).sum(axis=1)
    return result


def copy4(source, target, n):
    return source


def particles(particles, n, dt):
    x, y, z, vx, vy, vz, mass = particles.astype(np.float64).T
    vz = vz - 9.81 * dt
    return np.stack([x + vx * dt, y + vy * dt, z + vz * dt, vx, vy, vz, mass], axis=1)


def daxpy(a, x, y, n):
    return a * x + y
