"""Checks that a transcript is intact, and that no file still has text that was cut from it (``excise verify``).

The text is searched in everything made from the session, and in the agents' other files.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import NamedTuple

from indexer import kept_logs, state_db
from indexer.errors import what_failed
from smart_fork.agents import AGENTS
from smart_fork.agents.excision import snapshots
from smart_fork.agents.excision.transcript import Transcript, TranscriptTurn
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import SmartForkError, advice
from smart_fork.excise import cut_words, lookup
from smart_fork.excise.answer import FileWithCutText, Soundness
from smart_fork.excise.cut_plan import (
    CutPlan,
    broken_links,
    calls_with_cut_result,
    calls_without_result,
    results_without_call,
)
from smart_fork.excise.writing import written_path
from smart_fork.finding.git import contents
from smart_fork.forking.family import Descendant, Descent
from smart_fork.system import call_context
from smart_fork.system.processes import Processes

#: The function that searches shared sessions. It is imported only if there are some.
_STILL_SHARED_FUNCTION = "smart_fork.sharing.withdrawal:still_shared"


def check(reference: str | None, tool: str = "auto") -> Soundness:
    """Find the defects of a transcript, and text cut from it that remains in the index, in copies or in our own files.

    The cut text is known from snapshots (contents of files before a cut). `unknown` counts the cuts without a snapshot.
    If there are such cuts, `ok` is False, and `unsearched` names the logs of sessions that received a hand-over.
    """
    session = lookup.resolve_transcript(reference, tool)
    orphans = calls_with_cut_result(session, {call for entry in cuts_of(session) for call in entry.orphaned})
    loose = [*results_without_call(session.turns), *orphans, *AGENTS.cutter_of(session.tool).without_header(session)]
    gaps = broken_links(session)
    gone = cut_text_of(session)
    words = words_found(session, gone.words)
    copies = [*files_with_cut_text(session, gone), *still_shared(session)]
    remains = cut_words.traces(cut_words.agent_of(session.tool), {session.session_id}, gone.in_bytes)
    held, unknown = still_kept(session)
    return Soundness(
        session_id=session.session_id,
        tool=session.tool,
        path=str(session.source_path),
        ok=not (loose or gaps or words or copies or remains or unknown),
        dangling=tuple(loose),
        broken_links=tuple(gaps),
        unanswered=tuple(sorted(calls_without_result(session.turns))),
        words_found=tuple(words),
        copies=tuple(copies),
        remains=tuple(remains),
        snapshots=tuple(held),
        unknown=unknown,
        unsearched=tuple(str(one.path) for one in lookup.derived_from(session).descendants if one.handed_over)
        if unknown
        else (),
    )


def still_shared(session: Transcript) -> list[FileWithCutText]:
    """Return the shared (pushed) sessions that still have text cut from this one.

    Without shared sessions, no team module is imported.
    """
    if not state_db.rows("SELECT 1 FROM pulled LIMIT 1"):
        return []
    found: dict[str, str] = resolve_name(_STILL_SHARED_FUNCTION)(session.source_path, session.tool)
    return [FileWithCutText(where, (), reason) for where, reason in found.items()]


def still_kept(session: Transcript) -> tuple[list[str], int]:
    """Return the ids of the snapshots that have text cut from the session, and the number of cuts without one."""
    cuts = [one.snapshot for one in cuts_of(session) if one.snapshot]
    there = [one.id for one in snapshots.snapshots(session.session_id)]
    return there if cuts else [], len(set(cuts) - set(there))


def words_found(session: Transcript, gone: set[str]) -> list[str]:
    """Return the cut words (`gone`) in smart-fork's own data of the session: index rows, export, copy of the log."""
    if not gone or session.tool not in READERS.names:
        return []
    own = lookup.own_files_with(session.tool, READERS[session.tool].id_of(session.source_path), gone)
    return sorted(set[str]().union(*(words for _, words in own)))


class CutText(NamedTuple):
    """Text that was cut from a session and that no remaining line has, and the cut `lines`.

    `runs` are runs of four words, and texts without blanks. `in_bytes` are words long enough to be searched in binary
    files.
    """

    lines: set[bytes]
    words: set[str]
    runs: set[str]
    in_bytes: set[str]


def cut_text_of(session: Transcript) -> CutText:
    """Return the text that cuts removed from a session, read from snapshots (contents of files before a cut).

    A word that also occurs inside a longer remaining word is left out.
    """
    found = [_gone_of(session, path) for path in (None, *lookup.other_files(session))]
    return CutText(*(set().union(*some) for some in zip(*found, strict=True)))


