"""Updates the index for a question, as long as the question may wait. A background indexer does the remaining work."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import orjson

from indexer.embedder import Embedder, ModelUnavailableError, Rerank, known_absence
from indexer.environment import Setting
from indexer.errors import is_damage, next_step, what_failed
from indexer.json_values import Value, record, value
from indexer.lazy_compilation import dataclass
from indexer.locks import IndexBusyError
from indexer.log_changes import VERSION, Progress, Report
from indexer.pipeline import has_other_vectors
from indexer.project import Project
from indexer.refresh import embed_first, read_changed, read_changes
from indexer.runs import FailedLog, LastRun
from indexer.safe_files import private_dir, state_home
from indexer.shared_embedder import SharedEmbedder
from indexer.store.base import Counts, Scope, SeenFile
from indexer.store.schema import VectorsUnavailableError
from indexer.store.sqlite import Store
from indexer.transcripts.base import LogFile
from indexer.transcripts.model import AgentName
from smart_fork.agents.log_readers import READERS
from smart_fork.display_text import duration, printable
from smart_fork.errors import SmartForkError, advice
from smart_fork.finding.answer import EmbeddedShares
from smart_fork.finding.evidence import found_by_words
from smart_fork.finding.query import Query
from smart_fork.finding.recent import passed_over
from smart_fork.system.processes import Processes

if TYPE_CHECKING:
    from indexer.background_indexer import BackgroundIndexer
    from indexer.transcripts.base import Agents, LogFile

log = logging.getLogger(__name__)

#: The seconds that a question waits for logs to be read, and for embeddings of the current project.
READ_SECONDS, EMBED_SECONDS = 20.0, 15.0
#: From this many changed logs on, the model's frameworks are loaded early. The seconds that a question reads logs if an
#: indexer reads the others.
MANY_LOGS, SOON_SECONDS = 40, 1.0
_BEING_READ = "Logs are being indexed just now."
_SWITCHED_OFF = "Indexing is switched off (SMART_FORK_INDEXING=false)."


@dataclass(slots=True)
class Engine:
    """The models and time limits of a search. `progress` receives the steps of long work.

    `unfinished` gets the project to index first, if work is left and this process has no indexer.
    """

    embedder: Embedder
    read_seconds: float = READ_SECONDS
    embed_seconds: float = EMBED_SECONDS
    progress: Progress | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    unfinished: Callable[[Project | None], None] | None = None
    rerank: Rerank | None = None
    processes: Processes = field(default_factory=Processes)

    @property
    def indexer(self) -> BackgroundIndexer | None:
        """Return the background indexer that runs in this process, if any."""
        return self.embedder.indexer if isinstance(self.embedder, SharedEmbedder) else None


class Refreshed(NamedTuple):
    """The state of the index after an update. `unread` are the changed logs that were not read, `left` is their number.

    If the update read no log, `left` is `None`, and `problem` says why. `absent` says why there is no embedding model.
    `background` describes the indexing that continues.
    """

    left: int | None
    problem: str = ""
    absent: str = ""
    background: str = ""
    seconds_left: int = 0
    unread: Sequence[LogFile] = ()

    def new(self, store: Store, query: Query) -> int:
        """Return the number of unread logs that the index lacks and that may matter for the question.

        These are logs of the question's agents that may belong to its project.
        """
        root = query.scope.project.root if query.scope.project else ""
        agents = {one.agent for one in self.unread}.intersection(query.agents)
        here = {name: READERS[name].place_of(root) if root else "" for name in agents}
        mine = [one.location for one in self.unread if one.agent in here and one.location.startswith(here[one.agent])]
        return len(mine) - len(store.seen(mine))


def refresh(
    store: Store, engine: Engine, project: Project | None, query: Callable[[], Query],
    session: tuple[AgentName, str] | None = None, *, vectors: bool,
) -> Refreshed:  # fmt: skip
    """Update the index within the engine's time limits, from all logs or only from the log of one `session`.

    `query` returns the question, and is called after logs were read. Without `vectors`, no embeddings are made.
    """
    absent = known_absence(engine.embedder.model)

    def as_it_is(problem: str) -> Refreshed:
        return Refreshed(None, problem, absent, unread=unread_logs(store, READERS))

    if Setting.INDEXING.is_off(engine.environment):
        log.warning(_SWITCHED_OFF)
        return as_it_is(_SWITCHED_OFF)
    indexer = engine.indexer
    if indexer is not None and indexer.doing.startswith("reading") and store.counts().sessions:
        _put_first(store, query(), indexer)
        return as_it_is(_BEING_READ)
    seconds = engine.read_seconds if indexer is None else min(engine.read_seconds, SOON_SECONDS)

    def look() -> list[LogFile]:
        if session is None:
            return read_changes(store, READERS, project, seconds, _loading_early(engine))[1]
        paths = [str(path) for path in READERS[session[0]].locate(session[1])]
        return read_changed(store, READERS, paths, seconds, _loading_early(engine))  # the other logs answer nothing

    try:
        left = look() if session or not isinstance(engine.embedder, SharedEmbedder) else engine.embedder.left(look)
    except IndexBusyError:
        return as_it_is("Another process is indexing just now.")
    except Exception as error:
        if is_damage(error):
            raise
        log.warning("the index could not be brought up to date: %s", error)
        step = next_step(error, indexing=True)
        return as_it_is(f"The index could not be updated: {what_failed(error)}{'. ' if step else ''}{step}")
    rate = 0.0
    if vectors and not absent:
        absent, rate = embed_some(store, engine, query())
    if indexer is not None:
        _put_first(store, query(), indexer)
    counts = store.counts()
    stale = counts.embedded < counts.chunks or store.meta("model") not in ("", engine.embedder.model)
    stale = stale and not has_other_vectors(store, engine.embedder)
    goes_on = (left or stale or store.owes_erasing()) and continue_indexing(engine, query().scope.project)
    seconds = seconds_left(store, counts, rate) if goes_on else 0.0
    said = background_notice(counts, len(left), seconds) if goes_on else ""
    return Refreshed(len(left), absent=absent, background=said, seconds_left=round(seconds), unread=left)


def _loading_early(engine: Engine) -> Progress:
    """Return a progress callback that also begins to load the embedding model if many logs are read."""

    def told(stage: str, done: int, total: int) -> None:
        if total >= MANY_LOGS and engine.embed_seconds > 0 and isinstance(engine.embedder, Beginning):
            engine.embedder.begin()
        if engine.progress:
            engine.progress(stage, done, total)

    return told


def continue_indexing(engine: Engine, project: Project | None) -> bool:
    """Index the remaining logs and passages in the background, `project` first. Return False if nothing can do that."""
    if engine.indexer is not None:
        engine.indexer.run_soon(project)
    elif engine.unfinished:
        engine.unfinished(project)
    else:
        return False
    return True


def makes_vectors(engine: Engine, state: Refreshed) -> bool:
    """Return True if missing embeddings will be made, by this question or in the background."""
    able = not state.absent and not Setting.INDEXING.is_off(engine.environment)
    return able and (engine.embed_seconds > 0 or engine.unfinished is not None or engine.indexer is not None)


def embed_some(store: Store, engine: Engine, query: Query) -> tuple[str, float]:
    """Embed passages for a question within the time limit; passages that match its words come first.

    Return the reason why there is no model (else empty), and the speed in passages a second. If a detached process
    embeds the rest, embed only the first passage after each prompt; if this process has an indexer, embed nothing.
    """
    if engine.indexer is not None or engine.embed_seconds <= 0 or not query.intent:
        return "", 0.0
    counts = store.counts(query.scope)
    if counts.embedded == counts.chunks and store.meta("model") in ("", engine.embedder.model):
        return "", 0.0
    try:
        _ = engine.embedder.dimensions  # a model is loaded before the clock runs and others are kept from writing
        if has_other_vectors(store, engine.embedder):
            return advice("`smart-fork index run` embeds it again", tool="an index run embeds it again"), 0.0
        made = embed_first(
            store, engine.embedder, query.scope, engine.embed_seconds, engine.progress,
            only_first=engine.unfinished is not None,
            wanted=_passages_to_embed_first(store, query),
        )  # fmt: skip
        return "", made.embedded / seconds if (seconds := made.seconds.get("embedding", 0.0)) else 0.0
    except IndexBusyError:
        log.info("another process is embedding")
    except Exception as error:  # the model is the user's choice, and may fail in any way
        if is_damage(error):
            raise
        log.warning("no new vectors: %s", error)
        return str(error) if isinstance(error, ModelUnavailableError | VectorsUnavailableError) else "", 0.0
    return "", 0.0


def _put_first(store: Store, query: Query, indexer: BackgroundIndexer) -> None:
    counts = store.counts(query.scope)
    if counts.embedded < counts.chunks:
        indexer.put_first(query.scope.project, _passages_to_embed_first(store, query))


def _passages_to_embed_first(store: Store, query: Query) -> frozenset[int]:
    """Return the passages to embed first: those that match the question's words; none if words cannot be searched."""
    try:
        return found_by_words(store, query)
    except Exception as error:
        if is_damage(error):
            raise
        log.info("no passages by words: %s", error)
        return frozenset()


