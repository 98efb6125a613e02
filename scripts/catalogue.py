"""Answers to a client's first requests: ``make catalogue`` writes them to smart_fork/cli/mcp.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION

from smart_fork.cli.mcp_handshake import CATALOGUE
from smart_fork.server import FEW, Server


def catalogue() -> dict[str, Any]:
    """Return the answers to a client's first requests: handshakes, tools, prompts and resources.

    They include the protocol versions that begin with a handshake, and the names of the tools that are listed by
    default.
    """
    return anyio.run(_asked)


async def _asked() -> dict[str, Any]:
    async with Client(Server(everything=True), mode="auto") as client:
        discovered = await client.session.send_discover(LATEST_MODERN_VERSION)
    async with Client(Server(everything=True), mode="legacy") as client:
        tools, prompts, server = await client.list_tools(), await client.list_prompts(), client.server_info
        resources, templates = await client.list_resources(), await client.list_resource_templates()
        if server is None:
            raise AssertionError("it introduces itself")
        welcome = {
            "capabilities": client.server_capabilities.model_dump(mode="json", by_alias=True, exclude_none=True),
            "serverInfo": server.model_dump(mode="json", by_alias=True, exclude_none=True),
            "instructions": client.instructions,
        }
        return {
            "versions": list(HANDSHAKE_PROTOCOL_VERSIONS),
            "welcome": welcome,
            "discovered": discovered,
            "few": list(FEW),
            "tools": tools.model_dump(mode="json", by_alias=True, exclude_none=True)["tools"],
            "prompts": prompts.model_dump(mode="json", by_alias=True, exclude_none=True)["prompts"],
            # There are none; clients ask all the same.
            **resources.model_dump(mode="json", by_alias=True, include={"resources"}),
            **templates.model_dump(mode="json", by_alias=True, include={"resource_templates"}),
        }


if __name__ == "__main__":
    Path(CATALOGUE).write_text(json.dumps(catalogue(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
