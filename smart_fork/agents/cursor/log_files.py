"""Logs of Cursor's agent: ``~/.cursor/projects/<slug>/agent-transcripts/<id>/<id>.jsonl``.

Records are messages in Anthropic's form, without ids and times. The form is known from public sources only:
``tests/fixtures/cursor/README.md`` names them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from indexer.json_values import dict_in
from indexer.transcripts.model import Item
from smart_fork.agents.decoders import Header, ReadCodec, Record, item_of, text_of
from smart_fork.agents.log_adapters import ReadAdapter

#: The text that a person typed, and the directory in the text that Cursor adds.
_TYPED = re.compile(r"<user_query>\s*(.*?)\s*</user_query>", re.DOTALL)
_ADDED = "<user_info>"
_PLACE = re.compile(r"^Workspace Path: (/[^\n]{0,4000})$", re.MULTILINE)
#: The replacement of a text that Cursor does not keep.
_NOT_KEPT = "[REDACTED]"
_OTHERS = re.compile(r"[^a-zA-Z0-9]+")


class CursorCodec(ReadCodec):
    """The decoder of the messages of Cursor's agent."""

    tools = MappingProxyType({"Shell": "Bash", "StrReplace": "Edit"})
    starting = ("Task", "Agent")
    shell = "Shell"

    def decode(self, record: Record) -> Item:
        """Return the item in a message, without results that name no call."""
        item = item_of(_content(record))
        text = "\n\n".join(_TYPED.findall(item.text)) or item.text.replace(_NOT_KEPT, "").strip()
        return item._replace(text=text, results=tuple(one for one in item.results if one.id))

    def header(self, record: Record) -> Header | None:
        role = record.get("role")
        if role not in ("user", "assistant"):
            return Header() if record.get("type") == "turn_ended" else None
        text = text_of(_content(record)) if role == "user" else ""
        place = _PLACE.search(text) if _ADDED in text else None
        return Header(role, cwd=place[1] if place else None, asked=_ADDED not in text or bool(_TYPED.search(text)))


class CursorAdapter(ReadAdapter):
    """The adapter that finds and reads sessions of Cursor's agent, with sub-agents' logs in a folder below."""

    name = "cursor"
    resumes = ("cursor-agent", "--resume")
    codec = CursorCodec()
    depth = 3

    def is_session(self, location: str, projects: str) -> bool:
        _, *folders, name = location.removeprefix(projects).split("/")
        return folders[1:] == ["agent-transcripts", name.removesuffix(".jsonl")]

    def guessed(self, path: Path) -> str:
        """Return the directory after which the project folder is named; empty unless exactly one exists."""
        slug = _OTHERS.sub("-", path.parents[2].name if len(path.parents) > 2 else "").strip("-")
        found = list(islice(_with_slug("/", slug), 2))
        return found[0] if len(found) == 1 else ""


def _content(record: Record) -> object:
    return dict_in(record.get("message")).get("content")


def _with_slug(folder: str, slug: str) -> Iterator[str]:
    """Yield the directories below `folder` with this slug: the path from `folder`, with "-" for other characters."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for name in names if slug else ():
        own = _OTHERS.sub("-", name).strip("-")
        place = f"{folder.rstrip('/')}/{name}"
        if own and own == slug:
            yield place
        elif own and slug.startswith(f"{own}-"):
            yield from _with_slug(place, slug[len(own) + 1 :])
