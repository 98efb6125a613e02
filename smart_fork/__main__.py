"""The program: ``smart-fork``, and ``python -m smart_fork``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command. What agents and shells wait for is decided on before anything large is imported."""
    if sys.argv[1:2] == ["mcp"]:
        from smart_fork.front.greeting import serve

        serve(sys.argv[2:])
    if sys.argv[1:] == ["welcome"]:
        from smart_fork.terminal.welcome import main as welcome

        welcome()
    from smart_fork.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
