"""Reading of Claude Code's sessions: decoding records, building sessions, sub-agents and families.

A message is a text, or a list of blocks: texts, tool calls, tool results and thoughts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from indexer.json_values import dict_in, dicts_in, json_in, list_in, text_in
from indexer.lazy_compilation import late
from indexer.masking import Masked, joined, shorten
from indexer.safe_files import open_regular
from indexer.transcripts.lines import Line
from indexer.transcripts.model import GivenBack, Item, Origin, Resumed, Role, Session, Turn, estimate_tokens
from indexer.transcripts.reader_state import count, utc
from indexer.transcripts.texts import (
    TITLE_CHARACTERS,
    Said,
    last_names,
    masked_name,
    strip_boilerplate,
    strip_recall,
    title_of,
)
from smart_fork.agents import AGENTS
from smart_fork.agents.ancestry import TreeAncestry
from smart_fork.agents.claude.log_files import guessed_directory, slug
from smart_fork.agents.decoders import MessageCodec, QuotedAnswers, Record, characters, item_of, shortened, text_of
from smart_fork.agents.subagents import LoggedSubAgents
from smart_fork.agents.tree import ID_CHARACTERS, Tree

#: The beginning of Claude Code's record that a person has stopped it.
INTERRUPTED = "[Request interrupted"


class ClaudeAnswers(QuotedAnswers):
    """The parser of a person's answers to Claude Code's questions."""

    asking = late(r"(?i)ask_?user_?question")
    refused = late(
        r"(?:Error: )?(?:The user doesn't want to |Permission for this tool use was denied\.)[^\n]{0,400}?"
        r"(?:[Tt]he user said:|reason for the rejection:)\s*"
    )
    behind = late(r"\n\s*Note: The user's next message may contain ")
    #: The text before the answers so far, if the person wants to talk about the questions.
    clarifies = "The user wants to clarify these questions"

    def refusal(self, words: str) -> Said:
        return self._clarified(words) if words.startswith(self.clarifies) else super().refusal(words)

    def _clarified(self, words: str) -> Said:
        question = ""
        for line in words.splitlines():
            if line.startswith('- "'):
                question = line[3:].removesuffix('"')
            for mark in ("  Answer: ", "  User notes: "):
                if line.startswith(mark):
                    yield question, line.removeprefix(mark)


class ClaudeCodec(MessageCodec):
    """The decoder of Claude Code's records. An edit's patch is in another field than its result."""

    field = "content"
    shell = "Bash"
    not_run = (
        "The user doesn't want", "This command requires approval", "Permission ", "<tool_use_error>", "PreToolUse:",
        INTERRUPTED, "Claude requested permissions",
    )  # fmt: skip
    starting = ("Task", "Agent")
    answers = ClaudeAnswers()
    thoughts = ("thinking", "redacted_thinking")

    def decode(self, record: Record) -> Item:
        return item_of(None if is_request(record) else dict_in(record.get("message")).get("content"))

    def parts(self, record: Record) -> list[Record]:
        return [] if is_request(record) else super().parts(record)

    def gave(self, record: Record) -> Iterator[GivenBack]:
        patch = _unified(dict_in(record.get("toolUseResult")).get("structuredPatch"))
        return (back._replace(patch=patch) for back in super().gave(record))

    def has_place(self, record: Record) -> bool:
        """Return True if a record is a message of the conversation, or a prompt typed while the agent worked."""
        kind = record.get("type")
        said = kind == "attachment" or (kind in ("user", "assistant") and isinstance(record.get("message"), dict))
        return said and super().has_place(record)

    def is_sent(self, record: Record) -> bool:
        return record.get("type") in ("user", "assistant")

    def sums_up(self, record: Record) -> bool:
        return record.get("isCompactSummary") is True

    def size(self, record: Record) -> int:
        return characters(record["message"].get("content"))

    def short_part(self, part: Record) -> Record:
        if part.get("type") != "tool_result" or "content" not in part:
            return part
        return part | {"content": shortened(part.get("content"))}

    def as_said(self, record: Record) -> Record:
        """Return a record as the model gets it: a prompt typed while the agent worked becomes an ordinary prompt."""
        if record.get("type") != "attachment":
            return record
        said: Any = dict_in(record.get("attachment")).get("prompt")
        kept = {name: value for name, value in record.items() if name != "attachment"}
        message = {"role": "user", "content": said if isinstance(said, list) else str(said)}
        return kept | {"type": "user", "message": message}


def is_request(record: Record) -> bool:
    """Return True if a record repeats a request to the model. Claude Code resumes a session without such records."""
    return record.get("type") in ("api-request", "api-request-blob")


def _unified(hunks: object) -> str:
    """Return the hunks of Claude Code's patch format as the text of a unified diff."""
    lines: list[str] = []
    for hunk in dicts_in(hunks):
        if isinstance(told := hunk.get("lines"), list):
            lines.append(f"@@ -{hunk.get('oldStart')} +{hunk.get('newStart')} @@")
            lines += (line for line in told if isinstance(line, str))
    return "\n".join(lines)


