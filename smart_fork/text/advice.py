"""What to do next, in the words of whoever asks: commands on the command line, tools and their parameters over MCP.

Held in a context variable, which goes with a request into its threads: the code that knows the next step need not know
who will read it.
"""

from __future__ import annotations

from contextvars import ContextVar

_of_tools: ContextVar[bool] = ContextVar("of_tools", default=False)


def speak_of_tools() -> None:
    """From here on in this context, whoever asks has tools and no command line."""
    _of_tools.set(True)


def advice(command: str, *, tool: str) -> str:
    """`command` for a person at a terminal, `tool` for a model that calls tools."""
    return tool if _of_tools.get() else command
