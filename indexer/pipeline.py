"""The indexing pipeline: reads changed logs, exports their sessions, and stores and embeds them in chunks."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from indexer import log_changes, repositories
from indexer.embedder import Embedder, reporting_loading
from indexer.errors import is_full, is_of_the_store, what_failed
from indexer.handover_action_lines import DONE, calls_of, parse_handover
from indexer.kept_logs import keep_copy, make_room
from indexer.lazy_compilation import dataclass
from indexer.log_changes import Progress, Report, forgotten
from indexer.masking import NOTHING, Masked, joined, mask, mask_once
from indexer.parallel_reading import read_ahead
from indexer.project import Project, is_within, project_of
from indexer.repositories import recorded, repository_of
from indexer.session_export import (
    LONG_CHARACTERS,
    Export,
    Piece,
    chunk,
    export_path,
    lines_searched,
    pieces_of,
    to_markdown,
    write_export,
)
from indexer.session_work import Outcome, acts, authored_by, edited_paths, edits_of, errors_of, last_answered, worked_in
from indexer.store.base import FORGOTTEN, Document, Reading, Scope, Words
from indexer.transcripts.base import REWOUND, UNREAD, Agents, Checkpoint, LogFile, ReadResult
from indexer.transcripts.commands import calls_us
from indexer.transcripts.line_hashes import hashing_lines
from indexer.transcripts.model import AgentName, BrokenLine, Exchange, Session, Turn
from indexer.transcripts.symbols import Symbols
from indexer.transcripts.texts import headline_of, title_of

if TYPE_CHECKING:
    from indexer.store.sqlite import Store

_OUR_NAME = re.compile(r"smart[-_ ]fork", re.IGNORECASE)
_SENTENCES = re.compile(r"(?<=[.!?])(?=\s)|(?<=\n)")
#: Maximum number of further repositories of a session for which its work is stored.
_MAX_HOSTS = 16


@dataclass(frozen=True, slots=True)
class SearchableTexts:
    """The texts by which a session is found: its `pieces`, its `title` and its other names (`also_called`).

    `until` is the time of the last text. `acted` is the number of the last exchange (a prompt with its answer) with an
    action, -1 if the session only talked.
    """

    pieces: tuple[Piece, ...]
    title: Masked
    also_called: Masked
    until: str
    acted: int


def searchable_texts(session: Session, pieces: Sequence[Piece], agents: Agents) -> SearchableTexts:
    """Return the texts by which `session` is found, without questions to smart-fork and repetitions of its answers.

    Those quote other sessions, so a search would find them instead of the other sessions. An exchange (a prompt with
    its answer) that asks smart-fork and changes nothing is dropped. If it asks and later changes something, only the
    text between the question and the change is dropped.
    """
    exchanges = session.exchanges()
    acting = (one.index for one in exchanges for turn in one.turns if any(call.action for call in calls_of(turn)))
    acted = max(acting, default=-1)
    asking = {one.index: one for one in exchanges if _asks(one)}
    quoting = {turn.id for one in asking.values() for turn in _quoting(one)}
    left: list[Piece] = []
    apart = False
    for piece in pieces:
        parts: Sequence[tuple[str, bool]] = [(piece.text, True)]
        if piece.exchange in asking:
            parts = _parts(piece, quoting, agents)
        elif len(piece.text) > LONG_CHARACTERS:
            parts = list(lines_searched(piece.text))
        for run in _runs(piece, parts):
            if run is None:
                apart = True
            else:
                left.append(run._replace(apart=True) if apart else run)
                apart = False
    if not asking:
        return SearchableTexts(tuple(left), session.title, session.also_called, session.last_activity, acted)
    until = session.turns[left[-1].turn].timestamp if left else ""
    return SearchableTexts(tuple(left), *_names(session, pieces, left), until, acted)


def _names(session: Session, pieces: Sequence[Piece], left: Sequence[Piece]) -> tuple[Masked, Masked]:
    """Return the title and the other names (`also_called`) of a session of which only the pieces `left` are indexed.

    If the other pieces decided its title, the title is made from the prompts in `left`, unless a person gave it, and
    there are no other names.
    """
    before, now = (title_of("", _prompts(some)) for some in (pieces, left))
    if before == now:
        return session.title, session.also_called
    return (session.title if left and session.named else now), NOTHING


def _prompts(pieces: Sequence[Piece]) -> Iterator[Masked]:
    for _, runs in groupby((one for one in pieces if one.role == "user"), key=lambda one: one.turn):
        yield joined(" ", (one.text for one in runs))


def _parts(piece: Piece, quoting: Collection[str], agents: Agents) -> list[tuple[str, bool]]:
    """Return the parts of a piece as (text, own). The piece belongs to an exchange that asks smart-fork.

    `own` is False for text that asks smart-fork or repeats its answer: sentences of a prompt that name smart-fork,
    actions that open a session, and messages with an id in `quoting`.
    """
    if piece.role == "action":
        return [(line, not agents.opens_a_session(line.strip())) for line in piece.text.splitlines(keepends=True)]
    if piece.role == "user":
        return [
            (part, piece.message_id not in quoting and not _OUR_NAME.search(part))
            for part in _SENTENCES.split(piece.text)
        ]
    return [(piece.text, piece.message_id not in quoting)]


def _runs(piece: Piece, parts: Sequence[tuple[str, bool]]) -> Iterator[Piece | None]:
    """Yield a piece for each run of consecutive own `parts` of `piece`, and `None` for each run of other parts."""
    if all(kept for _, kept in parts):
        yield piece
        return
    line = piece.line
    for kept, run in groupby(parts, key=lambda part: part[1]):
        text = "".join(part for part, _ in run)
        inside = text.strip()
        if not kept:
            yield None
        elif inside:
            yield piece._replace(text=mask(inside), line=line + text[: text.index(inside)].count("\n"))
        line += text.count("\n")


def _asks(exchange: Exchange) -> bool:
    return any(
        (turn.prompt and calls_us(turn.text)) or any(call.ours for call in calls_of(turn)) for turn in exchange.turns
    )


def _quoting(exchange: Exchange) -> Iterator[Turn]:
    """Yield the turns of an exchange (a prompt with its answer) that repeat smart-fork's answer, to be left unindexed.

    An exchange that changes nothing is only about this answer, so all its turns are yielded. Otherwise, these are the
    turns between a question to smart-fork and the next change.
    """
    changing = [acts(turn) for turn in exchange.turns]
    if not any(changing):
        yield from exchange.turns
        return
    asking = [any(call.ours for call in calls_of(turn)) for turn in exchange.turns]
    first = next(i for i, does in enumerate(zip(changing, asking, strict=True)) if any(does))
    quotes = not changing[first]
    for turn, changing_it, asks in zip(exchange.turns, changing, asking, strict=True):
        quotes = not changing_it if changing_it or asks else quotes
        if quotes and not turn.prompt and not turn.answer:
            yield turn


log = logging.getLogger(__name__)

#: Bytes of logs that are read and stored in a second, at least.
LOG_BYTES = 8 << 20
#: Chunks embedded between two commits. A crash loses at most this much work.
EMBED_ROWS = 128
#: Chunks embedded between two reports of progress: one or two seconds of a processor.
PROGRESS_ROWS = 32
#: Chunks that are sorted at once. To sort all that wait would take as long as embedding a few of them.
ORDERED_ROWS = 2048


def read_logs(
    store: Store,
    agents: Agents,
    files: Sequence[LogFile],
    report: Report,
    *,
    progress: Progress | None = None,
    deadline: float | None = None,
) -> set[str]:
    """Read logs into the index, so that their words can be searched. Return the locations of the logs that were read.

    A log that cannot be read is noted in `report`, and does not stop the others. Reading stops at `deadline` (of
    `time.monotonic`), but at least one log is read.
    """
    started = time.perf_counter()
    done, gone = set[str](), forgotten()
    with (
        hashing_lines(bytes.fromhex(store.meta("key"))),
        closing(read_ahead(agents, files, partial(_checkpoint, store))) as ahead,
    ):
        for file, result in ahead:
            if done and deadline is not None and time.monotonic() + file.size / LOG_BYTES >= deadline:
                break
            if progress:
                progress("reading", len(done), len(files))
            try:
                _read_log(store, agents, file, report, gone=gone, result=result)
            except OSError as error:
                if is_full(error):
                    raise
                report.failed[str(file.path)] = what_failed(error).removeprefix(f"{file.path}: ")
                log.warning("cannot read %s: %s", file.path, error)
            except Exception as error:  # one odd log must never keep all others out of the index
                if is_of_the_store(error):  # and no log may be taken for odd because the disk is full
                    raise
                report.failed[str(file.path)] = f"{type(error).__name__}: {error}"
                log.exception("cannot index %s", file.path)
                store.save(Reading(file, log_changes.VERSION, UNREAD, skipped="could not be indexed"), None)
            done.add(file.location)
    Symbols.forget_shown()
    if done:
        make_room(store)
    if progress and files:
        progress("reading", len(done), len(files))
    report.seconds["reading"] = report.seconds.get("reading", 0.0) + time.perf_counter() - started
    return done


def has_other_vectors(store: Store, embedder: Embedder) -> bool:
    """Return True if the index has vectors of another model than `embedder`'s. Only `index run` replaces them.

    Two processes with two models would otherwise keep deleting each other's vectors.
    """
    known = store.meta("model").partition("@")[0]
    return known not in ("", embedder.model.partition("@")[0])


def embed_waiting(
    store: Store, embedder: Embedder, report: Report, *, first: Scope | None = None, only_first: bool = False,
    wanted: Collection[int] = (), deadline: float | None = None, progress: Progress | None = None,
) -> None:  # fmt: skip
    """Embed chunks that have no vector, until `deadline` (of `time.monotonic`), but at least one batch.

    Embed the `wanted` chunks first, then the first chunk of each exchange (a prompt with its answer), then the rest.
    Among equals, prefer chunks in the scope `first`. With `only_first`, embed only `wanted` and the first chunks of
    exchanges in `first`, and others only if one batch has room for them. The model is loaded only if a chunk lacks its
    vector.
    """
    started = time.perf_counter()
    counts = store.counts()
    if counts.chunks == counts.embedded and (not counts.chunks or store.meta("model") == embedder.model):
        report.waiting = 0
        return
    with reporting_loading(progress):
        dimensions = embedder.dimensions
    if store.use_model(embedder.model, dimensions):
        log.info("the index is embedded again with %s", embedder.model)
    done, taken, total = 0, 0, _waiting(store)
    if only_first:
        number, embedded = store.first_passages(first)
        if number == embedded and total > EMBED_ROWS:
            report.waiting = total
            return
        total = min(total, max(number - embedded, EMBED_ROWS) + len(wanted))
    for rows in _batches(store, first.parts if first else (), wanted):
        texts = sorted({text for _, text in rows}, key=lambda text: (len(text), text))
        vectors: dict[str, bytes] = {}
        for start in range(0, len(texts), PROGRESS_ROWS):
            if progress:
                progress("embedding", done + start, max(total, done + start))
            some = texts[start : start + PROGRESS_ROWS]
            with reporting_loading(progress):
                made = embedder.embed(some)
            vectors |= {text: vector.tobytes() for text, vector in zip(some, made, strict=True)}
        stored = store.add_vectors([(id_, vectors[text]) for id_, text in rows])
        done += stored
        taken += len(rows)
        report.embedded += stored
        if (deadline is not None and time.monotonic() >= deadline) or (only_first and taken >= total):
            break
    if progress:
        progress("embedding", done, max(total, done))
    report.waiting = _waiting(store)
    report.seconds["embedding"] = report.seconds.get("embedding", 0.0) + time.perf_counter() - started


def _batches(store: Store, first_parts: Sequence[int], wanted: Collection[int]) -> Iterator[list[tuple[int, str]]]:
    """Yield batches of (chunk id, text), of all chunks without a vector. Other processes may add chunks meanwhile."""
    while rows := store.waiting(first_parts, ORDERED_ROWS, wanted):
        for start in range(0, len(rows), EMBED_ROWS):
            yield rows[start : start + EMBED_ROWS]


def _waiting(store: Store) -> int:
    counts = store.counts()
    return counts.chunks - counts.embedded


def _checkpoint(store: Store, file: LogFile) -> Checkpoint:
    return store.checkpoint(file.location, log_changes.VERSION, file.inode) or UNREAD


def _read_log(
    store: Store,
    agents: Agents,
    file: LogFile,
    report: Report,
    *,
    gone: Collection[tuple[AgentName, str]],
    result: ReadResult | None,
) -> None:
    """Read a log into the index, unless its session is in `gone`. A `result` is from another process's reading."""
    reader = agents[file.agent]
    if (file.agent, reader.id_of(file.path)) in gone:
        _pass_over(store, Reading(file, log_changes.VERSION, UNREAD, skipped=FORGOTTEN), report)
        return
    result = result or reader.read(file.path, _checkpoint(store, file))
    report.read += 1
    report.resumed += result.resumed
    report.bytes_read += result.bytes_read
    report.broken_lines += len(result.broken)
    _log_broken(result.broken)
    reading = Reading(
        file, log_changes.VERSION, result.checkpoint, result.skipped, result.broken, result.resumed, result.records,
        result.unknown,
    )  # fmt: skip
    session = result.session
    for turn in session.turns if session and result.masked else ():
        mask_once.know(turn.text, Masked(turn.text))
    if session is None:
        _pass_over(store, reading, report)
        if result.skipped == REWOUND and store.forget_session(file.agent, session_id := reader.id_of(file.path)):
            export_path(file.agent, session_id).unlink(missing_ok=True)
    elif (file.agent, session.session_id) in gone:
        _pass_over(store, Reading(file, log_changes.VERSION, UNREAD, skipped=FORGOTTEN), report)
    elif save_session(store, agents, reading, session, report):
        keep_copy(file, session.session_id, reader)


