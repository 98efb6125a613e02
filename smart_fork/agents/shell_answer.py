"""Run inside a person's login shell: says, behind a mark, what the variables are set to whose names it is given."""

from __future__ import annotations

import json
import os
import sys


def main(mark: str, *names: str) -> None:
    """Say it."""
    sys.stdout.write(mark + json.dumps({name: os.environ[name] for name in names if name in os.environ}))


if __name__ == "__main__":
    main(*sys.argv[1:])
