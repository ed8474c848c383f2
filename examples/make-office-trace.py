#!/usr/bin/env python3
"""Writes the synthetic trace of examples/plan.toml: two volumes that share an array for five minutes.

`mail` reads and writes 8 KiB with a skewed popularity over 128 MiB; `archive` reads 16 KiB anywhere in 8 GiB. Both
arrive as Poisson processes, 45 and 70 requests per second. One seed, so one trace:

    python3 examples/make-office-trace.py > office.csv
    forebay trace convert office.csv -o office.fbt && zstd -19 office.fbt -o examples/office.fbt.zst
"""

import random

SECONDS = 300
random.seed(20)


def arrivals(rate):
    """Times in seconds of a Poisson process."""
    now = 0.0
    while (now := now + random.expovariate(rate)) < SECONDS:
        yield now


def rank(count, skew):
    """A rank from 0 to count - 1, drawn by the inverse of a power law's continuous distribution."""
    top = count ** (1 - skew)
    return min(count - 1, int((1 + random.random() * (top - 1)) ** (1 / (1 - skew))) - 1)


requests = []
for time in arrivals(45):
    # Popular blocks are not neighbours: a multiplication by an odd number spreads them.
    block = rank(16384, 1.15) * 40503 % 16384
    requests.append((time, "mail", "Read" if random.random() < 0.75 else "Write", block * 8192, 8192))
for time in arrivals(70):
    requests.append((time, "archive", "Read", random.randrange(8 << 30 >> 14) << 14, 16384))

for time, host, kind, offset, length in sorted(requests):
    print(f"{128166372000000000 + int(time * 1e7)},{host},0,{kind},{offset},{length},0")