def _gone_of(session: Transcript, path: Path | None) -> CutText:
    lines = cut_lines(session, path)
    if not lines:
        return CutText(set(), set(), set(), set())
    words, runs, solid = cut_words.words_of(lines), cut_words.runs_of(lines), cut_words.solid_texts_of(lines)
    in_bytes = cut_words.words_in(*words)
    left = cut_words.words_inside(_staying(session, path), words | in_bytes)
    still = cut_words.remaining_words(_staying(session, path), runs, solid)
    return CutText(lines, words - left, (runs | solid) - still, set(in_bytes - left))


def cuts_of(session: Transcript) -> list[snapshots.NotedChange]:
    """Return all cuts of a session's files that were not undone, from the log of snapshots."""
    return [one for path in (written_path(session), *lookup.other_files(session)) for one in snapshots.cuts(path)]


def cut_lines(session: Transcript, path: Path | None = None) -> set[bytes]:
    """Return the lines that cuts removed from a session's log, or from another file of the session at `path`.

    They are read from snapshots. Lines that the file still has are not included.
    """
    made = {entry.snapshot for entry in snapshots.cuts(path or written_path(session))}
    kept = [one for one in snapshots.snapshots(session.session_id) if one.id in made]
    staying = set(map(hash, _staying(session, path))) if kept else set()  # all lines may exceed the memory
    pieces = (
        piece for one in kept for line in snapshots.lines(one) for piece in AGENTS.cutter_of(session.tool).pieces(line)
    )
    return {piece for piece in pieces if piece.strip() and hash(piece) not in staying}


def _staying(session: Transcript, path: Path | None) -> Iterator[bytes]:
    """Yield the lines of a session's transcript and, if `path` is given, of its other file there."""
    yield from TranscriptTurn.raws(session.turns)
    if path is not None:
        with path.open("rb") as file:
            yield from (line.rstrip(b"\n") for line in file)


#: The most texts without blanks that are searched in agents' files: the longest ones.
_MAX_SOLID_TEXTS = 200
#: Folders of installed programs, which are not searched.
_PROGRAM_FOLDERS = ("node_modules", "bin")


def beside_logs(session: Transcript, gone: Collection[str], below: Iterable[Descendant]) -> Iterator[FileWithCutText]:
    """Find cut words (`gone`) in agents' files apart from logs: prompt histories, plans, file versions, databases.

    In a file or line that names the session or one made from it (`below`), all cut words count. Elsewhere only words
    that look like secrets count, since other sessions use ordinary words as well.
    """
    if call_context.limited() or session.tool not in READERS.names:
        return
    family = {(session.tool, session.session_id), *((one.agent, one.session_id) for one in below)}
    search = _FileSearch(gone, {session_id for _, session_id in family})
    for agent in sorted({agent for agent, _ in family}) if search.wanted or search.solid else ():
        for path in _files_of(agent, search.session_ids):
            yield from search.behind(path, AGENTS.title_of(agent))


class _FileSearch:
    """A search for cut words (`gone`) in files of agents.

    In a file that names no session of `session_ids`, only words that look like secrets count.
    """

    def __init__(self, gone: Collection[str], session_ids: Collection[str]) -> None:
        self.session_ids = session_ids
        self.wanted = (
            cut_words.words_in(*(word for word in gone if word.isidentifier() or word.isalnum()))
            - cut_words.own_words()
        )
        solid = sorted((one for one in gone if not one.replace("_", "").isalnum() and " " not in one), key=len)
        self.solid = {one: one for one in solid[-_MAX_SOLID_TEXTS:]}
        self._secret = frozenset(
            word
            for word in self.wanted
            if len(word) >= cut_words.MIN_SECRET and any(map(str.isdigit, word)) and not word.isdigit()
        )

    def behind(self, path: Path, owner: str) -> Iterator[FileWithCutText]:
        """Yield the file or git repository at `path` of agent `owner` if it has cut words or is unreadable."""
        is_store = path.is_dir()
        look = f"It is a {'git repository' if is_store else 'file'} of {owner}'s own"
        where = str(path.parent if is_store else path)
        try:
            found = self._in_store(path) if is_store else self._in_file(path)
        except (SmartForkError, OSError) as error:
            yield FileWithCutText(where, (), f"{look}, and is not searched: {what_failed(error)}")
            return
        if found:
            reason = advice(f"{look}: look at it, and delete it.", tool=f"{look}: the user can delete it.")
            yield FileWithCutText(where, tuple(sorted(found)), reason)

    def _in_store(self, store: Path) -> set[str]:
        """Return the cut secrets that any version of any file of a git repository contains.

        Ordinary cut words are not searched, since such a repository does not name sessions.
        """
        likely = (*self._secret, *self.solid)
        pieces = contents(store, Processes()) if likely else ()
        some = (one for one in pieces if any(word in one.decode("utf-8", "ignore").lower() for word in likely))
        return cut_words.words_among(some, self._secret, self.solid)

    def _in_file(self, path: Path) -> set[str]:
        if self._is_named(str(path)):
            return cut_words.words_at(path, self.wanted, self.solid)
        found = cut_words.words_at(path, self._secret, self.solid)
        return found | (self._in_lines(path) if path.suffix == ".jsonl" else set())

    def _in_lines(self, path: Path) -> set[str]:
        with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
            return set[str]().union(*(self.wanted & cut_words.words_in(line) for line in file if self._is_named(line)))
        return set()

    def _is_named(self, text: str) -> bool:
        return any(one in text for one in self.session_ids)


