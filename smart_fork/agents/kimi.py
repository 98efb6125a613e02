"""Kimi Code: ``~/.kimi-code/sessions/<project>/session_<id>/agents/main/wire.jsonl``.

The format is known from public sources only, see ``tests/fixtures/kimi/README.md``.
"""

from __future__ import annotations

import re
from pathlib import Path

from indexer.json_values import dict_in, dicts_in
from indexer.transcripts.base import is_name
from indexer.transcripts.model import GivenBack, Item, UsedTool
from smart_fork.agents.decoders import Header, JsonAnswers, ReadCodec, Record, status_first, text_of
from smart_fork.agents.log_adapters import ReadAdapter

#: The main agent's log below a session's folder, and the prefix of the folder's name.
_LOG, _SESSION = "/agents/main/wire.jsonl", "session_"
#: Kinds of records outside the conversation, by the word before the dot.
_ASIDE = (
    "cron", "file_history", "full_compaction", "goal", "llm", "mcp", "micro_compaction", "permission", "plan_mode",
    "plugin", "runtime", "swarm_mode", "token_counting", "tools", "turn", "usage",
)  # fmt: skip
#: The end of a failed command's output.
_ENDED = re.compile(r"\n?Command failed with exit code: (\d{1,9})\.?\s*\Z")


class KimiCodec(ReadCodec):
    """The decoder of Kimi Code's records, one for each part of an answer, with a common step id."""

    starting = ("Agent", "AgentSwarm")
    answers = JsonAnswers()
    shell = "Bash"

    def decode(self, record: Record) -> Item:
        event = record.get("event")
        if not isinstance(event, dict):
            content = dict_in(record.get("message")).get("content")
            return Item(text_of(content), images=sum(one.get("type") == "image_url" for one in dicts_in(content)))
        call = str(event.get("toolCallId") or "")
        if event.get("type") == "tool.call":
            return Item(calls=(UsedTool(call, str(event.get("name") or ""), event.get("args")),))
        if event.get("type") == "tool.result":
            result = event.get("result")
            output, failed = result, False
            if isinstance(result, dict):
                output, failed = result.get("output"), result.get("isError") is True
            return Item(results=(GivenBack(call, status_first(text_of(output), _ENDED), failed),))
        thought = dict_in(event.get("part")).get("think")
        return Item(text_of([event.get("part")]), thoughts=(thought,) if isinstance(thought, str) else ())

    def header(self, record: Record) -> Header | None:
        """Return the place and facts of a record. Only a prompt's ``origin`` tells whether a person wrote it."""
        kind, moment = record.get("type"), record.get("time")
        if kind == "metadata":
            return Header(moment=record.get("created_at"))
        if kind in ("config.update", "profile.bind"):
            disclosed = dict_in(record.get("environmentDisclosure"))
            return Header(moment=moment, cwd=record.get("cwd") or disclosed.get("cwd"))
        if kind == "turn.cancel":
            return Header("system", moment=moment, interrupts=True)
        if kind == "context.apply_compaction":
            return Header("system", moment=moment, loaded=record.get("tokensAfter"), compacts=True)
        if kind == "context.append_message":
            return self._message(record)
        if kind == "context.append_loop_event":
            return self._event(record)
        aside = isinstance(kind, str) and kind.partition(".")[0] in _ASIDE
        return Header(moment=moment, model=record.get("model") if kind == "llm.request" else None) if aside else None

    def _message(self, record: Record) -> Header | None:
        message, moment = record.get("message"), record.get("time")
        if not isinstance(message, dict) or (role := message.get("role")) not in ("user", "assistant"):
            return None
        origin = message.get("origin")
        return Header(role, moment=moment, asked=not isinstance(origin, dict) or origin.get("kind") == "user")

    def _event(self, record: Record) -> Header | None:
        event, moment = dict_in(record.get("event")), record.get("time")
        kind = event.get("type")
        if kind in ("step.begin", "step.end"):
            return Header(moment=moment)
        if kind == "tool.result":
            return Header("user", moment=moment)
        if kind not in ("content.part", "tool.call"):
            return None
        return Header("assistant", event.get("uuid"), moment=moment, group=str(event.get("stepUuid") or ""))


class KimiAdapter(ReadAdapter):
    """The adapter that finds and reads Kimi Code's sessions. Sub-agents have logs beside the main agent's log."""

    name = "kimi"
    codec = KimiCodec()
    depth = 4

    def is_session(self, location: str, projects: str) -> bool:
        return location.endswith(_LOG) and is_name(self.id_of(Path(location)))

    def id_of(self, path: Path) -> str:
        return path.parents[2].name.removeprefix(_SESSION) if str(path).endswith(_LOG) else path.stem

    def beside(self, path: Path) -> Header:
        """Return the facts in ``state.json``, without a title that only repeats the first prompt."""
        state = self.stated(path.parent.parent.parent / "state.json")
        named = state.get("isCustomTitle") is True
        cwd = state.get("workDir") or state.get("cwd")
        return Header(cwd=cwd, title=state.get("title") if named else None, named=named)

    def resume_command(self, session_id: str) -> tuple[str, ...]:
        return ("kimi", "--session", f"{_SESSION}{session_id}")
