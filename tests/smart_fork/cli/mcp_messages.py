"""Messages that an MCP client sends, for the tests of ``mcp``."""

from __future__ import annotations

from typing import Any


def request(number: int | str, method: str, **params: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def call(number: int | str, tool: str, **arguments: object) -> dict[str, Any]:
    return request(number, "tools/call", name=tool, arguments=arguments)


def told(method: str, **params: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


INITIALIZE = request(
    0, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "x", "version": "1"}
)
