"""How each agent is told of our MCP server: where its settings are, and one entry in them."""

from __future__ import annotations

from smart_fork.agents.registration.base import NAME, Registration, UnsuitableError

__all__ = ["NAME", "Registration", "UnsuitableError"]
