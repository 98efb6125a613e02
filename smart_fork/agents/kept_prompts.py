"""Prompts that an agent keeps beside its logs: they outlive the sessions in which a person typed them."""

from __future__ import annotations

from typing import NamedTuple


class KeptPrompt(NamedTuple):
    """One prompt, as its agent keeps it: not masked. `moment` is in UTC, `directory` as the agent names it."""

    session_id: str
    moment: str
    directory: str
    text: str
