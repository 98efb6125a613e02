"""Script that reads a command from a JSON file and replaces itself with it: for commands too long for a terminal."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main(path: Path) -> None:
    """Read a command from the JSON file `path`, delete the file, and replace this process with the command.

    The file can name a directory (`cwd`), a full environment (`env`), or variables to add (`given`).
    """
    command = json.loads(path.read_bytes())
    path.unlink()
    if "cwd" in command:
        os.chdir(command["cwd"])
    argv = command["argv"]
    os.execvpe(argv[0], argv, command.get("env", {**os.environ, **command.get("given", {})}))  # noqa: S606 - no shell is what we want


if __name__ == "__main__":
    main(Path(sys.argv[1]))