def _pass_over(store: Store, reading: Reading, report: Report) -> None:
    report.skipped[reading.skipped] = report.skipped.get(reading.skipped, 0) + 1
    store.save(reading, None)


def save_session(store: Store, agents: Agents, reading: Reading, session: Session, report: Report) -> bool:
    """Store a session and write its export. Return False if another log has a newer copy of the session."""
    known = store.session(session.agent, session.session_id)
    repo_root = known.repo_root if known and known.cwd == session.cwd else ""
    document, export = document_of(session, agents, repo_root)

    def publish() -> None:
        report.exported += write_export(export_path(session.agent, session.session_id), export.text)

    saved = store.save(reading, document, publish)
    report.sessions += saved
    return saved


def document_of(session: Session, agents: Agents, repo_root: str = "") -> tuple[Document, Export]:
    """Return the document that is stored for a session, without text that only asks smart-fork, and its full export.

    `repo_root` is the session's repository as stored earlier, for a session whose worktree was removed since.
    """
    resolved, project = _place_of(session, repo_root)
    project = project.begun_at(session.head)
    export = to_markdown(session, pieces_of(session, mask_once), project.root if project.git else "")
    known = searchable_texts(session, export.pieces, agents)
    words = _words(known, session, " ".join(_symbols(session)), (*edited_paths(session), *session.wrote))
    passages = chunk(known.pieces, session.root_id)
    outcome, edits = Outcome.of(session), edits_of(session, resolved)
    found_by = (known.until, known.acted, export.digest)
    left = (last_answered(session), authored_by(session, resolved), errors_of(session))
    document = Document(session, project, resolved, passages, words, *found_by, outcome, edits, *left)
    return replace(document, guests=tuple(_guests(document, known))), export


