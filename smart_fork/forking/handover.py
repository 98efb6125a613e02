"""Handover of a session to another agent: its text, with a heading that says where and when the session worked.

If the text is too long for the receiving model's context window, whole exchanges (a prompt and its answer) are dropped
from the beginning. A line that counts them replaces them; no model summarizes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from indexer.handover_action_lines import UNANSWERED, calls_of, results_of
from indexer.lazy_compilation import dataclass
from indexer.masking import mask
from indexer.transcripts.base import AgentAdapter
from indexer.transcripts.model import AgentName, Proof, Session, estimate_tokens
from indexer.transcripts.texts import HANDOVER_TAG
from smart_fork import provenance
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import Excerpt, NewSession
from smart_fork.agents.portable_records import HomePlace, Utterance
from smart_fork.display_text import quotation
from smart_fork.forking.budget_parts import marker, plain
from smart_fork.forking.copies import SessionCopy, write_branch
from smart_fork.forking.handover_text import (
    QUOTED_DATA_NOTICE,
    SAID_CHARACTERS,
    NeutralMessage,
    as_session,
    description_line,
    lost_of,
    read_neutral,
    utterances,
)
from smart_fork.forking.reflog import was_checked_out
from smart_fork.forking.request import Budget
from smart_fork.forking.results import HandoverSize, counted
from smart_fork.forking.source_sessions import is_others
from smart_fork.system.processes import Machine

#: The share of the context window for the handover; instructions, tools and new work need the rest.
MAX_WINDOW_SHARE = 0.6
#: The most uncommitted files that the heading names.
MAX_FILES = 20
_COMMIT_CHARACTERS = 10
_CHARACTERS_A_TOKEN = 4
_CUT = "… "
_ACT = (
    "Another agent did this work, not you. Act with your own tools, and read files again before you rely on them. "
    f"{QUOTED_DATA_NOTICE}"
)


@dataclass(frozen=True, slots=True)
class Handover:
    """A session as text for another agent: its messages in order (`said`), its size, and the new session's title."""

    said: tuple[Utterance, ...]
    handed: HandoverSize
    title: str = ""


def handover(
    session: Session, end: int, agent: AgentName, excerpt: Excerpt | None = None, *, unmasked: bool = False
) -> Handover:
    """Return the text that hands a session over to `agent`: its turns up to `end`, or only those in `excerpt`.

    Secrets are masked unless `unmasked`. Raise `Usage` if the agent cannot receive sessions.
    """
    AGENTS.handover_writer_of(agent)
    told = read_neutral(session, end, excerpt.kept if excerpt else None, unmasked=unmasked)
    room = int(AGENTS[agent].model_window() * MAX_WINDOW_SHARE)
    messages, begun = _fitting(session, told.messages, room)
    lines = {turn: text for turn, text in (excerpt.told if excerpt else {}).items() if turn >= begun}
    earlier = sum(bool(exchange.start < begun) for exchange in session.exchanges())
    missing = sum(one.turn >= begun for one in told.messages) - len(messages)
    lost = lost_of(told)
    facts = (
        _heading(session, end),
        _repository_state(session, end),
        f"Missing here: {counted(lost)}." if lost else "",
        _ACT,
        marker(plain(session.session_id), session.exchanges()[0].start, exchanges=earlier) if earlier else "",
        f"{missing} messages after the first one below were dropped." if missing else "",
    )
    head = "\n".join(filter(None, facts))
    said = _headed(utterances(session, messages, lines), head)
    handed = HandoverSize(
        from_agent=session.agent, session_id=session.session_id,
        exchanges=sum(one.role == "user" for one in messages), earlier=earlier, left_out=missing,
        tokens=sum(estimate_tokens(one.text) for one in said), lost=lost,
    )  # fmt: skip
    return Handover(tuple(said), handed, told.title)


def joined(parts: Sequence[Handover]) -> Handover:
    """Return several handovers (sessions as text) as one, in the given order, with the sum of their sizes."""
    every = [part.handed for part in parts]
    handed = replace(
        every[0],
        exchanges=sum(one.exchanges for one in every),
        tokens=sum(one.tokens for one in every),
        earlier=sum(one.earlier for one in every),
        left_out=sum(one.left_out for one in every),
        lost=dict(sum((Counter(one.lost) for one in every), Counter())),
    )
    return Handover(tuple(one for part in parts for one in part.said), handed, parts[0].title)


def beyond(handed: HandoverSize, wanted: Budget) -> list[str]:
    """Return a list with a warning if a handover (a session as text) exceeds the budget `wanted`; else an empty one."""
    if wanted.budget == Budget.MATCH or handed.tokens <= wanted.budget:
        return []
    return [f"The handed-over session takes about {handed.tokens:,} tokens, more than the budget"]


def _heading(session: Session, end: int) -> str:
    cut = "" if end >= len(session.turns) - 1 else f" It ends after message {end}."
    return (
        f"What follows is {description_line(session)}. It has every message word for word, "
        f"and one line for each action with its result.{cut}"
    )


def _headed(said: Sequence[Utterance], head: str) -> list[Utterance]:
    """Return the utterances, with the text `head` before the first one, in a tag that log readers skip.

    If a person has the last word, add an utterance by the agent, so that the conversation ends with the agent.
    """
    if not said:
        return []
    first, *rest = said
    made = [first._replace(text=f"<{HANDOVER_TAG}>\n{head}\n</{HANDOVER_TAG}>\n\n{first.text}"), *rest]
    if made[-1].user:
        made.append(Utterance(user=False, text=UNANSWERED, moment=made[-1].moment))
    return made


