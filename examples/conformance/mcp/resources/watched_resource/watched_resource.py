def read():
    return "Watched resource content."
