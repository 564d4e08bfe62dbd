def run(region):
    return region
