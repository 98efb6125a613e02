"""``python -m smart_fork.cli``: the whole command line. Its ``mcp`` is a complete server, without the handshake from a
file.
"""

from smart_fork.cli.main import main

main()
