"""Entry point of ``python -m smart_fork.cli``: the whole command line.

Here the command ``mcp`` always starts the complete MCP server. The installed program ``smart-fork`` instead answers an
MCP client's first requests from a file of ready answers (see `mcp_handshake`).
"""

from smart_fork.cli.main import main

main()