def _files_of(agent: str, session_ids: Collection[str]) -> Iterator[Path]:
    """Yield the files of an agent to search for cut text; for a git repository, the folder of its objects.

    Logs, programs, and files next to other sessions' logs are skipped.
    """
    reader, cutter = READERS[agent], AGENTS.find_cutter(agent)
    yield from filter(Path.is_file, cutter.apart() if cutter else ())
    logs = {file.location: reader.id_of(file.path) for file in reader.discover()}
    others = {*logs.values()} - set(session_ids)
    for folder, folders, names in os.walk(reader.home()):
        folders[:] = sorted(name for name in folders if name not in others and name not in _PROGRAM_FOLDERS)
        if "HEAD" in names and "objects" in folders:
            folders.remove("objects")
            yield Path(folder, "objects")
        for path in (Path(one) for name in sorted(names) if (one := f"{folder}/{name}") not in logs):
            if path.is_file() and not path.is_symlink() and next(iter(reader.logs_of(str(path))), None) is None:
                yield path


#: What happens to smart-fork's own files of another session with the cut text.
_LOSES_IT_TOO = "It loses the text when that session does."


def _secrets_aside(session: Transcript, secrets: Collection[str]) -> list[FileWithCutText]:
    """Find cut secrets in remaining lines that are not messages: summaries, titles, undone turns."""
    wanted = cut_words.remaining_secrets(TranscriptTurn.raws(session.turns), secrets)
    if not wanted:
        return []
    session = lookup.load_for_cut(session.tool, session.source_path, session.composer_id, numbered=True)
    places = zip(session.turns, session.numbers, strict=True)
    turns = [(turn, n) for turn, n in places if "lists" not in turn.meta]  # what it lists are turns
    rest = [turn for turn, n in turns if n is None or turn.role == "system" or turn.meta.get("compacts")]
    others = {turn.id for turn in rest}
    wanted -= cut_words.remaining_secrets(
        TranscriptTurn.raws(turn for turn, _ in turns if turn.id not in others), wanted
    )
    every = zip(rest, TranscriptTurn.raws(rest), strict=True)
    found = {turn.id: cut_words.remaining_secrets([raw], wanted) for turn, raw in every if wanted}
    return [
        FileWithCutText(
            str(session.source_path),
            tuple(sorted(words)),
            f"Line {turn} is not a message, and contains the cut text. {_cut_id(session, turn)}",
        )
        for turn, words in found.items()
        if words
    ]


def files_with_cut_text(session: Transcript, gone: CutText) -> list[FileWithCutText]:
    """Return the agents' files that still have text cut from a session (`gone`), each with the next step."""
    cuts = snapshots.cuts(written_path(session))
    cut = frozenset(key for one in cuts for key in one.keys)
    keys = cut.union(*(one.masked for one in cuts))
    said, secrets = frozenset(gone.words | gone.runs), cut_words.secrets_of(gone.lines)
    if not (keys or said or secrets):
        return []
    descent = lookup.derived_from(session, keys)
    look = _CopySearch(session, said, cut, secrets)
    found = [*look.beside(session.source_path)]
    for one in descent.logs:
        found += look.into(one, is_unclear=one in descent.unclear)
    found += [*_archived(look, descent, keys), *beside_logs(session, said, descent.logs)]
    named = {one.path: one for one in reversed(found)}  # each once, as it is named first
    return [*reversed(named.values()), *look.asides]


def has_cut_text(one: Descendant, planned: CutPlan) -> bool:
    """Return True if the log of another session (`one`) has text that the planned cut will remove."""
    turns, edits = planned.session.turns, planned.edits
    changes = (turn for at, turn in enumerate(turns) if turn.id in planned.gone or at in edits)
    wanted = cut_words.words_and_runs(TranscriptTurn.raws(changes))
    every = zip(enumerate(turns), TranscriptTurn.raws(turns), strict=True)
    stays = (edits.get(at, raw) for (at, turn), raw in every if turn.id not in planned.gone)
    return bool(cut_words.telling_words(_lines(one), wanted - cut_words.remaining_words(stays, wanted)))


