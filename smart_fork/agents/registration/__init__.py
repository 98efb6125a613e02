"""Registers smart-fork's MCP server in each agent's settings."""

from __future__ import annotations

from smart_fork.agents.registration.base import NAME, Registration, UnsuitableError

__all__ = ["NAME", "Registration", "UnsuitableError"]
