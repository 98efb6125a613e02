"""Loads the session of a transcript with one record a line, for agents that name the file after the session."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from smart_fork.cuts.lines import RawLine, head, opened, raw_lines, with_sources
from smart_fork.cuts.model import Tool, Transcript, TranscriptTurn
from smart_fork.errors import NotFound

_ID = re.compile(r"[A-Za-z0-9-]{8,}")


class SeenLine(NamedTuple):
    """A line's turn, its session's id, its text in `said`, and the text of another line that it `repeats`.

    `said` is `None` if no line can repeat it.
    """

    turn: TranscriptTurn
    session_id: str
    said: str | None
    repeats: str


def load(tool: Tool, path: Path, see: Callable[[RawLine], SeenLine]) -> Transcript:
    """Load the session in `path`, with every line in the order of the file.

    Raises:
        NotFound: The file does not exist.
        OSError: The file cannot be read.
    """
    turns: list[TranscriptTurn] = []
    heads: dict[str, str] = {}
    copies: dict[str, str] = {}
    first_id = ""
    try:
        file, stamp = opened(path)
    except FileNotFoundError as error:
        raise NotFound(f"No such transcript: {path}") from error
    with file:
        for line in raw_lines(file, path):
            turn, session_id, said, repeats = see(line)
            first_id = first_id or session_id
            turns.append(turn)
            if said is not None:
                heads[turn.id] = head(said)
            elif repeats:
                copies[turn.id] = head(repeats)
    session_id = path.stem if _ID.fullmatch(path.stem) else first_id or path.stem
    return Transcript(tool, path, session_id, with_sources(turns, heads, copies), stamp=stamp)
