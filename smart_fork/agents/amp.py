"""Amp: ``~/.local/share/amp/threads/T-<id>.json``, one JSON document for each thread (session).

Messages are close to Anthropic's format. Amp's format is known from public sources only, see
``tests/fixtures/amp/README.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from urllib.parse import unquote

from indexer.json_values import dict_in, dicts_in, text_in
from indexer.transcripts.base import AgentAdapter, Checkpoint, LogFile, ReadResult
from indexer.transcripts.lines import decode_document, probe
from indexer.transcripts.model import GivenBack, Item, Session
from smart_fork.agents.decoders import Header, ReadCodec, Record, item_of, text_of
from smart_fork.agents.log_adapters import ReadAdapter

#: The prefix of a thread's file name, and of a directory's address.
_THREAD, _FILE = "T-", "file://"
#: The fields with the text of a tool result that is an object.
_OUTPUTS = ("output", "content", "message")
#: The states of calls without a result.
_FAILED = ("error", "cancelled", "rejected-by-user")


class AmpCodec(ReadCodec):
    """The decoder of Amp's records: the first is the thread without its messages, the others are its messages."""

    tools = MappingProxyType({"edit_file": "Edit", "create_file": "Write", "glob": "Glob"})
    starting = ("Task",)
    shell = "Bash"

    def decode(self, record: Record) -> Item:
        """Return a record's texts, calls and results, without the hidden texts that Amp adds to prompts."""
        content = record.get("content")
        parts = [one for one in dicts_in(content) if one.get("hidden") is not True]
        results = tuple(_result(one) for one in parts if one.get("type") == "tool_result")
        return item_of(content if isinstance(content, str) else parts)._replace(results=results)

    def header(self, record: Record) -> Header | None:
        role, usage, meta = record.get("role"), dict_in(record.get("usage")), dict_in(record.get("meta"))
        if role == "user":
            asked = not meta.get("fromAggman") and not meta.get("fromExecutorThreadID")
            return Header(role, moment=meta.get("sentAt"), asked=asked, interrupts=record.get("interrupted") is True)
        if role == "assistant":
            return Header(
                role, moment=usage.get("timestamp"), model=usage.get("model"), loaded=usage.get("totalInputTokens"),
                interrupts=dict_in(record.get("state")).get("type") == "cancelled",
            )  # fmt: skip
        if role == "info":
            return Header(
                "system", compacts=any(one.get("type") == "summary" for one in dicts_in(record.get("content")))
            )
        return _thread(record) if "role" not in record and "id" in record else None


class AmpAdapter(ReadAdapter):
    """The adapter that finds and reads Amp's threads."""

    name = "amp"
    resumes = ("amp", "threads", "continue")
    codec = AmpCodec()
    endings = (".json",)
    depth = 0

    def is_session(self, location: str, projects: str) -> bool:
        return Path(location).name.startswith(_THREAD)

    def read(self, path: Path, checkpoint: Checkpoint | None = None, *, keep_raw: bool = False) -> ReadResult:
        """Read a thread completely: Amp overwrites the whole document at each change."""
        from smart_fork.agents.read_only_reader import read_records

        value, size = decode_document(path)
        after = Checkpoint(size, 0, probe(path, size), b"")
        return read_records(self, path, _records(value), after, keep_raw=keep_raw)

    def glance(self, path: Path) -> Session | None:
        return self.read(path).session

    def time_of(self, file: LogFile) -> str:
        return AgentAdapter.time_of(self, file)

    def is_copy(self, path: Path) -> bool:
        session = self.read(path).session
        return session is not None and session.copied


def _records(document: object) -> Iterator[object]:
    """Yield the thread without its messages, then each message. Messages are removed from `document` to free memory."""
    if not isinstance(document, dict):
        return
    messages = document.pop("messages", None)
    yield document
    if isinstance(messages, list):
        messages.reverse()
        while messages:
            yield messages.pop()


def _thread(record: Record) -> Header:
    began = dict_in(dict_in(record.get("env")).get("initial"))
    tree = next(iter(dicts_in(began.get("trees"))), {})
    place, ref = tree.get("uri"), dict_in(tree.get("repository")).get("ref")
    return Header(
        moment=record.get("created"), session_id=record.get("id"), title=record.get("title"),
        cwd=unquote(place.removeprefix(_FILE)) if isinstance(place, str) and place.startswith(_FILE) else None,
        branch=ref.removeprefix("refs/heads/") if isinstance(ref, str) else None,
        version=dict_in(began.get("platform")).get("clientVersion"),
    )  # fmt: skip


def _result(part: Record) -> GivenBack:
    run = dict_in(part.get("run"))
    status, given = run.get("status"), run.get("result")
    output, patch = text_of(given), ""
    if isinstance(given, dict):
        output = next((text for name in _OUTPUTS if isinstance(text := given.get(name), str)), "")
        patch = text_in(given.get("diff"))
        ended = given.get("exitCode")
        output = f"Exit code: {ended}\n{output}" if isinstance(ended, int) and ended else output
    if status in _FAILED:
        output = output or str(dict_in(run.get("error")).get("message") or run.get("reason") or "")
    return GivenBack(str(part.get("toolUseID") or ""), output, status in _FAILED, patch)
