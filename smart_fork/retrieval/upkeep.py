"""The index is brought up to date for a question, as far as the question may wait; an indexer does the rest."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, NamedTuple

from indexer import absent_model
from indexer.changes import Progress, unread_logs
from indexer.embedder import Embedder, ModelUnavailableError
from indexer.failures import is_damage, next_step, what_failed
from indexer.freshness import embed_first, read_changed, read_changes
from indexer.models import Beginning
from indexer.project import Project
from indexer.settings import INDEXING
from indexer.shapes import dataclass
from indexer.store.base import Scope, Store
from indexer.store.extension import VectorsUnavailableError
from indexer.transcripts.base import LogFile
from indexer.transcripts.model import AgentName
from indexer.writer import IndexBusyError
from smart_fork.agents.readers import READERS
from smart_fork.notes import marked
from smart_fork.notes import tag as notes_tag
from smart_fork.retrieval.covered import background_notice
from smart_fork.retrieval.found import Query
from smart_fork.retrieval.request import FindRequest
from smart_fork.retrieval.shared import Shared
from smart_fork.retrieval.words import found_by_words
from smart_fork.system.processes import Processes

if TYPE_CHECKING:
    from indexer.freshener import Freshener
    from smart_fork.engines.base import SearchEngine
    from smart_fork.retrieval.elsewhere import Elsewhere
    from smart_fork.retrieval.rerank import Rerank

log = logging.getLogger(__name__)

#: How long a question waits for logs to be read, and for vectors of the current project.
READ_SECONDS, EMBED_SECONDS = 20.0, 15.0
#: So many changed logs are worth the model's frameworks; how long one reads where an indexer does the rest.
MANY_LOGS, SOON_SECONDS = 40, 1.0
_BEING_READ = "Logs are being indexed just now."
_SWITCHED_OFF = "Indexing is switched off (SMART_FORK_INDEXING=false)."


@dataclass(slots=True)
class Engine:
    """What answers: the embedder, a reranker, and how long a question may wait. `progress` is told about long work.

    `unfinished` is called where there is more to index than somebody should wait for, and no indexer to do it, with the
    project that comes first. `elsewhere` is asked the same while the own index is searched.
    """

    embedder: Embedder
    read_seconds: float = READ_SECONDS
    embed_seconds: float = EMBED_SECONDS
    progress: Progress | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    unfinished: Callable[[Project | None], None] | None = None
    rerank: Rerank | None = None
    processes: Processes = field(default_factory=Processes)
    elsewhere: Elsewhere | None = None

    @property
    def indexer(self) -> Freshener | None:
        """The indexer of this process, if it has one."""
        return self.embedder.indexer if isinstance(self.embedder, Shared) else None


class CheckedRequest(NamedTuple):
    """A request that has been checked. `outside` is the search program that answers it, if any.

    With a `session_id` it is about that session alone.
    """

    request: FindRequest
    intent: str
    also: tuple[str, ...]
    agents: tuple[AgentName, ...]
    project: Project | None
    limit: int
    outside: SearchEngine | None = None
    session_id: str | None = None


class Upkeep(NamedTuple):
    """The state of the index after an update.

    `left` counts the changed logs that are not read, and `problem` says why none was. `absent` says why no model helps,
    `background` what is done meanwhile. `new` counts the logs that were never read and may belong to the question.
    """

    left: int | None
    problem: str = ""
    absent: str = ""
    background: str = ""
    new: int = 0


def refresh(store: Store, asked: CheckedRequest, engine: Engine) -> Upkeep:
    """Brings the index up to date as far as time allows; for a question about one session, that one's log."""
    absent = absent_model.remembered(engine.embedder.model)

    def as_it_is(problem: str) -> Upkeep:
        return Upkeep(None, problem, absent, new=_new(store, asked, unread_logs(store, READERS)))

    if INDEXING.is_off(engine.environment):
        log.warning(_SWITCHED_OFF)
        return as_it_is(_SWITCHED_OFF)
    indexer = engine.indexer
    if indexer is not None and indexer.doing.startswith("reading") and store.counts().sessions:
        _put_first(store, asked, indexer)
        return as_it_is(_BEING_READ)
    seconds = engine.read_seconds if indexer is None else min(engine.read_seconds, SOON_SECONDS)

    def look() -> list[LogFile]:
        if asked.session_id is None:
            return read_changes(store, READERS, asked.project, seconds, _telling(engine))[1]
        paths = [str(path) for name in asked.agents for path in READERS[name].locate(asked.session_id)]
        return read_changed(store, READERS, paths, seconds, _telling(engine))  # the other logs answer nothing

    try:
        is_one = asked.session_id is not None
        left = look() if is_one or not isinstance(engine.embedder, Shared) else engine.embedder.left(look)
    except IndexBusyError:
        return as_it_is("Another process is indexing just now.")
    except Exception as error:
        if is_damage(error):
            raise
        log.warning("the index could not be brought up to date: %s", error)
        step = next_step(error, indexing=True)
        return as_it_is(f"The index could not be updated: {what_failed(error)}{'. ' if step else ''}{step}")
    lacks = indexer is None and not absent and asked.outside is None
    absent, rate = _embed_some(store, asked, engine) if lacks else (absent, 0.0)
    if indexer is not None:
        _put_first(store, asked, indexer)
    counts = store.counts()
    stale = counts.embedded < counts.chunks or store.meta("model") not in ("", engine.embedder.model)
    goes_on = (left or stale or store.owes_erasing()) and go_on(engine, asked.project)
    said = background_notice(store, len(left), rate) if goes_on else ""
    return Upkeep(len(left), absent=absent, background=said, new=_new(store, asked, left))


