"""Notes on sessions, kept beside the logs: verdicts, and a person's marks (tags, pinned, archived).

A verdict says whether a session's work was merged, kept or dropped. Its reason is a person's text that models see:
masked, short, on one line, and quoted as data.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Literal, cast, get_args

from indexer import log_changes, state_db
from indexer.json_values import Value, rare, value
from indexer.masking import NOTHING, Masked, mask, shorten
from indexer.transcripts.model import AgentName
from smart_fork.display_text import printable, shown, storable, time_of
from smart_fork.errors import NotFound, Usage, advice

if TYPE_CHECKING:
    import apsw

log = logging.getLogger(__name__)

#: The possible verdicts on a session's work.
VerdictKind = Literal["merged", "kept", "dropped"]
#: The marks that smart-fork itself uses; no tag has a colon.
PINNED, ARCHIVED = ":pinned", ":archived"
REASON_CHARACTERS, MAX_FORKS = 200, 3
#: A valid tag, in lower case.
_TAG = re.compile(r"[a-z0-9_.][a-z0-9_./-]{0,39}")
_BECAME: Mapping[str, str] = {"merged": "merged", "kept": "kept", "dropped": "given up"}

_Session = tuple[AgentName, str]


def noted(sessions: Iterable[_Session]) -> dict[_Session, SessionNotes]:
    """Return the notes on these sessions; those without notes are missing. Raise `OSError` if notes cannot be read."""
    wanted = set(sessions)
    own: dict[_Session, Verdict] = {}
    forks: defaultdict[str, list[Verdict]] = defaultdict(list)
    for agent, session_id, source, *said in state_db.rows("SELECT * FROM verdicts ORDER BY tried DESC, session_id"):
        own[agent, session_id] = _verdict(session_id, *said, subject="Tried")
        if source:
            forks[source].append(_verdict(session_id, *said, subject="A fork of it was tried"))
    marks: defaultdict[_Session, list[str]] = defaultdict(list)
    for agent, session_id, mark in state_db.rows("SELECT * FROM marks ORDER BY mark"):
        marks[agent, session_id].append(mark)
    return {
        one: SessionNotes(
            own.get(one), tuple(forks[one[1]][:MAX_FORKS]), tuple(mark for mark in marks[one] if mark[0] != ":"),
            PINNED in marks[one], ARCHIVED in marks[one],
        )
        for one in wanted if one in own or one[1] in forks or one in marks
    }  # fmt: skip


def noted_of(agent: AgentName, session_id: str) -> SessionNotes | None:
    """Return the notes on one session; `None` if it has none. Raise `OSError` if notes cannot be read."""
    return next(iter(noted([(agent, session_id)]).values()), None)


def noted_if_known(sessions: Iterable[_Session]) -> dict[_Session, SessionNotes]:
    """Return the notes on these sessions; an empty mapping if notes cannot be read."""
    try:
        return noted(sessions)
    except OSError as error:
        log.warning("what is noted of sessions cannot be read: %s", error)
        return {}


def marked(mark: str) -> frozenset[_Session]:
    """Return the sessions with a tag, or with one of the marks `PINNED` and `ARCHIVED`."""
    return frozenset(state_db.rows("SELECT agent, session_id FROM marks WHERE mark = ?", mark))


def tags() -> dict[str, int]:
    """Return all tags (a person's labels for sessions), each with the number of its sessions."""
    return dict(state_db.rows("SELECT mark, count(*) FROM marks WHERE mark NOT LIKE ':%' GROUP BY mark ORDER BY mark"))


def tag(given: str) -> str:
    """Return a tag (a person's label for sessions) in lower case; raise `Usage` for an invalid one."""
    folded = given.lower()
    if not _TAG.fullmatch(folded):
        raise Usage(
            f"{shown(given)} cannot be a tag",
            "A tag has at most 40 letters (a-z), digits and - _ . /, and does not begin with - or /.",
        )
    return folded


def mark(agent: AgentName, session_id: str, marks: Collection[str], *, remove: bool = False) -> None:
    """Add marks (tags, `PINNED` or `ARCHIVED`) to a session; with `remove`, remove them.

    Raises:
        NotFound: the session was forgotten.
        OSError: the marks cannot be written; nothing has changed.
    """
    with state_db.changing() as db:
        _refuse_forgotten(db, agent, session_id)
        what = "DELETE FROM marks WHERE agent = ? AND session_id = ? AND mark = ?"
        what = what if remove else "INSERT OR IGNORE INTO marks VALUES (?, ?, ?)"
        db.executemany(what, [(agent, session_id, one) for one in marks])


def outcome(given: str) -> VerdictKind:
    """Return the text as an outcome of a session's work, "merged", "kept" or "dropped"; else raise `Usage`."""
    if given in get_args(VerdictKind):
        return cast("VerdictKind", given)
    raise Usage(f"{shown(given)} is no outcome", f"An outcome is one of {', '.join(get_args(VerdictKind))}.")


def judge(
    agent: AgentName, session_id: str, outcome: VerdictKind, reason: str = "", *, source: str, tried: str,
    said_by: Literal["person", "git"] = "person",
) -> None:  # fmt: skip
    """Store a verdict ("merged", "kept" or "dropped") on a session's work. Git's verdict does not replace a person's.

    `source` is the session that this one was forked from, if any; `tried` is when this session worked.

    Raises:
        NotFound: the session was forgotten.
        OSError: the verdict cannot be written; nothing has changed.
    """
    line = mask(shorten(mask(printable(mask(storable(reason)))), REASON_CHARACTERS))
    with state_db.changing() as db:
        _refuse_forgotten(db, agent, session_id)
        keep = "IGNORE" if said_by == "git" else "REPLACE"
        db.execute(
            f"INSERT OR {keep} INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - our own words
            (agent, session_id, source, outcome, line, tried, said_by),
        )


def unjudge(agent: AgentName, session_id: str) -> None:
    """Delete the verdict on a session's work."""
    state_db.change("DELETE FROM verdicts WHERE agent = ? AND session_id = ?", agent, session_id)


def forget(agent: AgentName, session_id: str) -> None:
    """Delete all notes on a session that is being removed from the index for good."""
    with state_db.changing() as db:
        log_changes.drop_notes(db, agent, session_id)


def take_back(session_ids: Collection[str], has: Callable[[str], bool]) -> None:
    """Delete reasons of verdicts on `session_ids` and their forks that contain text which was removed from a log.

    `has` returns True for a text that contains the removed text.
    """
    for session_id, source, reason in state_db.rows("SELECT session_id, source_session_id, reason FROM verdicts"):
        if reason and not {session_id, source}.isdisjoint(session_ids) and has(reason):
            state_db.change("UPDATE verdicts SET reason = '' WHERE session_id = ?", session_id)


def _refuse_forgotten(db: apsw.Connection, agent: AgentName, session_id: str) -> None:
    query = "SELECT 1 FROM forgotten WHERE agent = ? AND session_id = ?"
    if db.execute(query, (agent, session_id)).fetchone():
        raise NotFound(
            "This session was forgotten",
            advice(f"To index it again: smart-fork forget {session_id} --undo", tool="Tell the user."),
        )


def _verdict(session_id: str, outcome: str, reason: str, tried: str, said_by: str, *, subject: str) -> Verdict:
    day = time_of(tried)
    when = f"{day.day} {day:%b %Y}" if day else tried[:10]
    said = f"{subject} on {when} and {_BECAME.get(outcome, 'kept')}{f': {reason}' if reason else ''}"
    return Verdict(session_id, outcome, Masked(said), tried, said_by, Masked(reason))


@value
class Verdict(Value):
    """A verdict on a session's work: "merged", "kept" or "dropped", by a person or by git (`said_by`).

    `said` is the verdict as a sentence, with the person's reason. `tried` is when the session worked.
    """

    session_id: str
    outcome: str
    said: Masked
    tried: str
    said_by: str
    reason: Masked = rare(NOTHING)


@value
class SessionNotes(Value):
    """The notes on a session, kept beside its log: verdicts on it and its `forks`, and a person's tags and marks."""

    verdict: Verdict | None = rare()
    forks: tuple[Verdict, ...] = rare(())
    tags: tuple[str, ...] = rare(())
    pinned: bool = rare(default=False)
    archived: bool = rare(default=False)

    @property
    def sentences(self) -> list[str]:
        """Return a sentence for each verdict on the session and its forks."""
        return [one.said for one in (*([self.verdict] if self.verdict else []), *self.forks)]

    @property
    def marks(self) -> list[str]:
        """Return the session's marks as words: "pinned", "archived", and tags such as "#auth"."""
        flags = [word for word, on in (("pinned", self.pinned), ("archived", self.archived)) if on]
        return [*flags, *(f"#{one}" for one in self.tags)]
