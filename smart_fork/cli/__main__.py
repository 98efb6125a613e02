"""``python -m smart_fork.cli``: the command line itself, whose ``mcp`` is a whole server also beside the service."""

from smart_fork.cli.main import main

main()