# The share of an index that can be found by meaning, and the trust in an early answer.
#
# Most results found by meaning are found by first passages.

#: The points against every session while no passage is embedded. They shrink as passages are embedded.
MAX_DOUBT = 1.5
#: An answer is early while a smaller share of the first passages is embedded.
EARLY_THRESHOLD = 0.9


def embedded_shares(store: Store, counts: Counts, scope: Scope | None = None) -> EmbeddedShares:
    """Return the shares of passages in `scope` that have an embedding. `counts` are the numbers of these passages."""
    if counts.embedded == counts.chunks:
        return EmbeddedShares(1.0, 1.0)
    number, embedded = store.first_passages(scope)
    return EmbeddedShares(_share_rounded_down(embedded, number), _share_rounded_down(counts.embedded, counts.chunks))


def doubt(shares: EmbeddedShares) -> float:
    """Return the points to subtract from every session's score while embeddings are missing.

    A session without embeddings could turn out to be the better one.
    """
    return MAX_DOUBT * (1 - (shares.first_passages + shares.all_passages) / 2)


def unread_notice(new: int, sessions: int, *, scored: bool = True) -> str:
    """Return a notice that `new` logs beside the known `sessions` were never read; empty if all were.

    With `scored`, the notice adds that scores are lower.
    """
    if not new:
        return ""
    unread = f"{new:,} of {new + sessions:,} logs here are not read yet"
    among = "the session you mean may be among them."
    if not scored:
        return f"{unread}: {among}"
    return f"{unread}, so no chance is known: {among} Scores are lower until they are read."


