"""What was cut, looked for in the agents' own files: in everything that was made of a session, and beside its log."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from indexer import kept_logs
from indexer.export import export_path
from indexer.failures import what_failed
from indexer.files import index_db, open_regular
from indexer.store.base import SessionRow
from indexer.store.sqlite import SqliteStore
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.cuts import snapshots
from smart_fork.agents.cuts.model import Transcript, TranscriptTurn
from smart_fork.agents.readers import READERS
from smart_fork.errors import ProgramFailed, SmartForkError, advice
from smart_fork.excise.answer import CopyBehind
from smart_fork.excise.cut_plan import CutPlan
from smart_fork.excise.transcript import descent_of, load_copy, load_for_cut, matching
from smart_fork.excise.words import (
    SECRET,
    all_words,
    is_telling,
    own_words,
    said_in,
    still_said,
    still_secret,
    telling,
    words_among,
    words_at,
    words_in,
)
from smart_fork.excise.writing import written_path
from smart_fork.finding.index_access import opened
from smart_fork.forking.family import Descendant, Descent
from smart_fork.repository.git import GIT_SECONDS, bare_environment
from smart_fork.system import permission
from smart_fork.system.processes import Processes

#: So many solid texts are looked for, the longest.
_MOST = 200
#: Programs that an agent has installed.
_PROGRAMS = ("node_modules", "bin")


def beside_logs(session: Transcript, gone: Collection[str], below: Iterable[Descendant]) -> Iterator[CopyBehind]:
    """Find the files of the agents of a session, and of those that were told of it, that have words that were cut.

    They are kept apart from logs: prompt histories, plans, earlier versions of files, databases. A file, or a line of
    one, that names a session has its words. In all others only what looks like a secret is looked for, since other
    sessions use ordinary words as well.
    """
    if permission.limited() or session.tool not in READERS.names:
        return
    family = {(session.tool, session.session_id), *((one.agent, one.session_id) for one in below)}
    search = _Search(gone, {session_id for _, session_id in family})
    for agent in sorted({agent for agent, _ in family}) if search.wanted or search.solid else ():
        for path in _files_of(agent, search.session_ids):
            yield from search.behind(path, AGENTS.title_of(agent))


class _Search:
    """The words that are looked for, and the sessions that they were cut out of."""

    def __init__(self, gone: Collection[str], session_ids: Collection[str]) -> None:
        self.session_ids = session_ids
        self.wanted = words_in(*(word for word in gone if word.isidentifier() or word.isalnum())) - own_words()
        solid = sorted((one for one in gone if not one.replace("_", "").isalnum() and " " not in one), key=len)
        self.solid = {one: one for one in solid[-_MOST:]}
        self._secret = frozenset(
            word for word in self.wanted if len(word) >= SECRET and any(map(str.isdigit, word)) and not word.isdigit()
        )

    def behind(self, path: Path, owner: str) -> Iterator[CopyBehind]:
        """The file or store, where it has some of them, or cannot be searched."""
        is_store = path.is_dir()
        look = f"It is a {'git repository' if is_store else 'file'} of {owner}'s own"
        where = str(path.parent if is_store else path)
        try:
            found = self._in_store(path) if is_store else self._in_file(path)
        except (SmartForkError, OSError) as error:
            yield CopyBehind(where, (), f"{look}, and is not searched: {what_failed(error)}")
            return
        if found:
            reason = advice(f"{look}: look at it, and delete it.", tool=f"{look}: the user can delete it.")
            yield CopyBehind(where, tuple(sorted(found)), reason)

    def _in_store(self, store: Path) -> set[str]:
        """Those in any version of any file that a git repository has. Sessions are not told apart there."""
        likely = (*self._secret, *self.solid)
        pieces = contents(store, Processes()) if likely else ()
        some = (one for one in pieces if any(word in one.decode("utf-8", "ignore").lower() for word in likely))
        return words_among(some, self._secret, self.solid)

    def _in_file(self, path: Path) -> set[str]:
        if self._is_named(str(path)):
            return words_at(path, self.wanted, self.solid)
        found = words_at(path, self._secret, self.solid)
        return found | (self._in_lines(path) if path.suffix == ".jsonl" else set())

    def _in_lines(self, path: Path) -> set[str]:
        with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
            return set[str]().union(*(self.wanted & words_in(line) for line in file if self._is_named(line)))
        return set()

    def _is_named(self, text: str) -> bool:
        return any(one in text for one in self.session_ids)


def _files_of(agent: str, session_ids: Collection[str]) -> Iterator[Path]:
    """The files of an agent, without logs, what is beside those of other sessions, and programs; of a git repository
    the store of its objects.
    """
    reader, cutter = READERS[agent], AGENTS.find_cutter(agent)
    yield from filter(Path.is_file, cutter.apart() if cutter else ())
    logs = {file.location: reader.id_of(file.path) for file in reader.discover()}
    others = {*logs.values()} - set(session_ids)
    for folder, folders, names in os.walk(reader.home()):
        folders[:] = sorted(name for name in folders if name not in others and name not in _PROGRAMS)
        if "HEAD" in names and "objects" in folders:
            folders.remove("objects")
            yield Path(folder, "objects")
        for path in (Path(one) for name in sorted(names) if (one := f"{folder}/{name}") not in logs):
            if path.is_file() and not path.is_symlink() and next(iter(reader.logs_of(str(path))), None) is None:
                yield path


#: About so much is read at a time; a larger object by itself.
_BATCH_BYTES = 1 << 24


def contents(store: Path, processes: Processes) -> Iterator[bytes]:
    """The contents of all objects in a store that nobody vouches for, packed or not, several at a time.

    Its configuration, its hooks and what it borrows from other repositories do not count.

    Raises:
        ProgramMissing: git is not installed.
        ProgramFailed: git cannot read all of them.
    """
    with tempfile.TemporaryDirectory() as folder:
        own = _around(store, Path(folder))
        listed = _git(own, processes, b"", "--batch-all-objects", "--batch-check=%(objectname) %(objectsize)")
        for names in _batches(listed):
            yield _git(own, processes, b"\n".join(names), "--batch")


def _around(store: Path, own: Path) -> Path:
    """A repository with the objects of another one, and nothing else of it."""
    for name in ("refs", "objects"):
        (own / name).mkdir()
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    for entry in os.scandir(store):
        if entry.is_dir(follow_symlinks=False) and (len(entry.name) == 2 or entry.name == "pack"):
            (own / "objects" / entry.name).symlink_to(Path(entry.path).resolve())
    return own


def _batches(listed: bytes) -> Iterator[list[bytes]]:
    names: list[bytes] = []
    size = 0
    for line in listed.splitlines():
        name, _, length = line.partition(b" ")
        if not length.isdigit():
            raise ProgramFailed(f"git cannot read the objects: {line.decode()}")
        if names and size + int(length) > _BATCH_BYTES:
            yield names
            names, size = [], 0
        names.append(name)
        size += int(length)
    if names:
        yield names


def _git(own: Path, processes: Processes, given: bytes, *options: str) -> bytes:
    done = processes.run(
        ["git", "cat-file", *options], env=bare_environment(own), timeout=GIT_SECONDS, input=given, cwd=own
    )
    if not done.ok:
        raise ProgramFailed(f"git cannot read the objects: {done.complaint}")
    return done.stdout


#: What becomes of our own files of another session.
_GO = "It loses the text when that session does."


def _aside(session: Transcript, secrets: Collection[str]) -> list[CopyBehind]:
    """Find secrets of cut lines that are still in a line that is no message: a summary, a title, what was rewound."""
    wanted = still_secret(TranscriptTurn.raws(session.turns), secrets)
    if not wanted:
        return []
    session = load_for_cut(session.tool, session.source_path, session.composer_id, numbered=True)
    places = zip(session.turns, session.numbers, strict=True)
    turns = [(turn, n) for turn, n in places if "lists" not in turn.meta]  # what it lists are turns
    rest = [turn for turn, n in turns if n is None or turn.role == "system" or turn.meta.get("compacts")]
    others = {turn.id for turn in rest}
    wanted -= still_secret(TranscriptTurn.raws(turn for turn, _ in turns if turn.id not in others), wanted)
    every = zip(rest, TranscriptTurn.raws(rest), strict=True)
    found = {turn.id: still_secret([raw], wanted) for turn, raw in every if wanted}
    return [
        CopyBehind(
            str(session.source_path),
            tuple(sorted(words)),
            f"Line {turn} is not a message, and contains the cut text. {_cut_id(session, turn)}",
        )
        for turn, words in found.items()
        if words
    ]


def behind(session: Transcript, gone: Collection[str], secrets: Collection[str]) -> list[CopyBehind]:
    """The files of agents that still have something of the cuts of a session, each with what to do about it.

    `gone` are the words that were cut and the runs of them, `secrets` those that look like such, as far as they are
    known. Each copy is loaded once.
    """
    cuts = snapshots.cuts(written_path(session))
    cut = frozenset(key for one in cuts for key in one.keys)
    keys = cut.union(*(one.masked for one in cuts))
    if not (keys or gone or secrets):
        return []
    descent = descent_of(session, keys)
    look = _Look(session, frozenset(gone), cut, secrets)
    found = [*look.beside(session.source_path)]
    for one in descent.logs:
        found += look.into(one, is_unclear=one in descent.unclear)
    found += [*_archived(look, descent, keys), *beside_logs(session, gone, descent.logs)]
    named = {one.path: one for one in reversed(found)}  # each once, as it is named first
    return [*reversed(named.values()), *look.asides]


def says(one: Descendant, planned: CutPlan) -> bool:
    """Whether a log says something that a cut is about to take out of its session."""
    turns, edits = planned.session.turns, planned.edits
    changes = (turn for at, turn in enumerate(turns) if turn.id in planned.gone or at in edits)
    wanted = said_in(TranscriptTurn.raws(changes))
    every = zip(enumerate(turns), TranscriptTurn.raws(turns), strict=True)
    stays = (edits.get(at, raw) for (at, turn), raw in every if turn.id not in planned.gone)
    return bool(telling(_lines(one), wanted - still_said(stays, wanted)))


class _Look:
    """What is looked for: words, records by their keys, and secrets. `asides` is where these are in no message."""

    def __init__(
        self, session: Transcript, gone: frozenset[str], cut: frozenset[str], secrets: Collection[str]
    ) -> None:
        self.session, self.gone, self._cut, self._secrets = session, gone, cut, secrets
        self.asides = _aside(session, secrets)

    def into(self, one: Descendant, *, is_unclear: bool) -> Iterator[CopyBehind]:
        """A log, and what lies beside it."""
        copy = None if one.told else load_copy(self.session, one.path)
        self.asides += _aside(copy, self._secrets) if copy and not is_unclear else []
        said = telling(_lines(one) if copy is None else TranscriptTurn.raws(copy.own), self.gone)
        if said or self.has_records(copy):
            if copy is None:
                reason = _told(one) if one.told else _cut_it(str(one.path), one.session_id)
            else:
                reason = self._what_to_do(copy, is_unclear=is_unclear)
            yield CopyBehind(str(one.path), tuple(sorted(said)), reason)
            yield from ours_with(
                one.agent, one.session_id, self.gone, f"It has text of session {one.session_id}. {_GO}"
            )
        yield from self.beside(one.path, one.agent)

    def has_records(self, copy: Transcript | None) -> bool:
        """Whether a copy has records that were cut."""
        return copy is not None and bool(matching(copy, self._cut))

    def beside(self, log: Path, agent: str = "") -> Iterator[CopyBehind]:
        """The files beside a log."""
        cutter = AGENTS.find_cutter(agent or self.session.tool)
        for path in cutter.files_of(log) if cutter else ():
            if said := telling(_read(path), self.gone):
                what_to_do = _cut_it(str(path), "") if path.suffix == ".jsonl" else "Delete the file."
                yield CopyBehind(str(path), tuple(sorted(said)), f"It is next to the log. {what_to_do}")

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


def _archived(look: _Look, descent: Descent, keys: Collection[str]) -> Iterator[CopyBehind]:
    """Our own files of relatives whose logs are gone."""
    session = look.session
    cutter, lost = AGENTS.find_cutter(session.tool), set(descent.lost)
    if permission.limited() or cutter is None:
        return
    for kept in kept_logs.copies():
        if kept.agent != session.tool or READERS[kept.agent].locate(kept.session_id):
            continue
        with suppress(OSError), kept_logs.opened(kept) as path:
            if cutter.holds(path, keys):
                lost.add((kept.agent, kept.session_id))
                if look.has_records(load_copy(session, path)):
                    said = telling(_read(path), look.gone)
                    yield CopyBehind(str(kept.folder), tuple(sorted(said)), _forget(kept.session_id))
    for agent, session_id in sorted(lost):
        yield from ours_with(agent, session_id, look.gone, _forget(session_id))


def ours(agent: AgentName, session_id: str, gone: Collection[str]) -> Iterator[tuple[Path, set[str]]]:
    """Our own files of a session that have some of these words or runs of words: its export, its kept copy, the index.

    Raises:
        IndexUnavailable: the index cannot be looked into.
    """
    export, kept = export_path(agent, session_id), kept_logs.find(agent, session_id)
    if found := still_said(_read(export), gone):
        yield export, found
    if kept is not None:
        with kept_logs.opened(kept) as path:
            if found := still_said(_read(path), gone):
                yield kept.folder, found
    if index_db().exists():
        with opened() as store:
            row = store.session(agent, session_id)
            found = _indexed(store, row, gone) if row is not None else set()
        if found:
            yield index_db(), found


def ours_with(agent: AgentName, session_id: str, gone: Collection[str], reason: str) -> Iterator[CopyBehind]:
    """Our own files of a session that have some of these words, unless these are ordinary words alone."""
    for path, said in ours(agent, session_id, gone):
        if any(map(is_telling, said)):
            yield CopyBehind(str(path), tuple(sorted(all_words(said))), reason)


def _indexed(store: SqliteStore, row: SessionRow, gone: Collection[str]) -> set[str]:
    chunks = {placement.chunk for placement in store.placements_of(row.row)}
    there = said_in(text.encode() for text in (row.title, *store.texts(chunks).values()))
    found = there.intersection(gone)
    words = (word for word in gone if word not in found and " " not in word)
    terms = {f'"{word}"': word for word in words if not _is_form(word, there)}
    return found | {terms[term] for term, rows in store.having("sessions", list(terms), [row.row]).items() if rows}


def _is_form(word: str, others: set[str]) -> bool:
    """Return whether the index may take `word` for a form of another one: "raising" for "raises"."""
    stem = word[: max(3, len(word) - 3)]
    return word.isalpha() and (len(word) == len(stem) or any(one.startswith(stem) for one in others))


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
    """How something is cut out of another transcript."""
    return advice(
        f"smart-fork excise list {shlex.quote(reference)} numbers its turns: cut it there.",
        tool=f"Cut it there: {session_id or reference}.",
    )


def _cut_id(session: Transcript, turn: str) -> str:
    return advice(
        f"smart-fork excise cut --id {shlex.quote(turn)} {session.session_id} --force", tool=f"Cut its id, {turn}."
    )


def _lines(one: Descendant) -> Iterator[bytes]:
    """The lines of a log, whoever wrote it."""
    with suppress(OSError), READERS[one.agent].as_file(one.path) as path:
        yield from _read(path)


def _read(path: Path) -> Iterator[bytes]:
    with suppress(OSError), open_regular(path) as file:
        yield from file
