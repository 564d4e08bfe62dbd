def run():
    raise RuntimeError("This tool intentionally returns an error for testing")
