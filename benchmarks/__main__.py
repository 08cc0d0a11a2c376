"""`python -m benchmarks NAME ...`, which is what `headrace bench NAME` runs in a checkout."""

from __future__ import annotations

import sys

from benchmarks import broker

BENCHES = {"broker": broker.main}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in BENCHES:
        sys.exit(f"usage: python -m benchmarks {'|'.join(BENCHES)} ...")
    sys.exit(BENCHES[sys.argv[1]](sys.argv[2:]))