def _new(store: Store, asked: CheckedRequest, left: Sequence[LogFile]) -> int:
    """Count the logs of these that were never read and may belong to the question's project and agents."""
    root = asked.project.root if asked.project else ""
    here = {name: READERS[name].place_of(root) if root else "" for name in asked.agents}
    mine = [one.location for one in left if one.agent in here and one.location.startswith(here[one.agent])]
    return len(mine) - len(store.seen(mine))


def _telling(engine: Engine) -> Progress:
    """Tells `engine.progress`. Where there is much to read there is much to embed: the model is loaded meanwhile."""

    def told(stage: str, done: int, total: int) -> None:
        if total >= MANY_LOGS and engine.embed_seconds > 0 and isinstance(engine.embedder, Beginning):
            engine.embedder.begin()
        if engine.progress:
            engine.progress(stage, done, total)

    return told


def go_on(engine: Engine, project: Project | None) -> bool:
    """Gets what is left indexed, by the process's own indexer where it has one. Whether anybody does it."""
    if engine.indexer is not None:
        engine.indexer.run_soon(project)
    elif engine.unfinished:
        engine.unfinished(project)
    else:
        return False
    return True


def makes_vectors(engine: Engine, state: Upkeep) -> bool:
    """Say whether the vectors that are missing are to come: by this question, the process's indexer or another one."""
    able = not state.absent and not INDEXING.is_off(engine.environment)
    return able and (engine.embed_seconds > 0 or engine.unfinished is not None or engine.indexer is not None)


def scope_of(store: Store, asked: CheckedRequest) -> Scope:
    """Whose passages answer: those of the project and the agents, or of the one session that is asked about."""
    if (session_id := asked.session_id) is None:
        tag = asked.request.tag
        scope = store.scope(asked.project, asked.agents, automated=asked.request.include_automated or bool(tag))
        if tag:
            tagged = (store.session(*one) for one in marked(notes_tag(tag)))
            scope = replace(scope, sessions=tuple(row.row for row in tagged if row))
        return scope
    rows = [row for agent in asked.agents if (row := store.session(agent, session_id))]
    return Scope((rows[0].part,), session=rows[0].row, project=asked.project) if rows else Scope()


def _embed_some(store: Store, asked: CheckedRequest, engine: Engine) -> tuple[str, float]:
    """Vectors for what is asked about, as far as time allows, and first for what its words find; where somebody goes
    on, for the passages that find most. Why there is no model for it, where there is none; and how many were made in a
    second.
    """
    scope = scope_of(store, asked)
    counts = store.counts(scope)
    current = store.meta("model") in ("", engine.embedder.model)
    if (counts.embedded == counts.chunks and current) or engine.embed_seconds <= 0:
        return "", 0.0
    try:
        _ = engine.embedder.dimensions  # a model is loaded before the clock runs and others are kept from writing
        made = embed_first(
            store, engine.embedder, scope, engine.embed_seconds, engine.progress,
            only_first=engine.unfinished is not None,
            wanted=_wanted(store, _query(asked, scope)),
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


def _put_first(store: Store, asked: CheckedRequest, indexer: Freshener) -> None:
    """Has the process's indexer embed what the question's words find before everything else."""
    counts = store.counts(scope := scope_of(store, asked))
    if counts.embedded < counts.chunks:
        indexer.put_first(asked.project, _wanted(store, _query(asked, scope)))


def _query(asked: CheckedRequest, scope: Scope) -> Query:
    return Query(asked.intent, scope, asked.limit, also=asked.also)


def _wanted(store: Store, query: Query) -> frozenset[int]:
    """The passages that the question's words find; none where words cannot be searched."""
    try:
        return found_by_words(store, query)
    except Exception as error:
        if is_damage(error):
            raise
        log.info("no passages by words: %s", error)
        return frozenset()
