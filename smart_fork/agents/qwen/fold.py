"""What the records of one of Qwen Code's sessions add up to.

Its records are Gemini's messages (``parts`` that say, call or answer) in a chain of ``parentUuid``. ``system`` records
are links of the chain and no conversation, whatever text they repeat: telemetry, snapshots, commands of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from indexer.transcripts.boilerplate import strip_boilerplate, strip_recall
from indexer.transcripts.fold import Record
from indexer.transcripts.lines import Line
from indexer.transcripts.model import Origin, Session, Turn, estimate_tokens
from indexer.transcripts.state import count
from indexer.transcripts.titles import masked_name, with_name
from indexer.transcripts.tree import Tree
from indexer.unchecked import dict_in
from smart_fork.agents import AGENTS
from smart_fork.agents.qwen.codec import QwenCodec, parts_of, sums_up, text_of
from smart_fork.agents.qwen.home import agents_of
from smart_fork.agents.qwen.log import slug
from smart_fork.agents.subagents import LoggedSubAgents
from smart_fork.agents.unattended import origin_of

CODEC = QwenCodec()
#: The kinds of a person's messages; the others were sent by schedules, goals and background tasks.
_TYPED = (None, "mid_turn_user_message")
#: How the answer of a call begins that was not carried out.
_NOT_RUN = ("[Operation Cancelled]",)


class QwenTree(Tree):
    """See `Tree`. A record whose parent is missing has nothing before it: Qwen Code forgets that."""

    agent = "qwen"
    known = frozenset({
        "user", "assistant", "tool_result", "ui_telemetry", "attribution_snapshot", "file_history_snapshot", "rewind",
        "slash_command", "chat_compression", "custom_title", "notification", "parent_session", "agent_bootstrap",
    })  # fmt: skip
    bridged = False
    naming = (b'"custom_title"',)
    tools = QwenCodec.tools
    session_logs = AGENTS.session_logs
    shell = "run_shell_command"
    not_run = _NOT_RUN

    def is_known(self, record: Record) -> bool:
        """See `Fold.is_known`. A system record is known by its subtype."""
        return super().is_known({"type": record.get("subtype")} if record.get("type") == "system" else record)

    def is_name(self, record: Record) -> bool:
        """See `Tree.is_name`."""
        return record.get("subtype") == "custom_title"

    def note_title(self, record: Record) -> None:
        """See `LineFold.note_title`."""
        given = record.get("systemPayload")
        if record.get("subtype") != "custom_title" or not isinstance(given, dict):
            return
        title, facts = given.get("customTitle"), self.facts
        if isinstance(title, str):
            name = masked_name(title.strip())
            facts["ai_title" if given.get("titleSource") == "auto" else "custom_title"] = name
            facts["names"] = with_name(facts.get("names", ()), name)

    def turn(self, record: Record, identity: str, line: Line) -> Turn | None:
        """See `Tree.turn`."""
        kind, message = record.get("type"), record.get("message")
        if kind == "system":
            return self._system(record, identity, line)
        if not isinstance(message, dict):
            return None
        item = CODEC.decode(record)
        if kind == "assistant":
            self.note_model(record.get("model"))
            text = strip_recall(item.text)
            return self.make(record, identity, line, "assistant", text, calls=item.calls, loaded=loaded_after(record))
        if kind == "tool_result":
            return self.make(record, identity, line, "tool", "", results=item.results)
        return self._user(record, item.text, identity, line) if kind == "user" else None

    def _system(self, record: Record, identity: str, line: Line) -> Turn | None:
        """What a compaction left is loaded; a rewinding is the leaf of what it leaves until somebody goes on."""
        subtype = record.get("subtype")
        if subtype == "parent_session":
            self.facts["begun_by_another"] = True
        if subtype == "rewind":
            return self.make(record, identity, line, "system", "")
        left = loaded_by_compaction(record)
        if not left:
            return None
        self.note_compaction()
        return self.make(record, identity, line, "system", "", loaded=left)

    def _user(self, record: Record, said: str, identity: str, line: Line) -> Turn:
        if not is_typed(record):
            return self.make(record, identity, line, "system", "")
        text = strip_boilerplate(typed_in(record, said))
        return self.make(record, identity, line, "user", text, prompt=bool(text))

    def given_name(self) -> str:
        """See `Fold.given_name`."""
        return str(self.facts.get("custom_title", ""))

    def own_name(self, turns: tuple[Turn, ...]) -> str:
        """See `Fold.own_name`."""
        return str(self.facts.get("ai_title", ""))

    def origin(self) -> Origin:
        """See `Fold.origin`. Nothing in the log tells a script's prompts from a person's."""
        named = bool(self.given_name())
        return "subagent" if self.facts.get("begun_by_another") else origin_of(self.own_id(), named=named)

    def folder(self) -> str:
        """See `Tree.folder`."""
        return self.path.parent.parent.name

    def folder_for(self, directory: str) -> str:
        """See `Tree.folder_for`."""
        return slug(directory)


def is_typed(record: Record) -> bool:
    """Whether a ``user`` record is what a person, or a script in a person's place, has asked."""
    return record.get("subtype") in _TYPED and record.get("provenance") in (None, "real_user")


def typed_in(record: Record, said: str) -> str:
    """The person's words in a message: what hooks have added to them is not shown, and not theirs."""
    shown = dict_in(record.get("systemPayload")).get("displayText")
    return shown if isinstance(shown, str) else said


def loaded_after(record: Record) -> int:
    """What the model had in its context when it had said this."""
    return count(dict_in(record.get("usageMetadata")).get("totalTokenCount"))


def loaded_by_compaction(record: Record) -> int:
    """What a compaction left in the context; 0 for other records. From there on that is sent, and not what is above."""
    given = dict_in(record.get("systemPayload"))
    history = given.get("compressedHistory")
    if not sums_up(record) or not isinstance(history, list):
        return 0
    told = count(dict_in(given.get("info")).get("newTokenCount"))
    return told or max(1, sum(estimate_tokens(text_of(parts_of(message))) for message in history))


class QwenSubAgents(LoggedSubAgents):
    """See `SubAgents`."""

    agent = "qwen"
    tree = QwenTree

    def folders(self, session: Session) -> Iterable[tuple[Path, int]]:
        log = session.source_path
        inside = log.parent if log.parent.parent.name == "subagents" else None
        return ((inside or agents_of(log), 0),)

    def begun(self, session: Session) -> Mapping[str, str]:
        logs = self.logs(session)
        calls = {call.id for turn in session.turns for call in turn.tool_calls if call.id} if logs else set()
        return {call: name for call in calls for name in logs if name.endswith(f"-{call}")}
