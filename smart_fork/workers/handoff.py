"""For commands that a place cannot take as they are. A script: becomes the command in the JSON file it is given."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main(path: Path) -> None:
    """Read the command, remove the file, become the command.

    In a directory of its own, if it has one; with an environment of its own, or what it is given beside ours.
    """
    command = json.loads(path.read_bytes())
    path.unlink()
    if "cwd" in command:
        os.chdir(command["cwd"])
    argv = command["argv"]
    os.execvpe(argv[0], argv, command.get("env", {**os.environ, **command.get("given", {})}))  # noqa: S606 - no shell is what we want


if __name__ == "__main__":
    main(Path(sys.argv[1]))