#: The tokens of a request: sent, written, read from the cache and written to it.
USAGE = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
#: The lifetime of a cache in seconds, by the field that counts its tokens.
_LIFETIMES = {"ephemeral_5m_input_tokens": 300, "ephemeral_1h_input_tokens": 3600}
#: Records that name the session, and the field that has the name.
_TITLES = {"custom-title": "customTitle", "agent-name": "agentName", "ai-title": "aiTitle"}
CODEC = ClaudeCodec()
#: The records outside the conversation.
_ASIDE = (
    "progress", "file-history-snapshot", "queue-operation", "last-prompt", "mode", "permission-mode", "pr-link",
    "bridge-session", "api-request", "api-request-shape", "api-request-blob", "cost-state", "atis-latch", "tools-used",
)  # fmt: skip
_NAMING = (*(f'"{kind}"'.encode() for kind in _TITLES), b'"summary"')


class ClaudeTree(Tree):
    """The fold (reader) that builds a session from Claude Code's records."""

    agent = "claude"
    known = frozenset({"user", "assistant", "attachment", "system", "summary", *_TITLES, *_ASIDE})
    noted = ("gitBranch", "version", "teamName")
    naming = _NAMING
    codec, session_logs = CODEC, AGENTS.session_logs

    def is_name(self, record: Record) -> bool:
        return isinstance(kind := record.get("type"), str) and kind in _TITLES

    def note_title(self, record: Record) -> None:
        facts, kind = self.facts, record.get("type")
        title = _TITLES.get(kind) if isinstance(kind, str) else None
        if title and isinstance(record.get(title), str) and self._is_own(record):
            facts[title] = name = masked_name(record[title].strip())
            facts["names"] = last_names(facts.get("names", ()), name)
            if not self.begun:
                facts["named_before"] = [*facts.get("named_before", ()), name]
        elif kind == "summary" and isinstance(record.get("summary"), str):
            # Old versions put summaries of *other* sessions at the head of a file: the leaf tells whose it is.
            facts.setdefault("summaries", {})[str(record.get("leafUuid"))] = masked_name(record["summary"])
        elif kind == "last-prompt" and record.get("explicit") is True:  # the person went back, and has said nothing yet
            self.chain.leaf = text_in(record.get("leafUuid"))

    def _is_own(self, record: Record) -> bool:
        """Return True unless the record names another session: a copied log also has its original's records."""
        named = record.get("sessionId")
        return not isinstance(named, str) or len(self._stem) < ID_CHARACTERS or named == self._stem

    @property
    def begun(self) -> bool:
        """True if a message of this log was already read."""
        return next(iter(self.chain.turns), None) is not None

    def is_copied(self, record: Record) -> bool:
        """Return True if a record is a copy: it names its original or another session, or is older than this log."""
        begun = self.facts.get("begun", "")
        return super().is_copied(record) or not self._is_own(record) or "" < self._moment < begun

    def feed(self, line: Line) -> None:
        record = line.record
        if "uuid" not in record and (moment := utc(record.get("timestamp"))) and not self.begun:
            self.facts["begun"] = min(moment, self.facts.get("begun", moment))
        super().feed(line)

    def turn(self, record: Record, identity: str, line: Line) -> Turn | None:
        kind, message = record.get("type"), record.get("message")
        if kind == "assistant" and isinstance(message, dict):
            item = CODEC.decode(record)
            text = "" if message.get("model") == "<synthetic>" else strip_recall(item.text)
            self.note_model(message.get("model"))
            group, loaded = str(message.get("id") or ""), loaded_after(message)
            return self.make(
                record, identity, line, "assistant", text, calls=item.calls, group=group, loaded=loaded,
                cached_for=self._cached_for(message),
            )  # fmt: skip
        if kind == "user" and isinstance(message, dict):
            return self._user(record, identity, line)
        if kind == "attachment" and isinstance(record.get("attachment"), dict):
            attachment = record["attachment"]
            if attachment.get("type") == "queued_command" and not _is_automatic(attachment):  # typed meanwhile
                text = strip_boilerplate(text_of(attachment.get("prompt")))
                return self.make(record, identity, line, "user", text, prompt=bool(text))
        if kind == "system" and record.get("subtype") == "compact_boundary":
            self.note_compaction()
            preserved = dict_in(dict_in(record.get("compactMetadata")).get("preservedMessages"))
            self.facts["preserved"] = [one for one in list_in(preserved.get("uuids")) if isinstance(one, str)]
        return None

    def _cached_for(self, message: Record) -> int:
        """Return for how many seconds the API caches the prompt that `message` answers; 0 if unknown.

        Of two lifetimes that the request wrote, return the shorter. If it only read the cache, return the lifetime of
        the last request that wrote it.
        """
        if not (usage := usage_of(message)):
            return 0
        written = dict_in(usage.get("cache_creation"))
        if named := [seconds for field, seconds in _LIFETIMES.items() if count(written.get(field))]:
            self.facts["cached_for"] = min(named)
        elif count(usage.get("cache_creation_input_tokens")) or not count(usage.get("cache_read_input_tokens")):
            self.facts["cached_for"] = 0
        return int(self.facts.get("cached_for", 0))

    def _user(self, record: Record, identity: str, line: Line) -> Turn:
        said, _, results, *_ = CODEC.decode(record)
        if record.get("isMeta") is True or record.get("isCompactSummary") is True or _is_automatic(record):
            if record.get("isCompactSummary") is not True:
                return self.make(record, identity, line, "system", "", results=results)
            return self.summary(record, identity, line, said, estimate_tokens(said))
        if said.startswith(INTERRUPTED):
            self.facts["interrupted"] = identity
        text = strip_boilerplate(said)
        prompt = bool(text) and not results
        if prompt and (by := _typed_by(record)):
            self.facts[by] = True
        role: Role = "tool" if results and not text else "user"
        return self.make(record, identity, line, role, text, results=results, prompt=prompt)

    def resumed(self, turns: tuple[Turn, ...]) -> Resumed:
        """Return which turns Claude Code loads on resuming. Since 2.1.3xx a compaction also keeps the last messages."""
        found, preserved = super().resumed(turns), self.facts.get("preserved") or ()
        if found.reason != "compaction" or not preserved:
            return found
        return found._replace(kept=tuple(at for at, turn in enumerate(turns[: found.start]) if turn.id in preserved))

    def folder(self) -> str:
        return self.path.parent.name

    def folder_for(self, directory: str) -> str:
        return slug(directory)

    def guessed(self) -> str:
        return guessed_directory(self.path.parent.name)

    def given_name(self) -> str:
        return self.facts.get("customTitle") or self.facts.get("agentName") or ""

    def own_name(self, turns: tuple[Turn, ...]) -> str:
        name = self.facts.get("aiTitle", "")
        return self._summary(turns) if not name or self._may_be_inherited(name) else name

    def title(self, turns: tuple[Turn, ...]) -> Masked:
        """Return the session's title. If its name may be its parent's, the fork's own first prompt is added."""
        said, own = super().title(turns), turns[self.own(turns) :]
        if not self._may_be_inherited(self.given_name()) or not any(turn.prompt for turn in own):
            return said
        return shorten(joined(": ", (said, title_of("", (turn.text for turn in own if turn.prompt)))), TITLE_CHARACTERS)

    def _may_be_inherited(self, name: str) -> bool:
        """Return True if a fork's log has this name before any message, where Claude Code writes the parent's name."""
        return "own" in self.facts and "parent" not in self.facts and name in self.facts.get("named_before", ())

    def names(self, turns: tuple[Turn, ...]) -> Iterator[str]:
        """Yield the summaries by which old versions named parts of the conversation, then all names of the session."""
        summaries = self.facts.get("summaries", {})
        yield from (str(summaries[turn.id]) for turn in turns if summaries and turn.id in summaries)
        yield from self.facts.get("names", ())

    def _summary(self, turns: tuple[Turn, ...]) -> str:
        """Return the summary that an old version wrote for the last turns; empty if a prompt came after it."""
        summaries = self.facts.get("summaries", {})
        for turn in reversed(turns) if summaries else ():
            if turn.id in summaries:
                return str(summaries[turn.id])
            if turn.prompt:
                break
        return ""

    def origin(self) -> Origin:
        """Return who started the session. No single fact decides, since each alone was seen to be wrong."""
        facts = self.facts
        if facts.get("teamName"):
            return "subagent"
        if facts.get("by_program") and not facts.get("by_hand") and not facts.get("customTitle"):
            return "automated"
        return "person"


