"""Helpers of array_statistics. table_summary has a `common` of its own: the two never meet."""


def require_values(values):
    if not values:
        raise ValueError("values is empty: give at least one number")
    return values
