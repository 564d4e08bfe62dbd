import time

from ramen_runtime import log


def run():
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        log("info", message)
        time.sleep(0.05)
    return "done"
