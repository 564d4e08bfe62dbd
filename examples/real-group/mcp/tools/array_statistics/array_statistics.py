"""Numpy scalars and arrays go back as they are: Ramen turns them into JSON numbers and arrays."""

import numpy as np
from common import require_values


def describe(values, bins=4):
    array = np.asarray(require_values(values), dtype=float)
    counts, edges = np.histogram(array, bins=bins)
    return {
        "count": np.int64(array.size),
        "mean": array.mean(),
        "std": array.std(),
        "min": array.min(),
        "max": array.max(),
        "sorted": bool((np.diff(array) >= 0).all()),
        "histogram": counts,
        "edges": edges.round(6),
    }