def _is_automatic(record: Record) -> bool:
    """Return True if a schedule, a background task, a hook or another agent wrote the record.

    Like Claude Code, return False for prompts of a program that uses the SDK, and for records that name no origin.
    """
    kind = dict_in(record.get("origin")).get("kind")
    told = record.get("promptSource") == "system" or record.get("commandMode") == "task-notification"
    return told or bool(record.get("subtype")) or kind not in (None, "human", "sdk")


def _typed_by(record: Record) -> Literal["by_hand", "by_program", ""]:
    """Return "by_hand" or "by_program", after the author of a prompt; empty if the agent itself sent it.

    ``promptSource`` and ``origin`` decide, since a fork's copied records keep them. Only without them ``entrypoint``
    decides: in copied records it names the fork's program.
    """
    source, origin = record.get("promptSource"), record.get("origin")
    if isinstance(origin, dict) and origin.get("kind") == "human":
        return "by_hand"
    if source == "system":
        return ""
    if isinstance(source, str):
        return "by_program" if source == "sdk" else "by_hand"
    return "by_program" if str(record.get("entrypoint") or "").startswith("sdk") else "by_hand"


def loaded_after(message: Record) -> int:
    """Return the number of tokens in the model's context after this message."""
    return sum(map(count, map(usage_of(message).get, USAGE)))