def _words(known: SearchableTexts, session: Session, symbols: str, work: Iterable[str]) -> Words:
    asked, answered, actions = (
        "\n".join(one.text for one in known.pieces if one.role == role) for role in ("user", "assistant", "action")
    )
    return Words(known.title, asked, answered, actions, symbols, known.also_called, "\n".join(work), session.headline)


def _guests(document: Document, known: SearchableTexts) -> Iterator[Document]:
    """Yield a document for each further repository in which a session worked, with only the exchanges there.

    Another person's session, which came with a repository, yields nothing.
    """
    session, hosts = document.session, dict[Project, set[int]]()
    for place, exchanges in () if session.received else worked_in(session).items():
        if (host := repository_of(place)) and host.key != document.project.key:
            hosts.setdefault(host, set()).update(exchanges)
    for host, there in [*hosts.items()][:_MAX_HOSTS]:
        pieces = tuple(piece for piece in known.pieces if piece.exchange in there)
        talk = replace(known, pieces=pieces, title=title_of("", _prompts(pieces)), also_called=NOTHING)
        files = tuple(one for one in document.edits.files if is_within(one, host.root))
        own = replace(session, title=talk.title, headline=headline_of(talk.title, session.turns_in(there)))
        yield replace(
            document, session=own, project=host.with_guest_key(), resolved_cwd=host.root,
            chunks=tuple(one for one in document.chunks if one.exchange in there), words=_words(talk, own, "", files),
            edits=replace(document.edits, files=files),
            authored=tuple(one for one in document.authored if one.exchange in there),
            errors=tuple(one for one in document.errors if one.exchange in there),
        )  # fmt: skip


