"""Entry point of ``python -m smart_fork.cli``: the whole command line.

Its command ``mcp`` always starts the complete MCP server. The installed program answers an MCP client's first requests
from a file (see `mcp_handshake`).
"""

from smart_fork.cli.main import main

main()