def usage_of(message: Record) -> Record:
    """Return the token counts in a message; empty if Claude Code itself wrote the message."""
    usage = message.get("usage")
    return usage if isinstance(usage, dict) and message.get("model") != "<synthetic>" else {}


#: The bytes of a result that names a sub-agent.
_NAMES = b'"agentId"'
#: The tools that start a sub-agent, and the limit in bytes of the file beside its log.
_TOOLS, _MAX_FILE_BYTES = ("Agent", "Task"), 64 * 1024
#: The folder of sub-agents' logs, and the depth below it of those that a workflow began.
_FOLDER, _BELOW = "subagents", 2


class ClaudeSubAgents(LoggedSubAgents):
    """Finds and reads the logs of the sub-agents that a session of Claude Code started."""

    tree = ClaudeTree

    def folders(self, session: Session) -> Iterable[tuple[Path, int]]:
        log = session.source_path
        inside = next((one for one in log.parents if one.name == _FOLDER), None)
        return ((inside, _BELOW),) if inside else ((log.with_suffix("") / _FOLDER, _BELOW), (log.parent, 0))

    def begun(self, session: Session) -> Mapping[str, str]:
        calls = {call.id for turn in session.turns for call in turn.tool_calls if call.name in _TOOLS}
        logs = self.logs(session) if calls else {}
        answers = [turn.raw for turn in session.turns if turn.tool_results and _NAMES in turn.raw]
        ended = {call: name for raw in answers for call, name in _started_agents(raw) if name in logs}
        known = set(ended.values())
        left = {name: log for name, log in logs.items() if name not in known}
        return {call: name for name, log in left.items() if (call := _starting_call(log)) in calls} | ended


def _starting_call(log: Path) -> str:
    """Return the id of the call that started a sub-agent, from the file beside its log; empty if unknown."""
    with suppress(OSError), open_regular(log.with_suffix(".meta.json")) as file:
        return text_in(dict_in(json_in(file.read(_MAX_FILE_BYTES))).get("toolUseId"))
    return ""


def _started_agents(raw: bytes) -> Iterator[tuple[str, str]]:
    """Yield (call id, sub-agent's name) for each call that the record answers, if the call started a sub-agent."""
    record = dict_in(json_in(raw))
    name = dict_in(record.get("toolUseResult")).get("agentId")
    for block in dicts_in(dict_in(record.get("message")).get("content")) if isinstance(name, str) else ():
        if isinstance(call := block.get("tool_use_id"), str):
            yield call, str(name)


class ClaudeAncestry(TreeAncestry):
    """Finds the parents and forks of Claude Code's sessions, from the first records of logs."""

    #: The types of records at the top of a new file.
    native = ("mode", "permission-mode", "queue-operation", "custom-title")

    def names_a_copy(self, record: dict[str, Any]) -> bool:
        return record.get("type") == "custom-title"
