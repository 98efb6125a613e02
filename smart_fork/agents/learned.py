"""What a session shows to be secret, wherever else it is in it: an answer of a command, a line of a private key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from indexer.masking.answers import asks_for_one
from indexer.masking.parts import answered, key_lines
from indexer.transcripts.actions import status_and_body
from indexer.transcripts.commands import command_of
from smart_fork.agents.codec import Codec


def learned(lines: Iterable[bytes], work: Codec | None) -> list[str]:
    """The secrets that the lines of a log show to be some, the longest first."""
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
    """A command, or the one that prints the file that was read."""
    if isinstance(given, str):
        return given
    path = given.get("file_path") or given.get("path")
    return command_of(given) or (f"cat {path}" if isinstance(path, str) else "")


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = orjson.loads(line) if line else None
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None