def early_notice(shares: EmbeddedShares) -> str:
    """Return a notice that an answer is early because few passages are embedded; else an empty text."""
    if shares.first_passages >= EARLY_THRESHOLD:
        return ""
    known = math.floor(100 * shares.all_passages)
    return (
        f"This answer is early: {known} % of the passages here are embedded. Scores are lower, and another session "
        "may come first in a minute."
    )


def _share_rounded_down(part: int, whole: int) -> float:
    """Return part / whole, rounded down: only if `part` equals `whole`, the result is 1."""
    return math.floor(1000 * part / whole) / 1000 if whole else 1.0


# Notices about an incomplete index: its progress, the process that continues, and the time left.


def background_notice(counts: Counts, left: int, seconds: float) -> str:
    """Return a line about the indexing that continues in the background; empty if nothing is left.

    `left` counts the unread logs. `seconds` is the remaining time to embed passages, 0 if unknown.
    """
    said = [f"{left} logs are not read yet"] if left else []
    if counts.embedded < counts.chunks:
        said.append(f"the index is {100 * counts.embedded // counts.chunks} % embedded")
    if not said:
        return ""
    state = " and ".join(said)
    about = f", about {duration(seconds)}" if seconds else ""
    return f"{state[0].upper()}{state[1:]}; the rest continues in the background{about}."


