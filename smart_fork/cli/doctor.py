"""The command ``doctor``: it checks whether this installation works, and changes no file.

With ``--deep`` it also compares the index with the session logs, from database pages to search results.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, cast

import apsw
import numpy as np
import typer

from indexer import default_embedder, kept_logs
from indexer.embedder import Embedder, reporting_loading
from indexer.errors import what_failed
from indexer.lazy_compilation import dataclass
from indexer.log_changes import VERSION, Progress, forgotten
from indexer.pipeline import document_of
from indexer.safe_files import index_db
from indexer.session_export import export_path, is_export
from indexer.store import damage, vectors
from indexer.store.base import Scope, SessionRow
from indexer.store.queries import StoreReading
from indexer.store.sqlite import Store
from indexer.transcripts.base import LogFile
from smart_fork.agents.log_readers import READERS
from smart_fork.cli.output import out, plain, printed_as_json, progress_bar, say, working
from smart_fork.cli.service.client import ServiceGoneError, find_service
from smart_fork.cli.service.instance import announced
from smart_fork.cli.setup import installed_parts
from smart_fork.doctor import Check, Checked, run_checks
from smart_fork.finding.index_access import unavailable
from smart_fork.finding.query import Query, words_of
from smart_fork.finding.search import embedded, search
from smart_fork.workers.registry_path import registry_file


def doctor(
    deep: Annotated[bool, "Compare the index with a sample of the logs. Slow."] = False,
    seed: Annotated[int | None, "Seed of the sample, to repeat a run."] = None,
) -> None:
    """Test every part by using it, and name the next step for each failure."""
    with working("checking each part"):
        checks = run_checks() + Check.run("set-up", installed_parts.checks)
    if deep:
        seed = secrets.randbelow(1_000_000) if seed is None else seed
        with progress_bar() as progress:
            checks += examine(seed, progress=progress)
    found = Checked.of(checks, seed if deep else None)
    if not printed_as_json(found):
        _print(checks)
        if deep:
            say(f"The sample was chosen by --seed {seed}.")
    if not found.ok:
        raise typer.Exit(1)


def _print(checks: Sequence[Check]) -> None:
    for check in checks:
        mark, style = ("ok", "green") if check.ok else ("--", "yellow") if check.optional else ("NO", "bold red")
        out.print(plain(f"{mark}  ", style), f"{check.name:<16} {check.detail}", sep="")
        if check.next_step:
            out.print(f"      {check.next_step}")


#: Numbers of the newest and of random logs to read again, of passages to embed again, and of searches.
NEWEST_LOGS, RANDOM_LOGS, MAX_PASSAGES, MAX_QUESTIONS = 10, 10, 20, 5
#: The least similarity of a passage's stored vector (which is rounded) and a new one. Other texts are far below.
MIN_SIMILARITY = 0.99
#: The fewest different words of a passage to search for: shorter ones may be in many sessions.
MIN_WORDS = 4
#: A search must find the passage's session among so many results.
MAX_RANK = 5


@dataclass(frozen=True, slots=True)
class _Sample:
    """A session in the index and its log, which ``doctor --deep`` compares with each other."""

    session: SessionRow
    file: LogFile


def examine(seed: int, embedder: Embedder | None = None, progress: Progress | None = None) -> list[Check]:
    """Run all checks of ``doctor --deep``. For an unchanged index, `seed` decides which logs are sampled."""
    embedder, told = embedder or default_embedder.configured_embedder(), progress or (lambda *_: None)
    if not index_db().exists():
        missing = Check("index", ok=False, detail="there is no index to examine", next_step=Check.RUN_INDEX)
        return [missing, *Check.run("service", _service)]
    try:
        with reporting_loading(progress), damage.read_only(index_db()) as db:
            return _Examination(StoreReading(db), random.Random(seed), embedder, told).checks()  # noqa: S311 - a sample
    except apsw.Error as error:
        problem = unavailable(error)
        damaged = Check("integrity", ok=False, detail=problem.message, next_step=problem.hint)
        return [damaged, *Check.run("service", _service)]


class _Examination:
    def __init__(self, store: StoreReading, chance: random.Random, embedder: Embedder, progress: Progress) -> None:
        self._store, self._chance, self._embedder, self._progress = store, chance, embedder, progress
        self._samples: list[_Sample] = []

    def checks(self) -> list[Check]:
        db = self._store.db
        stages: dict[str, Callable[[], Iterator[Check]]] = {
            "integrity": lambda: _part("integrity", damage.damage(db), "no damage in the index"),
            "workers": _workers,
            "references": lambda: _part("references", damage.dangling(db), "no row points to a missing one"),
            "words": lambda: _part("words", damage.words(db), "all passages and sessions have their words"),
            "vectors": lambda: _part("vectors", vectors.faults(db), "all vectors are where they belong"),
            "logs": self._logs,
            "sample": self._sample,
            "exports": self._exports,
            "meaning": self._meaning,
            "questions": self._questions,
            "service": _service,
        }
        found: list[Check] = []
        for number, (name, stage) in enumerate(stages.items()):
            self._progress("examining", number, len(stages))
            found += Check.run(name, stage)
        self._progress("examining", len(stages), len(stages))
        return found

    # -- logs ------------------------------------------------------------------------------------------------------

    def _logs(self) -> Iterator[Check]:
        """Check for logs that are not indexed, and indexed logs that are gone. Then choose the logs to sample."""
        there = {file.location: file for agent in READERS for file in agent.discover()}
        rows: Any = self._store.db.execute(
            "SELECT files.path, files.agent, session_id FROM files LEFT JOIN sessions ON sessions.id = session"
        )
        known = {path: (agent, session_id) for path, agent, session_id in rows}
        new = there.keys() - known
        gone = READERS.deleted(known.keys() - there.keys())
        bare = [path for path in gone if known[path][1] and kept_logs.find(*known[path]) is None]
        for paths, what in (
            (new, "are not in the index yet"),
            (gone, "in the index are gone"),
            (bare, "have no kept copy: their sessions can be found, but not forked"),
        ):
            if paths:
                detail = f"{len(paths)} logs {what}: {_some(paths)}"
                yield Check("logs", ok=False, detail=detail, next_step=Check.RUN_INDEX, optional=True)
        self._samples = self._sampled(there)
        yield Check("logs", ok=True, detail=f"{len(there)} logs, {len(known)} of them indexed")

    def _sampled(self, there: dict[str, LogFile]) -> list[_Sample]:
        rows: Any = self._store.db.execute(
            "SELECT files.path, session, size, mtime_ns, inode FROM files JOIN sessions ON sessions.id = session "
            "WHERE sessions.path = files.path AND skipped = '' AND files.version = ? "
            "ORDER BY mtime_ns DESC, files.path",
            (VERSION,),
        )
        same = [(path, row) for path, row, *stamp in rows if path in there and there[path].stamp == tuple(stamp)]
        chosen = same[:NEWEST_LOGS] + self._chance.sample(same[NEWEST_LOGS:], min(RANDOM_LOGS, len(same[NEWEST_LOGS:])))
        sessions = self._store.sessions(row for _, row in chosen)
        return [_Sample(sessions[row], there[path]) for path, row in chosen]

    def _sample(self) -> Iterator[Check]:
        """Read the sampled logs again, and compare each with its indexed passages and its export (a Markdown file)."""
        faults: list[str] = []
        changed: list[str] = []
        for number, one in enumerate(self._samples):
            self._progress("reading logs again", number, len(self._samples))
            stored, exported = self._compare(one)
            faults += [stored] * bool(stored)
            changed += [exported] * bool(exported)
        yield from _checks_of(
            "sample", faults, f"{len(self._samples)} logs were read again, and match the index", _rebuild()
        )
        if changed:
            step = f"Delete {'it' if len(changed) == 1 else 'them'}, then run `smart-fork index run`."
            yield from _checks_of("exports", [f"does not match its log: {path}" for path in changed], "", step)

    def _compare(self, one: _Sample) -> tuple[str, str]:
        """Read the log of the session `one` again, and compare it with the index and the export (a Markdown file).

        Return a complaint about the passages, and the path of an export that differs; both empty if nothing is wrong.
        """
        agent, file, row = READERS[one.file.agent], one.file, one.session
        who = f"{row.agent} session {row.session_id}"
        try:
            session = agent.read(file.path).session
        except OSError as error:
            return f"{who}: its log cannot be read: {what_failed(error)}", ""
        now = agent.log_at(file.location)
        if now is None or now.stamp != file.stamp:
            return "", ""  # it has changed meanwhile
        if session is None or session.session_id != row.session_id:
            return f"{who}: its log belongs to another session", ""
        if session.parent_id and not agent.locate(session.parent_id):
            return "", ""  # what it shares with its parent cannot be read any more
        document, _ = document_of(session, READERS, row.repo_root)
        path = export_path(row.agent, row.session_id)
        export = str(path) if path.exists() and not is_export(path, document.export) else ""
        wanted = [(chunk.hash, chunk.text, *chunk.lines) for chunk in document.chunks]
        stored = self._store.db.execute(
            "SELECT hash, text, first_line, last_line FROM placements LEFT JOIN chunks ON id = chunk "
            "WHERE session = ? ORDER BY position",
            (row.row,),
        ).fetchall()
        wrong = sum(a != b for a, b in zip(wanted, stored, strict=False)) + abs(len(wanted) - len(stored))
        return (f"{who}: {wrong} of {len(wanted)} passages do not match its log" if wrong else ""), export

    def _exports(self) -> Iterator[Check]:
        rows: Any = list(self._store.db.execute("SELECT agent, session_id, path FROM sessions WHERE home IS NULL"))
        missing = [(sid, log) for agent, sid, log in rows if not export_path(agent, sid).exists()]
        back = [session_id for session_id, log in missing if log]
        lost = [session_id for session_id, log in missing if not log]
        left = [str(path) for one in forgotten() if (path := export_path(*one)).exists()]
        show_or_forget = "`smart-fork show ID` prints a kept copy; `smart-fork forget ID` removes the rest."
        for wrong, what, step in (
            (back, "are missing", Check.RUN_INDEX),
            (lost, "exports of sessions with deleted logs are missing", show_or_forget),
            (left, "exports of forgotten sessions are still there", Check.RUN_INDEX),
        ):
            if wrong:
                yield Check("exports", ok=False, detail=f"{len(wrong)} {what}: {_some(wrong)}", next_step=step)
        if not missing and not left:
            yield Check("exports", ok=True, detail=f"{len(rows)} sessions have theirs")

    # -- answers ---------------------------------------------------------------------------------------------------

    def _meaning(self) -> Iterator[Check]:
        """Embed some indexed passages again, and check that the new vectors match the stored ones."""
        model = self._store.meta("model")
        if not model:
            yield Check("meaning", ok=True, detail="nothing is embedded yet", next_step=Check.RUN_INDEX)
            return
        if model != self._embedder.model:
            detail = f"the index is embedded with {model}, and questions with {self._embedder.model}"
            step = f"{Check.RUN_INDEX} It embeds everything again; or set SMART_FORK_MODEL as it was."
            yield Check("meaning", ok=False, detail=detail, next_step=step)
            return
        ids = [chunk for (chunk,) in self._store.db.execute("SELECT id FROM chunks WHERE block ORDER BY id")]
        texts = self._store.texts(self._chance.sample(ids, min(MAX_PASSAGES, len(ids))))
        far = 0
        for number, (chunk, text) in enumerate(texts.items()):
            self._progress("embedding again", number, len(texts))
            vector = self._embedder.embed([text])[0].astype(np.float32).tobytes()
            far += self._similarity(chunk, vector) < MIN_SIMILARITY
        faults = [f"{far} of {len(texts)} passages have the vector of another text"] if far else []
        yield from _checks_of(
            "meaning", faults, f"{len(texts)} passages were embedded again, and match the index", _rebuild()
        )

    def _similarity(self, chunk: int, vector: bytes) -> float:
        part = self._store.db.execute("SELECT part FROM chunks WHERE id = ?", (chunk,)).get
        return max(self._store.similarities([vector], Scope((int(part or 0),))).of([chunk]).get(chunk, (0.0,)))

    def _questions(self) -> Iterator[Check]:
        """Search for the words of sampled passages, and check that each passage's own session is among the results.

        Other sessions with the same text can be ranked above it, so this fails only if most of the searches miss it.
        """
        failed: list[str] = []
        missed: list[str] = []
        asked = 0
        for one in self._chance.sample(self._samples, len(self._samples)):
            if asked < MAX_QUESTIONS and (text := self._longest_passage(one.session.row)):
                self._progress("asking", asked, MAX_QUESTIONS)
                asked += 1
                error, miss = self._search_for(one.session, text)
                failed += [error] * bool(error)
                missed += [miss] * bool(miss)
        well = f"{asked - len(missed)} of {asked} passages asked for were found by words and meaning"
        yield from _checks_of("questions", failed, well, Check.RUN_INDEX)
        for miss in missed:
            yield Check("questions", ok=False, detail=miss, next_step=_rebuild(), optional=2 * len(missed) <= asked)

    def _longest_passage(self, session: int) -> str:
        """Return the session's passage with the most distinct words; empty if it has too few to search for."""
        texts = self._store.texts(place.chunk for place in self._store.placements_of(session))
        best = max(texts.values(), key=lambda text: len(words_of(text)), default="")
        return best if len(words_of(best)) >= MIN_WORDS else ""

    def _search_for(self, session: SessionRow, text: str) -> tuple[str, str]:
        """Search for a passage of `session`. Return two complaints, which are empty if nothing is wrong.

        The first: only words or only vectors could be searched. The second: the session is not among the results.
        """
        query = Query(text, Scope((session.part,)), MAX_RANK)
        store = cast("Store", self._store)  # to search is to read
        found = search(store, query, partial(embedded, self._embedder))
        families = {row.row for hit in found.hits for row in hit.family} | {hit.session.row for hit in found.hits}
        there = session.row in families or any(hit.text == text for hit in found.hits)
        who = f"{session.agent} session {session.session_id}"
        return (
            f"found by {found.mode} alone: {found.error}" if found.error else "",
            "" if there else f"{who} is not among the first {MAX_RANK} for the words of its own passage",
        )


