"""`python -m benchmarks NAME ...`, which is what `headrace bench NAME` runs in a checkout."""

from __future__ import annotations

import sys
from importlib import import_module

# Each is a module here with a BENCH; only the one that is asked for is imported.
BENCHES = ("broker", "dispatch", "groups", "handlers", "services", "spark")

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in BENCHES:
        sys.exit(f"usage: python -m benchmarks {'|'.join(BENCHES)} ...")
    sys.exit(import_module(f"benchmarks.{sys.argv[1]}").BENCH.main(sys.argv[2:]))
