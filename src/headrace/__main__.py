"""`python -m headrace` is the command line tool."""

from __future__ import annotations

from headrace.cli import main

if __name__ == "__main__":
    main()
