"""Runs inside a person's login shell, and prints the values of the named variables behind a mark."""

from __future__ import annotations

import json
import os
import sys


def main(mark: str, *names: str) -> None:
    """Print the values."""
    sys.stdout.write(mark + json.dumps({name: os.environ[name] for name in names if name in os.environ}))


if __name__ == "__main__":
    main(*sys.argv[1:])
