"""Changed logs -> read -> export -> chunk -> store, one transaction a session; then vectors for what has none."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from indexer import chunks, redact
from indexer.embedding import Embedder
from indexer.failures import is_full, is_of_the_store
from indexer.forgotten import forgotten
from indexer.keeping import keep_copy, make_room
from indexer.markdown import EXPORT_VERSION, export_names, export_path, to_markdown, write_export
from indexer.masks import Masks
from indexer.pieces import Piece, pieces_of
from indexer.project import Project, project_of, resolve
from indexer.store.base import FORGOTTEN, Document, Reading, Scope, Store, Words
from indexer.transcripts.agents import adapter
from indexer.transcripts.base import AgentAdapter, Checkpoint, LogFile
from indexer.transcripts.model import Agent, BrokenLine, Session, shorten
from indexer.transcripts.state import READER_VERSION

log = logging.getLogger(__name__)

#: What the stored form of a session depends on: a log read by another version is read again.
VERSION = f"{READER_VERSION}.{chunks.CHUNKER_VERSION}.{redact.VERSION}.{EXPORT_VERSION}"
#: Chunks embedded between two commits: a crash loses at most this much work.
EMBED_ROWS = 128
_NOTHING = Checkpoint(0, 0, "", b"")
#: How much of a prompt is looked at for secrets, where its beginning is the title.
_MASKED_CHARACTERS = 2000
_mask = Masks(redact.redact)

#: Is told a stage, how much of it is done, and of how much. Called where nothing is half done: it may raise to end it.
Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class Report:
    """What a run did. `failed` are logs that could not be read, with the reason; `seconds` by stage."""

    files: int = 0
    unchanged: int = 0
    read: int = 0
    resumed: int = 0
    sessions: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    broken_lines: int = 0
    bytes_read: int = 0
    exported: int = 0
    removed: int = 0
    embedded: int = 0
    waiting: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


def changed_logs(store: Store, adapters: Iterable[AgentAdapter], report: Report) -> list[LogFile]:
    """Logs that are new, not as they were, or without their export (F-147), newest first. One `stat` a log.

    Logs that have gone are forgotten; one that is merely not in these adapters' homes has not.
    """
    there = {file.location: file for agent in adapters for file in agent.discover()}
    seen = store.seen()
    gone = [path for path in seen.keys() - there.keys() if not os.path.exists(path)]  # noqa: PTH110 - False on any error
    if gone:
        store.forget_files(gone)
        seen = store.seen()
    missing = _without_export(store)
    changed = [file for path, file in there.items() if seen.get(path) != (*file.stamp, VERSION) or path in missing]
    report.files, report.unchanged = len(there), len(there) - len(changed)
    report.removed += len(gone)
    return sorted(changed, key=lambda file: (-file.mtime_ns, file.location))


def named_logs(store: Store, adapters: Sequence[AgentAdapter], paths: Collection[str], report: Report) -> list[LogFile]:
    """Those of these `paths` that are logs and not as they were, newest first; those that have gone are forgotten.

    It costs what they cost, however many others there are.
    """
    there = {path: file for path in paths for agent in adapters if (file := agent.log_at(path)) is not None}
    seen = store.seen(paths)
    gone = [path for path in seen.keys() - there.keys() if not os.path.exists(path)]  # noqa: PTH110 - as above
    if gone:
        store.forget_files(gone)
    changed = [file for path, file in there.items() if seen.get(path) != (*file.stamp, VERSION)]
    report.files, report.unchanged = len(there), len(there) - len(changed)
    report.removed += len(gone)
    return sorted(changed, key=lambda file: (-file.mtime_ns, file.location))


def _without_export(store: Store) -> set[str]:
    """Logs whose session should have an export and has none. One listing a folder."""
    exports: dict[Agent, set[str]] = {}
    missing: set[str] = set()
    for agent, session_id, path in store.sources():
        if agent not in exports:
            exports[agent] = export_names(agent)
        # Nearly all ids are their export's name as they are.
        if f"{session_id}.md" not in exports[agent] and export_path(agent, session_id).name not in exports[agent]:
            missing.add(path)
    return missing


def read_logs(
    store: Store,
    files: Sequence[LogFile],
    report: Report,
    progress: Progress | None = None,
    deadline: float | None = None,
) -> int:
    """Bring these logs into the index, words at once. A log that cannot be read is noted and does not stop the others.

    Returns how many were read before `deadline` (of `time.monotonic`): at least one.
    """
    started = time.perf_counter()
    done, gone = 0, forgotten()
    for number, file in enumerate(files):
        if number and deadline is not None and time.monotonic() >= deadline:
            break
        if progress:
            progress("reading", number, len(files))
        try:
            _read_log(store, file, report, gone)
        except OSError as error:
            if is_full(error):
                raise
            report.failed[str(file.path)] = str(error)
            log.warning("cannot read %s: %s", file.path, error)
        except Exception as error:  # one odd log must never keep all others out of the index
            if is_of_the_store(error):  # and no log may be taken for odd because the disk is full
                raise
            report.failed[str(file.path)] = f"{type(error).__name__}: {error}"
            log.exception("cannot index %s", file.path)
            store.save(Reading(file, VERSION, _NOTHING, skipped="could not be indexed"), None)
        done += 1
    make_room(store)
    if progress:
        progress("reading", done, len(files))
    report.seconds["reading"] = report.seconds.get("reading", 0.0) + time.perf_counter() - started
    return done


def embed_waiting(
    store: Store, embedder: Embedder, report: Report, *, first: Scope | None = None,
    deadline: float | None = None, progress: Progress | None = None,
) -> None:  # fmt: skip
    """Vectors for chunks that have none, those of `first` first; stops at `deadline` (of `time.monotonic`).

    The model is not loaded where there is nothing to do.
    """
    started = time.perf_counter()
    parts = first.parts if first else ()
    counts = store.counts()
    if counts.chunks == counts.embedded and (not counts.chunks or store.meta("model") == embedder.model):
        report.waiting = 0
        return
    if store.use_model(embedder.model, embedder.dimensions):
        log.info("the index is embedded anew with %s", embedder.model)
    total = _waiting(store)
    done = 0
    while deadline is None or time.monotonic() < deadline:
        rows = store.waiting(parts, EMBED_ROWS)
        if not rows:
            break
        texts = sorted({text for _, text in rows}, key=lambda text: (len(text), text))
        vectors = {text: vector.tobytes() for text, vector in zip(texts, embedder.embed(texts), strict=True)}
        done += store.add_vectors([(id_, vectors[text]) for id_, text in rows])
        if progress:
            progress("embedding", done, max(total, done))
    report.embedded += done
    report.waiting = _waiting(store)
    report.seconds["embedding"] = report.seconds.get("embedding", 0.0) + time.perf_counter() - started


def _waiting(store: Store) -> int:
    counts = store.counts()
    return counts.chunks - counts.embedded


def _read_log(store: Store, file: LogFile, report: Report, gone: Collection[tuple[Agent, str]]) -> None:
    reader = adapter(file.agent)
    if (file.agent, reader.id_of(file.path)) in gone:
        _pass_over(store, Reading(file, VERSION, _NOTHING, skipped=FORGOTTEN), report)
        return
    result = reader.read(file.path, store.checkpoint(str(file.path), VERSION, file.inode))
    report.read += 1
    report.resumed += result.resumed
    report.bytes_read += result.bytes_read
    report.broken_lines += len(result.broken)
    _log_broken(result.broken)
    reading = Reading(file, VERSION, result.checkpoint, result.skipped, result.broken, result.resumed)
    session = result.session
    if session is None:
        _pass_over(store, reading, report)
    elif (file.agent, session.session_id) in gone:
        _pass_over(store, Reading(file, VERSION, _NOTHING, skipped=FORGOTTEN), report)
    elif save_session(store, reading, session, report):
        keep_copy(file, session.session_id)


def _pass_over(store: Store, reading: Reading, report: Report) -> None:
    report.skipped[reading.skipped] = report.skipped.get(reading.skipped, 0) + 1
    store.save(reading, None)


def save_session(store: Store, reading: Reading, session: Session, report: Report) -> bool:
    """Store a session that was read, with its export; False where another log holds a newer copy of it (F-103)."""
    document, pieces = document_of(session, _repo_root_of(store, session))

    def export() -> None:
        markdown = to_markdown(session, pieces, document.project.root if document.project.git else "")
        report.exported += write_export(export_path(session.agent, session.session_id), markdown)

    saved = store.save(reading, document, export)
    report.sessions += saved
    return saved


def _repo_root_of(store: Store, session: Session) -> str:
    """The repository that this session was found in when it was read before."""
    known = store.session(session.agent, session.session_id)
    return known.repo_root if known and known.cwd == session.cwd else ""


def document_of(session: Session, repo_root: str = "") -> tuple[Document, tuple[Piece, ...]]:
    """A session in the form that is stored, and its pieces with secrets masked.

    `repo_root` is the repository of its directory as far as it was known: a removed worktree leaves no sign of it.
    """
    pieces = pieces_of(session, _mask)
    resolved, project = _place_of(session.cwd, repo_root)
    session = replace(session, title=_title(session))
    words = Words(
        title=session.title,
        asked="\n".join(piece.text for piece in pieces if piece.role == "user"),
        answered="\n".join(piece.text for piece in pieces if piece.role == "assistant"),
        actions="\n".join(piece.text for piece in pieces if piece.role == "action"),
        symbols=redact.redact(" ".join(session.symbols)),
    )
    return Document(session, project, resolved, chunks.chunk(pieces, session.root_id), words), pieces


def _title(session: Session) -> str:
    """The title with secrets masked, also one that the title's end has cut in two."""
    title = session.title
    if (start := title.removesuffix("...")) != title:
        asked = (shorten(turn.text, _MASKED_CHARACTERS) for turn in session.turns if turn.prompt)
        title = next((text for text in asked if text.startswith(start)), title)
    return shorten(redact.redact(title), len(session.title))


def _place_of(cwd: str, repo_root: str) -> tuple[str, Project]:
    """The resolved directory and its project; nowhere for what is no absolute path of this system (F-075)."""
    if not Path(cwd).is_absolute() or "\0" in cwd:
        return "", Project("", "", git=False)
    resolved = resolve(cwd)
    project = project_of(resolved)
    if repo_root and not project.git and not resolved.exists():
        before = project_of(repo_root)
        project = before if before.git else project
    return str(resolved), project


def _log_broken(broken: Sequence[BrokenLine]) -> None:
    for line in broken[:3]:
        log.warning("%s:%d: not a record: %s", line.path, line.number, line.reason)
    if len(broken) > 3:
        log.warning("%s: %d more lines are not records", broken[0].path, len(broken) - 3)
