import time

from ramen_runtime import progress


def run():
    for current in (0, 50, 100):
        progress(current, 100)
        time.sleep(0.05)
    return "done"