def _part(name: str, faults: Iterator[str], well: str) -> Iterator[Check]:
    yield from _checks_of(name, list(faults), well, _rebuild())


def _workers() -> Iterator[Check]:
    path = registry_file()
    if not path.exists():
        return
    step = f"Stop all workers, and move {path} away: running workers are found again, others are lost."
    try:
        with damage.read_only(path) as db:
            yield from _checks_of("workers", list(damage.damage(db)), "the register of workers is intact", step)
    except apsw.Error as error:
        yield Check("workers", ok=False, detail=str(error), next_step=step)


def _service() -> Iterator[Check]:
    service, address = find_service(), announced()
    if service is None:
        if address is None:
            yield Check("service", ok=True, detail="does not run", optional=True)
        else:
            step = "`smart-fork logs` says how it ended; `smart-fork serve` or `smart-fork service install` starts it."
            detail = f"was at {address.url}, and does not answer there"
            yield Check("service", ok=False, detail=detail, next_step=step, optional=True)
        return
    status = service.status
    where = f"version {status.version} at {service.address.url}"
    try:
        well, problem = service.health(), str(status.indexing.get("last_error") or "")
    except ServiceGoneError as error:
        well, problem = False, str(error)
    if not well:
        problem = "; ".join(filter(None, ("it does not answer a real question", problem)))
    if status.change:
        where += f", restart pending: {status.change}"
    step = "`smart-fork logs` says more." if problem else ""
    detail = f"{where}: {problem}" if problem else where
    yield Check("service", ok=not problem, detail=detail, next_step=step, optional=well)


def _checks_of(name: str, faults: Sequence[str], well: str, step: str) -> Iterator[Check]:
    """Yield a failed check for each of the first faults, and one with the number of the others.

    Without faults, yield a passed check with the detail `well`. `step` is the next step after a fault.
    """
    for fault in faults[: damage.MAX_FAULTS]:
        yield Check(name, ok=False, detail=fault, next_step=step)
    if len(faults) > damage.MAX_FAULTS:
        yield Check(name, ok=False, detail=f"and {len(faults) - damage.MAX_FAULTS} more", next_step=step)
    if not faults:
        yield Check(name, ok=True, detail=well)


def _some(names: Iterable[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[: damage.MAX_FAULTS]) + (", …" if len(shown) > damage.MAX_FAULTS else "")


def _rebuild() -> str:
    return unavailable(apsw.CorruptError()).hint
