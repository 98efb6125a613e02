"""Servers of tools for tests. The schemas of tools are made once, since that takes a third of a second."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from mcp.server.mcpserver.tools import Tool

from indexer.default_embedder import Embedder
from smart_fork import server
from smart_fork.server import Server
from smart_fork.server.tool_construction import asynchronous, strict

_made: dict[Any, Tool] = {}


def create_server(embedder: Embedder | None = None, *, everything: bool = False) -> Server:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "strict", _with_known_schema)
        return Server(embedder, everything=everything)


def _with_known_schema(handler: Any, *about: Any, **hints: bool) -> Tool:
    function = getattr(handler, "__func__", handler)
    if function not in _made:
        _made[function] = strict(handler, *about, **hints)
    made = _made[function]
    return made.model_copy(update={"fn": asynchronous(handler), "parameters": deepcopy(made.parameters)})
