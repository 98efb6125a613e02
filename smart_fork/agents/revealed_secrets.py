"""Finds secrets that a session itself reveals, such as a command's output or a private key's lines, for masking."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from indexer.masking.blocks import asks_for_one
from indexer.masking.secrets import answered, key_lines
from indexer.transcripts.actions import status_and_body
from indexer.transcripts.commands import command_of
from indexer.values import json_in
from smart_fork.agents.codec import Codec


def revealed_secrets(lines: Iterable[bytes], work: Codec | None) -> list[str]:
    """Return the secrets revealed by the lines of a log, longest first."""
    found, asked = set[str](), dict[str, str]()
    for line in lines:
        if b"PRIVATE KEY" in line:
            found |= key_lines(line.decode("utf-8", "replace"))
        record = _record(line)
        if work is None or record is None:
            continue
        commands = {one.id: _command(one.given) for one in work.used(record)}
        asked |= {call: command for call, command in commands.items() if asks_for_one(command)}
        for back in work.gave(record) if asked else ():
            if command := asked.get(back.id):
                found |= answered(command, status_and_body(back.output)[1])
    return sorted(found, key=len, reverse=True)


def _command(given: Mapping[str, Any] | str) -> str:
    """Return a call's command, or the one that would print the file that it read."""
    if isinstance(given, str):
        return given
    path = given.get("file_path") or given.get("path")
    return command_of(given) or (f"cat {path}" if isinstance(path, str) else "")


def _record(line: bytes) -> dict[str, Any] | None:
    return record if isinstance(record := json_in(line), dict) else None