def _symbols(session: Session) -> Symbols:
    """Return the names of code in a session's tool inputs and outputs, also in those of a session handed over to it."""
    found = Symbols(session.symbols)
    for turn in session.turns:
        if turn.role == "assistant" and DONE in turn.text:
            for one in parse_handover(turn.text).done:
                found.add(f"{one.line}\n{one.outcome}")
                found.add(" ".join(one.names))
    return found


def _place_of(session: Session, repo_root: str) -> tuple[str, Project]:
    """Return a session's directory without links, and its project. Both are empty if the log's path is not absolute."""
    resolved = recorded(session.cwd)
    if resolved is None:
        return "", Project("", "", git=False)
    project = project_of(resolved)
    if not project.git and not os.path.exists(resolved):  # noqa: PTH110 - also of one whose name is too long
        with suppress(OSError, ValueError):  # a home that may only be read
            repositories.note_recorded(resolved, session.remote, session.begun_at, session.commits)
        before = project_of(repo_root) if repo_root else project
        project = before if before.git else project
    return str(resolved), project


def _log_broken(broken: Sequence[BrokenLine]) -> None:
    for line in broken[:3]:
        log.warning("%s:%d: not a record: %s", line.path, line.number, line.reason)
    if len(broken) > 3:
        log.warning("%s: %d more lines are not records", broken[0].path, len(broken) - 3)
