"""A copy of a session without some of its turns; the original stays as it is.

It is the only way to be without turns that stand in another session's file: those that a fork of Codex inherited.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from indexer.files import remove
from indexer.lazy import dataclass
from indexer.repositories import recorded
from indexer.transcripts.lines import decode_line
from indexer.transcripts.model import AgentName
from indexer.transcripts.model import Session as Conversation
from indexer.transcripts.texts import title_of
from smart_fork import session_origins
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import NewSession
from smart_fork.agents.cuts import snapshots, titles
from smart_fork.agents.cuts.model import CutWarning, Transcript
from smart_fork.agents.readers import READERS
from smart_fork.errors import ForkRefused, Usage, advice
from smart_fork.excise.answer import Parent, Trimmed
from smart_fork.excise.cut_plan import CutPlan
from smart_fork.excise.transcript import chosen_turns, resolve_transcript
from smart_fork.finding.results import title as shown_title
from smart_fork.forking.branch import command_to_resume, new_title, refuse_while_tasks_run, refuse_while_working
from smart_fork.system.processes import Machine


@dataclass(frozen=True, slots=True)
class TrimmedCopy:
    """A session file that we wrote. `cwd` is where it works."""

    agent: AgentName
    session_id: str
    source_session_id: str
    path: Path
    plan: CutPlan
    title: str
    cwd: str
    parent: Conversation
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Describe the new session: its id and path, and what was left out, in words and figures."""
        return self.told().as_json()

    def told(self) -> Trimmed:
        """The same as a value."""
        cut = self.plan.report(dry_run=False)
        known = {one.name: getattr(cut, one.name) for one in fields(cut)}
        return Trimmed(**known | {
            "session_id": self.session_id,
            "path": str(self.path),
            "warnings": (*cut.warnings, *(CutWarning("", note) for note in self.notes)),
            "agent_type": self.agent,
            "title": shown_title(self.title),
            "parent": Parent(self.source_session_id, shown_title(self.parent.title)),
            "working_directory": self.cwd,
            "resume_command": command_to_resume(self.agent, self.session_id, self.cwd),
            "resume_original": command_to_resume(self.agent, self.source_session_id, self.parent.cwd),
            "new_session_id": self.session_id,
            "new_path": str(self.path),
        })  # fmt: skip


def branch(
    reference: str, turns: str = "", ids: Sequence[str] = (), *, secrets: bool = False, new_session_id: str = "",
    target_cwd: Path | None = None, force: bool = False, now: datetime | None = None,
) -> TrimmedCopy:  # fmt: skip
    """Write a copy of a session without these turns, under an id of its own, where its agent finds it.

    With `secrets` they are masked there, in all turns or in those that are named.

    Raises:
        Usage, NotFound: something in the request is not acceptable.
        Refused: a warning or a problem, and it was not insisted on.
        ForkRefused: the agent is answering, nobody has asked anything, or a session of that id exists.
    """
    session = resolve_transcript(reference, numbered=True)
    if session.tool not in READERS.names:
        raise Usage(f"There are no branches of {session.tool} sessions")
    planned = _planned(session, turns, ids, secrets=secrets)
    if not force:
        planned.refuse()
    agent = session.tool
    moment = now or datetime.now()  # noqa: DTZ005 - Codex names its files by local time
    parent = _conversation(session, moment)
    new = AGENTS.check_id(agent, new_session_id or AGENTS.starter_of(agent).new_id(), "new")
    target = AGENTS.copier_of(agent).place(session.source_path, NewSession(new, target_cwd, moment))
    cwd = str(target_cwd) if target_cwd else parent.cwd
    with new_title(_name(planned, parent), recorded(cwd) or target.parent, moment.timestamp()) as title:
        notes = _write(planned, parent, target, NewSession(new, target_cwd, moment, title))
    session_origins.remember_handover(session_origins.HandedOver(new, agent, agent, session.session_id))
    made, written = Transcript(session.tool, target, new, ()), AGENTS.files_of(agent).stamp(target)
    snapshots.note(
        made, "branch", None, target, moment.astimezone(), size_after=written.size if written else 0,
        removed_ids=[turn.id for turn in planned.removed], seed_ids=sorted(planned.seeds),
        orphaned=sorted(planned.orphaned),
    )  # fmt: skip
    return TrimmedCopy(agent, new, session.session_id, target, planned, title, cwd, parent, tuple(notes))


def _planned(session: Transcript, turns: str, ids: Sequence[str], *, secrets: bool) -> CutPlan:
    named = chosen_turns(session, turns, ids) if turns or ids else set[str]()
    planned = CutPlan.masking(session, (), named or None) if secrets else CutPlan.of(session, named)
    if not planned.changes:
        raise Usage(
            "there are no secrets to mask" if secrets else "nothing to cut was named",
            advice("Give a range such as 5-7,9, or --id.", tool="Give turns, such as 5-7,9, or ids."),
        )
    return planned


def _name(planned: CutPlan, parent: Conversation) -> str:
    """The parent's title, unless it quotes a prompt that goes: then a prompt that stays gives the title."""
    staying = planned.survivors
    gone = titles.marks(key for turn in planned.removed for key in turn.says)
    gone -= titles.marks(key for turn in staying for key in turn.says)
    if gone.isdisjoint(titles.quoting(parent.title)):
        return parent.title
    return title_of("", (turn.preview for turn in staying if turn.prompt))


def _conversation(session: Transcript, now: datetime) -> Conversation:
    """Return the session to copy. Refuse one that is being written."""
    conversation = session.conversation
    if conversation is None:
        raise ForkRefused("No conversation to branch.", "It has no prompt.")
    refuse_while_working(conversation, now.timestamp(), "Try again when the agent has answered.")
    refuse_while_tasks_run(conversation, "Try again when they have ended.")
    return conversation


def _write(planned: CutPlan, parent: Conversation, target: Path, new: NewSession) -> list[str]:
    """The file and what belongs beside it; what is missing there, in words. After an error nothing is left."""
    source = planned.session.source_path
    original = replace(parent, session_id=planned.session.session_id, source_path=source)
    copy = AGENTS.copier_of(parent.agent).of_records(original, _records(planned), new)
    if copy is None:
        what = f"Exchanges of a {AGENTS[parent.agent].title} session cannot be dropped"
        raise ForkRefused(what, "Fork it at a message instead.")

    def without_what_is_gone() -> None:
        for path in filter(lambda one: one.is_relative_to(source.with_suffix("")), planned.beside):
            remove(target.with_suffix("") / path.relative_to(source.with_suffix("")))

    return list(AGENTS.copier_of(parent.agent).write(copy, target, new, Machine(), without_what_is_gone).warnings)


def _records(planned: CutPlan) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield the records that stay, each with its serialized form."""
    for position, turn in enumerate(planned.session.turns):
        if turn.id not in planned.gone:
            yield from decode_line(planned.edits.get(position, turn.raw))[0]
