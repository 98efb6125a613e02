"""For commands that are too long for tmux. A script: becomes the command in the JSON file that it is given."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main(path: Path) -> None:
    """Read the command, remove the file, become the command."""
    argv = json.loads(path.read_bytes())
    path.unlink()
    os.execvp(argv[0], argv)  # noqa: S606 - no shell is what we want


if __name__ == "__main__":
    main(Path(sys.argv[1]))