def seconds_left(store: Store, counts: Counts, rate: float) -> float:
    """Estimate the seconds until all passages are embedded, from the `rate` (passages a second); 0 if unknown.

    Without a rate, the last full run gives a lower bound, because that run also read logs.
    """
    if not rate and (run := LastRun.of(store)) and run.seconds > 0:
        rate = run.embedded / run.seconds
    return (counts.chunks - counts.embedded) / rate if rate > 0 else 0.0


# Work that does not fit into a question's time continues in a detached process.


def index_in_background(project: Project | None) -> None:
    """Start ``smart-fork index run`` detached, with `project` first. It ends if another process is indexing."""
    argv = [sys.executable, "-m", "smart_fork", "index", "run", "--if-idle"]
    argv += [f"--project={project.root}"] if project else []
    try:
        output = private_dir(state_home() / "logs") / "index.log"
        Processes().start(argv, cwd=state_home(), env=dict(os.environ), log=output)
    except (SmartForkError, OSError) as error:  # the answer is there all the same
        log.warning("indexing does not go on in the background: %s", error)


# Content of the index, for people and for ``index_status``.


@runtime_checkable
class Beginning(Protocol):
    """The interface of an embedder that can load its model in the background."""

    def begin(self) -> None:
        """Start to load the model for many texts, and return immediately."""


def unread_logs(store: Store, adapters: Agents) -> list[LogFile]:
    """Return the logs that are new, or changed since they were read, without writing. Each log costs one `stat`."""
    seen = store.seen()
    files = (file for agent in adapters for file in agent.discover())
    return [file for file in files if seen.get(file.location) != (*file.stamp, VERSION)]


# The report of an index run.


@value
class BrokenLog(Value):
    """A session log with undecodable lines. `first` has some of them as ``[line, reason]``."""

    path: str
    lines: int
    first: tuple[tuple[int | str, ...], ...]


@record
class IndexContent(Counts):
    """The content of the index after an index run: the counts, and the shares of passages with an embedding."""

    covered: EmbeddedShares


@dataclasses.dataclass(kw_only=True)
class IndexRunReport(Report):
    """The report of an index run, and the content of the index after the run."""

    total_seconds: float = 0.0
    index: IndexContent
    engine: str
    broken_logs: tuple[BrokenLog, ...]
    passed_over: tuple[FailedLog, ...]


def index_run_report(store: Store, report: Report, before: Mapping[str, SeenFile], engine: str) -> IndexRunReport:
    """Summarize an index run from its `report`, with the content of the index after the run.

    `before` maps logs to their state before the run: logs with another state now were read. The caller adds the total
    time.
    """
    counts = store.counts()
    read = {path for path, _ in store.seen().items() - before.items()}
    broken = [row for row in store.broken_logs() if row[0] in read] if report.broken_lines else []
    return IndexRunReport(
        **asdict(report), index=IndexContent(**asdict(counts), covered=embedded_shares(store, counts)), engine=engine,
        broken_logs=broken_logs_of(broken), passed_over=passed_over(store),
    )  # fmt: skip


def broken_logs_of(rows: list[tuple[str, int, str]]) -> tuple[BrokenLog, ...]:
    """Return the broken logs in rows of the index, with the first three of the lines that each row lists."""
    return tuple(
        BrokenLog(path, number, tuple((line, printable(reason)) for line, reason in orjson.loads(first)[:3]))
        for path, number, first in rows
    )