class _CopySearch:
    """A search for cut words (`gone`), keys of cut records (`cut`) and cut secrets in copies of the `session`.

    `asides` lists the secrets found in lines that are not messages.
    """

    def __init__(
        self, session: Transcript, gone: frozenset[str], cut: frozenset[str], secrets: Collection[str]
    ) -> None:
        self.session, self.gone, self._cut, self._secrets = session, gone, cut, secrets
        self.asides = _secrets_aside(session, secrets)

    def into(self, one: Descendant, *, is_unclear: bool) -> Iterator[FileWithCutText]:
        """Yield the log of one session and the files next to it if they have cut text.

        `is_unclear` is true if it is unknown whether this log is the copy or the original.
        """
        copy = None if one.handed_over else lookup.load_copy(self.session, one.path)
        self.asides += _secrets_aside(copy, self._secrets) if copy and not is_unclear else []
        said = cut_words.telling_words(_lines(one) if copy is None else TranscriptTurn.raws(copy.own), self.gone)
        if said or self.has_records(copy):
            if copy is None:
                reason = _told(one) if one.handed_over else _cut_it(str(one.path), one.session_id)
            else:
                reason = self._what_to_do(copy, is_unclear=is_unclear)
            yield FileWithCutText(str(one.path), tuple(sorted(said)), reason)
            yield from lookup.copies_with(
                one.agent, one.session_id, self.gone, f"It has text of session {one.session_id}. {_LOSES_IT_TOO}"
            )
        yield from self.beside(one.path, one.agent)

    def has_records(self, copy: Transcript | None) -> bool:
        return copy is not None and bool(lookup.matching_turns(copy, self._cut))

    def beside(self, log: Path, agent: str = "") -> Iterator[FileWithCutText]:
        """Yield the files next to a log, such as long tool outputs, that have cut words."""
        cutter = AGENTS.find_cutter(agent or self.session.tool)
        for path in cutter.files_of(log) if cutter else ():
            if said := cut_words.telling_words(lookup.lines_of(path), self.gone):
                what_to_do = _cut_it(str(path), "") if path.suffix == ".jsonl" else "Delete the file."
                yield FileWithCutText(str(path), tuple(sorted(said)), f"It is next to the log. {what_to_do}")

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


def _archived(look: _CopySearch, descent: Descent, keys: Collection[str]) -> Iterator[FileWithCutText]:
    """Yield kept copies and exports with cut text of sessions that came from the searched one and have no log now.

    `keys` are the keys of the records by which copies are recognized.
    """
    session = look.session
    cutter, lost = AGENTS.find_cutter(session.tool), set(descent.without_log)
    if call_context.limited() or cutter is None:
        return
    for kept in kept_logs.copies():
        if kept.agent != session.tool or READERS[kept.agent].locate(kept.session_id):
            continue
        with suppress(OSError), kept_logs.opened(kept) as path:
            if cutter.holds(path, keys):
                lost.add((kept.agent, kept.session_id))
                if look.has_records(lookup.load_copy(session, path)):
                    said = cut_words.telling_words(lookup.lines_of(path), look.gone)
                    yield FileWithCutText(str(kept.folder), tuple(sorted(said)), _forget(kept.session_id))
    for agent, session_id in sorted(lost):
        yield from lookup.copies_with(agent, session_id, look.gone, _forget(session_id))


def _forget(session_id: str) -> str:
    return advice(
        f"Its log is gone, a copy is kept: smart-fork forget {session_id} removes it.",
        tool=f"The log of session {session_id} is gone: the user can delete the kept copy.",
    )


def _told(one: Descendant) -> str:
    owner = AGENTS.title_of(one.agent)
    if AGENTS.find_cutter(one.agent) is None:
        return f"{owner} received a hand-over of it. Its sessions cannot be cut: delete session {one.session_id} there."
    return f"{owner} received a hand-over of it. {_cut_it(one.session_id, one.session_id)}"


def _cut_it(reference: str, session_id: str) -> str:
    """Return advice on how to cut the text out of another transcript, which `reference` names."""
    return advice(
        f"smart-fork excise list {shlex.quote(reference)} numbers its turns: cut it there.",
        tool=f"Cut it there: {session_id or reference}.",
    )


def _cut_id(session: Transcript, turn: str) -> str:
    return advice(
        f"smart-fork excise cut --id {shlex.quote(turn)} {session.session_id} --force", tool=f"Cut its id, {turn}."
    )


def _lines(one: Descendant) -> Iterator[bytes]:
    with suppress(OSError), READERS[one.agent].as_file(one.path) as path:
        yield from lookup.lines_of(path)
