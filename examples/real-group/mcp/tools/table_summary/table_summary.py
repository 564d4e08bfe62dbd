"""A pandas frame in, plain records out."""

import io

import pandas as pd
from common import require_columns


def summarise(csv, group_by, value):
    frame = pd.read_csv(io.StringIO(csv))
    require_columns(frame, [group_by, value])
    totals = frame.groupby(group_by, sort=True)[value].agg(["count", "sum", "mean"])
    return totals.reset_index().to_dict(orient="records")
