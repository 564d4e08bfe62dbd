"""Helpers of table_summary. array_statistics has a `common` of its own: the two never meet."""


def require_columns(frame, names):
    missing = [name for name in names if name not in frame.columns]
    if missing:
        known = ", ".join(map(str, frame.columns))
        raise KeyError(f"no column {', '.join(missing)}; the table has {known}")
