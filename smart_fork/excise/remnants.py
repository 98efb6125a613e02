"""What was cut, looked for in the agents' own files: in everything that was made of a session, and beside its log."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from indexer import kept_logs
from indexer.markdown import export_path
from indexer.transcripts.lines import open_regular
from smart_fork.agents import READERS
from smart_fork.agents.facets import find_cutter, title_of
from smart_fork.cuts import snapshots
from smart_fork.cuts.answer import CopyBehind
from smart_fork.cuts.lines import raws
from smart_fork.cuts.model import Transcript
from smart_fork.excise import propagation
from smart_fork.excise.agent_files import beside_logs
from smart_fork.excise.line_words import LETTERS, all_words, said_in, secrets_of, still_said, still_secret
from smart_fork.excise.plan import Plan
from smart_fork.excise.ranges import numbered
from smart_fork.excise.replacement import written_path
from smart_fork.excise.traces import own_source, own_words, searched
from smart_fork.families.descent import Descendant, Descent
from smart_fork.system import permission
from smart_fork.text.advice import advice


def aside(session: Transcript, lines: Collection[bytes]) -> list[CopyBehind]:
    """What looks like a secret in lines that were cut, and is still in a line that is no message: a summary, a title,
    what was rewound.
    """
    wanted = secrets_of(lines)
    if not wanted:
        return []
    wanted = still_secret(raws(session.turns), wanted)
    if not wanted:
        return []
    places = zip(session.turns, numbered(session).numbers, strict=True)
    turns = [(turn, n) for turn, n in places if "lists" not in turn.meta]  # what it lists are turns
    rest = [turn for turn, n in turns if n is None or turn.role == "system" or turn.meta.get("compacts")]
    others = {turn.id for turn in rest}
    wanted -= still_secret(raws(turn for turn, _ in turns if turn.id not in others), wanted)
    found = {turn.id: still_secret([raw], wanted) for turn, raw in zip(rest, raws(rest), strict=True) if wanted}
    return [
        CopyBehind(
            str(session.source_path),
            tuple(sorted(words)),
            f"Line {turn} is not a message, and contains the cut text. {_cut_id(session, turn)}",
        )
        for turn, words in found.items()
        if words
    ]


def behind(session: Transcript, gone: Collection[str]) -> list[CopyBehind]:
    """The files of agents that still have something of the cuts of a session, each with what to do about it.

    `gone` are the words that were cut and the runs of them, as far as they are known.
    """
    cuts = snapshots.cuts(written_path(session))
    cut = frozenset(key for one in cuts for key in one.keys)
    keys = cut.union(*(one.masked for one in cuts))
    if not keys and not gone:
        return []
    descent = propagation.descent_of(session, keys)
    look = _Look(session, frozenset(gone), cut)
    found = [*look.beside(session.source_path), *_kept(look, descent, keys)]
    for one in (*descent.below, *descent.unclear):
        found += look.into(one, descent)
    found += _exports(look, descent)
    named = {one.path for one in found}
    return found + [
        one for one in beside_logs(session, gone, (*descent.below, *descent.unclear)) if one.path not in named
    ]


def says(one: Descendant, planned: Plan) -> bool:
    """Whether a log says something that a cut is about to take out of its session."""
    turns, edits = planned.session.turns, planned.edits
    changed = [turn.raw for at, turn in enumerate(turns) if turn.id in planned.gone or at in edits]
    stays = [edits.get(at, turn.raw) for at, turn in enumerate(turns) if turn.id not in planned.gone]
    wanted = said_in(changed)
    look = _Look(planned.session, frozenset(wanted - still_said(stays, wanted)), frozenset())
    return bool(look.said_in(_lines(one)))


class _Look:
    """What is looked for: words, and records by their keys."""

    def __init__(self, session: Transcript, gone: frozenset[str], cut: frozenset[str]) -> None:
        self.session, self._gone, self._cut = session, gone, cut

    def into(self, one: Descendant, descent: Descent) -> Iterator[CopyBehind]:
        """A log, and what lies beside it."""
        copy = None if one.told else propagation.load_copy(self.session, one.path)
        said = self.said_in(_lines(one) if copy is None else raws(copy.own))
        if said or self.has_records(copy):
            if copy is None:
                reason = _told(one) if one.told else _cut_it(str(one.path), one.session_id)
            else:
                reason = self._what_to_do(copy, is_unclear=one in descent.unclear)
            yield CopyBehind(str(one.path), tuple(sorted(said)), reason)
        yield from self.beside(one.path, one.agent)

    def has_records(self, copy: Transcript | None) -> bool:
        """Whether a copy has records that were cut."""
        return copy is not None and bool(propagation.matching(copy, self._cut))

    def beside(self, log: Path, agent: str = "") -> Iterator[CopyBehind]:
        """The files beside a log."""
        cutter = find_cutter(agent or self.session.tool)
        for path in cutter.files_of(log) if cutter else ():
            if said := self.said_in(_read(path)):
                yield CopyBehind(str(path), tuple(sorted(said)), f"It is next to the log. {_beside(path)}")

    def said_in(self, lines: Iterable[bytes]) -> set[str]:
        """The words in the texts of a log, where these are not only words that our own messages have."""
        said = still_said(lines, self._gone)
        return all_words(said) if any(map(_is_telling, said)) else set()

    def _what_to_do(self, copy: Transcript, *, is_unclear: bool) -> str:
        there = _cut_it(str(copy.source_path), copy.session_id)
        if is_unclear:
            return f"It has the same records. Which of the two came first is unknown. {there}"
        if self.has_records(copy):
            return advice(
                f"smart-fork excise verify {self.session.session_id} --erase cuts it there as well.",
                tool=f"The same turns can be cut in session {copy.session_id}.",
            )
        return f"Its own turns contain the cut text. {there}"


def _kept(look: _Look, descent: Descent, keys: Collection[str]) -> Iterator[CopyBehind]:
    """Compressed copies of logs that are gone."""
    session = look.session
    cutter = find_cutter(session.tool)
    for kept in kept_logs.copies() if not permission.limited() else ():
        if READERS[kept.agent].locate(kept.session_id):
            continue
        with suppress(OSError), kept_logs.opened(kept) as path:
            is_copy = kept.agent == session.tool and cutter is not None and cutter.holds(path, keys)
            if not is_copy and (kept.agent, kept.session_id) not in descent.lost:
                continue
            said = look.said_in(_read(path))
            if said or look.has_records(propagation.load_copy(session, path) if is_copy else None):
                yield CopyBehind(str(kept.folder), tuple(sorted(said)), _forget(kept.session_id))


def _forget(session_id: str) -> str:
    return advice(
        f"Its log is gone, a copy is kept: smart-fork forget {session_id} removes it.",
        tool=f"The log of session {session_id} is gone: the user can delete the kept copy.",
    )


def _exports(look: _Look, descent: Descent) -> Iterator[CopyBehind]:
    """The exports of relatives that have no log any more."""
    for agent, session_id in descent.lost if not permission.limited() else ():
        export = export_path(agent, session_id)
        if said := look.said_in(_read(export)):
            yield CopyBehind(str(export), tuple(sorted(said)), _forget(session_id))


def _told(one: Descendant) -> str:
    owner = title_of(one.agent)
    if find_cutter(one.agent) is None:
        return f"{owner} received a hand-over of it. Its sessions cannot be cut: delete session {one.session_id} there."
    return f"{owner} received a hand-over of it. {_cut_it(one.session_id, one.session_id)}"


def _beside(path: Path) -> str:
    if path.suffix == ".jsonl":
        return _cut_it(str(path), "")
    return "Delete the file."


def _cut_it(reference: str, session_id: str) -> str:
    """How something is cut out of another transcript."""
    return advice(
        f"smart-fork excise list {shlex.quote(reference)} numbers its turns: cut it there.",
        tool=f"Cut it there: {session_id or reference}.",
    )


def _cut_id(session: Transcript, turn: str) -> str:
    return advice(
        f"smart-fork excise cut --id {shlex.quote(turn)} {session.session_id} --force", tool=f"Cut its id, {turn}."
    )


def _is_telling(word: str) -> bool:
    """Whether it is no ordinary word, and no run of words, such as our own messages have."""
    if " " in word:
        return word not in _own_text()
    return any(map(str.isdigit, word)) or bool(searched([word]) - own_words())


@cache
def _own_text() -> str:
    """All that our own messages say."""
    return " ".join(LETTERS.findall(own_source().lower()))


def _lines(one: Descendant) -> Iterator[bytes]:
    """The lines of a log, whoever wrote it."""
    try:
        with READERS[one.agent].as_file(one.path) as path:
            yield from _read(path)
    except OSError:
        return


def _read(path: Path) -> Iterator[bytes]:
    try:
        with open_regular(path) as file:
            yield from file
    except OSError:
        return
