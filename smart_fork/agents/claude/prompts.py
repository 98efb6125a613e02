"""The prompts that Claude Code keeps for its arrow keys, also of sessions that it has deleted."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator

from indexer.files import open_regular
from indexer.transcripts.state import is_path, utc
from indexer.values import dict_in, json_at, json_in, text_in
from smart_fork.agents.agent import KeptPrompt
from smart_fork.agents.claude.home import claude_home

#: Of a larger file the end is read: ten thousand prompts, which every search looks through.
MOST_BYTES = 2 << 20
#: Older versions name no session: then nobody can tell whether it is gone.
_SESSION = re.compile(rb'"sessionId" ?: ?"([0-9A-Za-z-]{8,64})"')


def kept_prompts(known: Container[str]) -> Iterator[KeptPrompt]:
    """Yield the prompts of all sessions that are not `known`, the oldest first. Commands such as /clear are left out.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        file = open_regular(claude_home() / "history.jsonl")
    except FileNotFoundError:
        return
    with file:
        whole = file.seek(0, os.SEEK_END) <= MOST_BYTES
        file.seek(0 if whole else -MOST_BYTES, os.SEEK_SET if whole else os.SEEK_END)
        lines = file.read(MOST_BYTES).split(b"\n")
    # What is open, and so new that nothing was written, is not gone.
    are_open = {text_in(dict_in(json_at(path)).get("sessionId")) for path in claude_home().glob("sessions/*.json")}
    for line in lines if whole else lines[1:]:
        named = _SESSION.search(line)
        if named is None or named[1].decode() in known or named[1].decode() in are_open:
            continue
        record = dict_in(json_in(line))
        text, directory, session = (record.get(name) for name in ("display", "project", "sessionId"))
        if not (isinstance(text, str) and is_path(directory) and session == named[1].decode()):
            continue  # the name was found in a prompt
        if (text := text.strip()) and not text.startswith("/"):
            yield KeptPrompt(session, utc(record.get("timestamp")), directory, text)
