"""`python -m benchmarks NAME ...`, which is what `headrace bench NAME` runs in a checkout."""

from __future__ import annotations

import sys

from benchmarks import broker, groups, handlers
from benchmarks.bench import Bench
from benchmarks.handlers import HandlersBench

BENCHES: dict[str, Bench | HandlersBench] = {
    bench.name: bench for bench in (broker.BENCH, groups.BENCH, handlers.BENCH)
}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in BENCHES:
        sys.exit(f"usage: python -m benchmarks {'|'.join(BENCHES)} ...")
    sys.exit(BENCHES[sys.argv[1]].main(sys.argv[2:]))
