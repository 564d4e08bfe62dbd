"""A tool that forks. Each half is counted by a child process that writes its answer to a pipe."""

import os


def is_prime(number):
    return number > 1 and all(number % factor for factor in range(2, int(number**0.5) + 1))


def count_in_child(first, last):
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        found = sum(map(is_prime, range(first, last)))
        os.write(write_end, str(found).encode())
        os._exit(0)
    os.close(write_end)
    return child, read_end


def count(limit):
    middle = limit * 3 // 5
    children = [count_in_child(0, middle), count_in_child(middle, limit)]
    total = 0
    for child, read_end in children:
        with os.fdopen(read_end) as pipe:
            total += int(pipe.read())
        os.waitpid(child, 0)
    return total