def _fitting(session: Session, messages: Sequence[NeutralMessage], room: int) -> tuple[list[NeutralMessage], int]:
    """Return the last messages that fit into `room` tokens, and the turn at which they begin (0 for all messages).

    They begin with a prompt. If the last exchange alone is too large, return its prompt and as much of its end as fits.
    """
    sizes = [estimate_tokens(one.rendered()) for one in messages]
    if sum(sizes) <= room:
        return list(messages), 0
    starts = [exchange.start for exchange in session.exchanges() if exchange.start <= messages[-1].turn]
    begun, total, place = starts[-1], 0, len(messages)
    for start in reversed(starts):
        while place and messages[place - 1].turn >= start:
            place -= 1
            total += sizes[place]
        if total > room:
            break
        begun = start
    left = [one for one in messages if one.turn >= begun]
    if sum(estimate_tokens(one.rendered()) for one in left) > room:
        left = _ending(left, room)
    return left, begun


def _ending(messages: Sequence[NeutralMessage], room: int) -> list[NeutralMessage]:
    """Return the first message and as many of the last ones as fit into `room` tokens, each shortened if too long."""
    asked = _shortened(messages[0], room // 2)
    left, kept = room - estimate_tokens(asked.rendered()), list[NeutralMessage]()
    for one in reversed(messages[1:]):
        if left <= 0:
            break
        kept.append(_shortened(one, left))
        left -= estimate_tokens(kept[-1].rendered())
    return [asked, *reversed(kept)]


def _shortened(message: NeutralMessage, room: int) -> NeutralMessage:
    """Return a message shortened to about `room` tokens: the end of its text, and its last actions."""
    if estimate_tokens(message.rendered()) <= room:
        return message
    left, actions = room * _CHARACTERS_A_TOKEN, []
    text = message.text[-left // 2 :] if message.actions else message.text[-left:]
    left -= len(text)
    for action in reversed(message.actions):
        left -= sum(len(line) + 1 for line in action.rendered())
        if left < 0:
            break
        actions.append(action)
    return replace(message, text=text if text == message.text else f"{_CUT}{text}", actions=tuple(reversed(actions)))


def _repository_state(session: Session, end: int) -> str:
    """Describe the repository as it was at turn `end`: its commit, and the files that were edited but not committed."""
    last = end >= len(session.turns) - 1
    until = (session.last_activity if last else "") or session.turns[end].timestamp
    found = was_checked_out(session, until) if not provenance.was_received(session.session_id) else None
    said = []
    if found is not None:
        branch = f" on branch {quotation(found.branch, SAID_CHARACTERS)}" if found.branch else ""
        said.append(f"The repository was then at commit {found.commit[:_COMMIT_CHARACTERS]}{branch}.")
    elif session.begun_at:
        said.append(f"The session began at commit {quotation(session.begun_at, _COMMIT_CHARACTERS)}.")
    if files := _uncommitted(session, end):
        more = f" and {len(files) - MAX_FILES} more" if len(files) > MAX_FILES else ""
        said.append(f"Edited, and probably uncommitted then: {', '.join(files[-MAX_FILES:])}{more}.")
    return " ".join(said)


def _uncommitted(session: Session, end: int) -> list[str]:
    """Return the files that the session edited after its last commit, up to turn `end`, in order of last edits."""
    edited: dict[str, tuple[str, ...]] = {}
    files: dict[str, None] = {}
    for turn in session.turns[: end + 1]:
        edited |= {call.id: call.edits for call in calls_of(turn) if call.edits}
        for result in results_of(turn):
            if result.proof is Proof.COMMITTED:
                files.clear()
            for path in () if result.is_error else edited.get(result.tool_use_id, ()):
                files.pop(path, None)
                files[path] = None
    below = f"{session.cwd.rstrip('/')}/" if session.cwd else "\0"
    return [quotation(path.removeprefix(below), SAID_CHARACTERS) for path in files if mask(path) == path]


def write_handover(
    adapter: AgentAdapter, handover: Handover, source: Session | None, becomes: NewSession, machine: Machine
) -> SessionCopy:
    """Write a handover (a session as text) as a new session for the agent of `adapter`.

    If `source`, the original session, is another user's, the new one is recorded as another user's too, until the copy
    is undone.

    Raises:
        ForkRefused: the agent would not load the session.
        ProgramFailed: the agent's program does not accept the session.
        OSError: the file cannot be written.
    """
    handed, cwd = handover.handed, becomes.cwd or Path.cwd()
    place = HomePlace(str(cwd), str(Path.home()))
    with as_session(adapter.name, handover.said, place, source_id=handed.session_id) as session:
        becomes = replace(becomes, cwd=cwd, title=becomes.title or handover.title)
        written = write_branch(session, becomes, at=None, machine=machine)
    if not is_others(handed.session_id, source):
        return written
    written = replace(written, forget=partial(_forget, becomes.id, written.forget))
    try:
        said = [turn.id for turn in session.turns if not turn.id.isdigit()]  # a number is any session's
        provenance.remember_foreign(becomes.id, said)
    except BaseException:
        written.undo()
        raise
    return written


def _forget(session_id: str, also: Callable[[], object] | None) -> None:
    provenance.forget_foreign(session_id)
    if also:
        also()
