"""The main job's first half: an intent in, the sessions that know how out; for the command line, MCP and scripts."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import apsw

from indexer import absent_model
from indexer.changes import Progress
from indexer.damage import kept
from indexer.embedder import DEFAULT_MODEL, Embedder, ModelUnavailableError
from indexer.failures import is_damage, next_step
from indexer.freshness import embed_first, read_changes
from indexer.model_notice import telling
from indexer.models import Beginning
from indexer.paths import index_db, state_home
from indexer.project import Project, project_of, resolve
from indexer.store.base import Scope, SessionRow, Store
from indexer.store.extension import VectorsUnavailableError
from indexer.switches import is_off
from indexer.transcripts.model import AgentName
from indexer.writer import IndexBusyError
from smart_fork import permission
from smart_fork.advice import advice
from smart_fork.agents import READERS
from smart_fork.agents.abilities import problems_of
from smart_fork.agents.selection import first, selected, word_for
from smart_fork.engines.base import EngineUnavailable, SearchEngine, collection_of, collections
from smart_fork.engines.configured import configured_engine
from smart_fork.errors import IndexUnavailable, SmartForkError, Usage
from smart_fork.processes import Processes, SystemProcesses
from smart_fork.registry import Registry
from smart_fork.retrieval import results
from smart_fork.retrieval.answer import Answer, Found, RecentSession, Unsearched
from smart_fork.retrieval.behind import background_notice
from smart_fork.retrieval.covered import covered
from smart_fork.retrieval.found import Candidates, Query
from smart_fork.retrieval.index_access import opened
from smart_fork.retrieval.phrasings import check_also, further
from smart_fork.retrieval.query import is_mostly_not_latin, plain
from smart_fork.retrieval.quotation import Nearness
from smart_fork.retrieval.recent import recent_sessions
from smart_fork.retrieval.rerank import Rerank
from smart_fork.retrieval.search import Embed, embedded, once, search
from smart_fork.retrieval.together import Together
from smart_fork.retrieval.worth import BETTER_FIRST, COMPARED, Worth, better_first, close, worth_of
from smart_fork.snippets import printable, quoted, shown

log = logging.getLogger(__name__)

#: Of a path that is no project's, how much is repeated.
MAX_SHOWN = 500
DEFAULT_LIMIT, MAX_LIMIT = 5, 50
#: How long a question waits for logs to be read, and for vectors of the current project.
READ_SECONDS, EMBED_SECONDS = 20.0, 15.0
#: So many changed logs are worth the model's frameworks; how long one reads where an indexer does the rest.
MANY_LOGS, SOON_SECONDS = 40, 1.0
_ENGLISH = (
    "The default model knows English and little of other scripts: meaning was hardly searched. Say it in English (as "
    "well, with also), or set SMART_FORK_MODEL to a multilingual model (docs/using.md)."
)
_BEING_READ = "Logs are being indexed just now."
_SWITCHED_OFF = "Indexing is switched off (SMART_FORK_INDEXING=false)."


@dataclass(frozen=True, slots=True)
class FindRequest:
    """What is asked, `also` in other words. `None` means the default everywhere, as MCP clients send it.

    `session_id`, with its `agent_type`, asks for the passage of that session alone. `works_in` is where a fork of a
    result is to work; `None` for where the session itself did.
    """

    intent: str
    agent_type: str | None = None
    limit: int | None = None
    project_path: str | None = None
    collection: str | None = None
    min_score: float | None = None
    include_snippets: bool | None = None
    include_automated: bool = False
    all_projects: bool = False
    caller_session_id: str | None = None
    session_id: str | None = None
    explain: bool = False
    works_in: str | None = None
    also: Sequence[str] | None = None


@dataclass(slots=True)
class Engine:
    """What answers: the embedder, a reranker, and how long a question may wait. `progress` is told about long work.

    `together` is what the questions of one process share. `unfinished` is called where there is more to index than
    somebody should wait for, and no indexer to do it, with the project that comes first.
    """

    embedder: Embedder
    read_seconds: float = READ_SECONDS
    embed_seconds: float = EMBED_SECONDS
    progress: Progress | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    unfinished: Callable[[Project | None], None] | None = None
    rerank: Rerank | None = None
    together: Together | None = None
    processes: Processes = field(default_factory=SystemProcesses)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that has been checked. `outside` is the search program that answers it, if any."""

    request: FindRequest
    intent: str
    also: tuple[str, ...]
    agents: tuple[AgentName, ...]
    project: Project | None
    limit: int
    outside: SearchEngine | None = None


@dataclass(frozen=True, slots=True)
class _State:
    """How many changed logs are left, what kept us from them, why no model helps, what is done of it all meanwhile."""

    left: int | None
    problem: str = ""
    absent: str = ""
    background: str = ""


def find(request: FindRequest, engine: Engine) -> Answer:
    """The answer (see docs/json.md).

    Raises:
        Usage: something in the request is not acceptable; nothing was read or started.
    """
    agents = check(request)
    project = None if request.all_projects else current_project(request.project_path)
    limit = min(int(request.limit or DEFAULT_LIMIT), MAX_LIMIT)
    # Where in a session the answer stands only the own index knows.
    outside = configured_engine(engine.environment) if request.session_id is None else None
    intent = plain(request.intent)
    asked = _Asked(request, intent, further(intent, request.also), agents, project, limit, outside)
    before = kept(index_db())
    try:
        with telling(engine.progress), opened() as store:
            state = _refresh(store, asked, engine)
            if state.problem and not store.counts().sessions:
                return _not_available(state.problem, "", asked)
            return replace(_answer(store, asked, engine, state), index_notice=_damage(before))
    except EngineUnavailable as error:
        return _engine_not_available(error, asked)
    except IndexUnavailable as error:
        _go_on(engine, project)  # what was damaged is built anew
        return _not_available(error.message, error.hint, asked)


def check(request: FindRequest) -> tuple[AgentName, ...]:
    """The agents to search, after everything in the request has been checked. Touches no disk.

    Raises:
        Usage: something in it is not as it may be.
    """
    if not _is_text(request.intent):
        raise Usage("intent is required", "Say what you want to do next, in a sentence.")
    check_also(request.also)
    agents = selected(request.agent_type or first())
    if request.limit is not None and not (_is_number(request.limit) and 1 <= request.limit == int(request.limit)):
        raise Usage(
            f"limit must be at least 1, not {shown(request.limit)}",
            f"Leave it out for {DEFAULT_LIMIT}; {MAX_LIMIT} is the most.",
        )
    check_score(request.min_score)
    if request.collection is None:
        return agents
    known = collections()
    named = tuple(agent for agent, name in known.items() if name == request.collection)
    if not named:
        unknown = shown(request.collection).strip('"')
        raise Usage(
            f"unknown collection: {unknown}",
            f"Known: {', '.join(known.values())}.",
        )
    return named


def check_score(min_score: float | None) -> None:
    """Whether this can be the least score that is wanted.

    Raises:
        Usage: it is no number between 0 and 1.
    """
    if min_score is not None and not _is_number(min_score):
        raise Usage(f"min_score must be a finite number, not {shown(min_score)}", "Scores are between 0 and 1.")
    if min_score is not None and not 0 <= min_score <= 1:
        raise Usage(f"min_score must be between 0 and 1, not {shown(min_score)}", "0 leaves nothing out.")


def current_project(path: str | None) -> Project:
    """The project of `path`, or of the working directory.

    Raises:
        Usage: there is no such directory.
    """
    named = quoted(path or ".", MAX_SHOWN)
    permission.require(path or str(Path.cwd()), named, below=True)
    try:
        directory = Path(path).expanduser() if path else Path.cwd()
        there = directory.is_dir()
    except (OSError, RuntimeError, ValueError):  # a name too long, an unknown ~user, a NUL
        there = False
    if not there:
        raise Usage(f"project_path does not exist: {named}", "Give the path of a directory.")
    return project_of(directory)


def project_notice(project: Project | None) -> str:
    """Why less is found than a `.git` claims. Where it leads is not told to who may not ask there."""
    if project is None or not project.doubt:
        return ""
    why = "" if permission.limited() else f": {printable(project.doubt)}"
    return f"The .git of this directory is not believed, so only what was done in it is found{why}"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(plain(value))


def _is_number(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _refresh(store: Store, asked: _Asked, engine: Engine) -> _State:
    """Bring the index up to date as far as time allows."""
    absent = absent_model.remembered(engine.embedder.model)
    if is_off("SMART_FORK_INDEXING", engine.environment):
        log.warning(_SWITCHED_OFF)
        return _State(None, _SWITCHED_OFF, absent)
    together = engine.together
    if together is not None and together.reading and store.counts().sessions:
        return _State(None, _BEING_READ, absent)

    indexed = together is not None and together.indexed
    seconds = min(engine.read_seconds, SOON_SECONDS) if indexed else engine.read_seconds

    def look() -> int:
        return read_changes(store, READERS, asked.project, seconds, _telling(engine))[1]

    try:
        left = look() if together is None else together.left(look)
    except IndexBusyError:
        return _State(None, "Another process is indexing just now.", absent)
    except Exception as error:
        if is_damage(error):
            raise
        log.warning("the index could not be brought up to date: %s", error)
        step = next_step(error)
        why = f"The index could not be brought up to date: {error}{'. ' if step else ''}{step}"
        return _State(None, why, absent)
    lacks = not indexed and not absent and asked.outside is None
    absent, rate = _embed_some(store, asked, engine) if lacks else (absent, 0.0)
    counts = store.counts()
    stale = counts.embedded < counts.chunks or store.meta("model") not in ("", engine.embedder.model)
    goes_on = (left or stale or store.owes_erasing()) and _go_on(engine, asked.project)
    return _State(left, absent=absent, background=background_notice(store, left, rate) if goes_on else "")


def _telling(engine: Engine) -> Progress:
    """Tells `engine.progress`. Where there is much to read there is much to embed: the model is loaded meanwhile."""

    def told(stage: str, done: int, total: int) -> None:
        if total >= MANY_LOGS and engine.embed_seconds > 0 and isinstance(engine.embedder, Beginning):
            engine.embedder.begin()
        if engine.progress:
            engine.progress(stage, done, total)

    return told


def _go_on(engine: Engine, project: Project | None) -> bool:
    """Have indexed what is left, by the process's own indexer where it has one. Whether anybody does it."""
    if engine.together is not None and engine.together.indexed:
        engine.together.go_on(project)
    elif engine.unfinished:
        engine.unfinished(project)
    else:
        return False
    return True


def _scope(store: Store, asked: _Asked) -> Scope:
    if (session_id := asked.request.session_id) is None:
        return store.scope(asked.project, asked.agents, automated=asked.request.include_automated)
    rows = [row for agent in asked.agents if (row := store.session(agent, session_id))]
    return Scope((rows[0].part,), session=rows[0].row, project=asked.project) if rows else Scope()


def _embed_some(store: Store, asked: _Asked, engine: Engine) -> tuple[str, float]:
    """Vectors for what is asked about, as far as time allows; where somebody goes on, for the passages that find most.
    Why there is no model for it, where there is none; and how many were made in a second.
    """
    scope = _scope(store, asked)
    counts = store.counts(scope)
    current = store.meta("model") in ("", engine.embedder.model)
    if (counts.embedded == counts.chunks and current) or engine.embed_seconds <= 0:
        return "", 0.0
    try:
        _ = engine.embedder.dimensions  # a model is loaded before the clock runs and others are kept from writing
        goes_on = engine.unfinished is not None
        made = embed_first(store, engine.embedder, scope, engine.embed_seconds, engine.progress, only_first=goes_on)
        return "", made.embedded / seconds if (seconds := made.seconds.get("embedding", 0.0)) else 0.0
    except IndexBusyError:
        log.info("another process is embedding")
    except Exception as error:  # the model is the user's choice, and may fail in any way
        if is_damage(error):
            raise
        log.warning("no new vectors: %s", error)
        return str(error) if isinstance(error, ModelUnavailableError | VectorsUnavailableError) else "", 0.0
    return "", 0.0


def _answer(store: Store, asked: _Asked, engine: Engine, state: _State) -> Found:
    request = asked.request
    scope = _scope(store, asked)
    caller, hidden = _caller(store, request.caller_session_id)
    most = max(asked.limit, COMPARED)
    query = Query(asked.intent, scope, most, asked.project is None, request.min_score, caller, hidden, asked.also)
    vectors = once(lambda texts: _embed(store, engine.embedder, state.absent, texts))
    found, worth = _best_to_fork(store, _found(store, query, asked, engine, vectors), asked, engine)
    problems = problems_of({hit.session.agent for hit in found.hits}, store, engine.environment)
    counts = store.counts(scope)
    near = _nearness(engine.embedder, lambda: vectors(query.meanings))
    return Found(
        query=results.title(asked.intent),
        also=tuple(map(results.title, asked.also)) if asked.outside is None else (),
        agent_type=word_for(asked.agents),
        collections=tuple(map(collection_of, asked.agents)),
        project_path=str(resolve(request.project_path or Path.cwd())) if asked.project else None,
        notice=results.UNTRUSTED,
        project_notice=project_notice(asked.project),
        background_notice=state.background,
        language_notice=_ENGLISH if _is_foreign(asked, engine.embedder) else "",
        count=len(found.hits),
        engine=found.engine,
        search_mode=found.mode,
        fallback_used=found.fallback_used,
        search_error=found.error,
        rerank_error=found.rerank_error,
        said=found.said,
        index=results.index_state(counts, covered(store, counts, scope), state.left, state.problem),
        skipped=found.dropped,
        order_notice=BETTER_FIRST if results.is_moved(found.hits) else "",
        results=results.results_of(
            found,
            worth=worth,
            include_snippets=request.include_snippets is not False,
            explain=request.explain,
            problems=problems,
            works_in=request.works_in,
            nearness=near if asked.outside is None and found.mode in ("hybrid", "vector") else None,
        ),
        fallback_sessions=_fallback(asked) if found.mode == "recent" else None,
    )


def _best_to_fork(
    store: Store, found: Candidates, asked: _Asked, engine: Engine
) -> tuple[Candidates, dict[int, Worth]]:
    """As many hits as are wanted, of those about as likely as the best one the better first; and how good each is.

    What another engine has scored stands as it is: its scores are no chances.
    """
    own = asked.outside is None
    looked_at = found.hits[: max(asked.limit, close(found.hits) if own else 0)]
    directory = resolve(asked.request.project_path or Path.cwd())
    rows = [hit.session for hit in looked_at]
    worth = worth_of(rows, store, asked.project, directory, engine.processes)
    return replace(found, hits=(better_first(looked_at, worth) if own else looked_at)[: asked.limit]), worth


def _found(store: Store, query: Query, asked: _Asked, engine: Engine, embed: Embed) -> Candidates:
    if asked.outside is None:
        return search(store, query, embed, engine.rerank)
    from smart_fork.retrieval.documents import search_documents

    asked.outside.refresh(store.counts().updated_at)
    return search_documents(store, query, asked.outside, asked.agents)


def _damage(before: Collection[Path]) -> str:
    """What to say where the index was damaged, and this question has found it so."""
    aside = next((path for path in kept(index_db()) if path not in before), None)
    if aside is None:
        return ""
    return (
        f"The index was damaged. It is kept as {aside}, and a new one is built from the logs: what has not been read "
        "yet is not found."
    )


def _is_foreign(asked: _Asked, embedder: Embedder) -> bool:
    """Whether the model is the default one, and every phrasing in a script that it was not made for."""
    of_default = embedder.model.partition("@")[0] == DEFAULT_MODEL
    return of_default and all(map(is_mostly_not_latin, (asked.intent, *asked.also)))


def _embed(store: Store, embedder: Embedder, absent: str, texts: Sequence[str]) -> list[bytes]:
    why = f": {absent}" if absent else ""
    if not store.meta("model"):
        raise LookupError(f"no session has been embedded yet{why}")
    if store.meta("model") != embedder.model:
        raise LookupError(f"the index is embedded with {store.meta('model')}, not with {embedder.model}{why}")
    if absent:
        raise ModelUnavailableError(absent)
    return embedded(embedder, texts)


def _nearness(embedder: Embedder, asked: Callable[[], Sequence[bytes]]) -> Nearness:
    """To the nearest of the vectors that were asked for, by those of the sentences; so few need nothing heavy."""

    def near(texts: Sequence[str]) -> list[float]:
        from indexer.arrays import np

        try:
            given, vectors = asked(), embedder.embed(texts)
        except Exception as error:  # noqa: BLE001 - the model is the user's choice: then the first sentences are shown
            log.info("sentences are not compared: %s", error)
            return [0.0] * len(texts)
        phrasings = np.frombuffer(b"".join(given), np.float32).reshape(len(given), -1)
        return [float((phrasings @ one).max()) for one in vectors]

    return near


def _caller(store: Store, session_id: str | None) -> tuple[SessionRow | None, frozenset[str]]:
    """The calling session, and what else it must not find: itself, where it is not indexed yet, and its own workers."""
    if not session_id:
        return None, frozenset()
    own = next((row for row in store.find_sessions(session_id) if row.session_id == session_id), None)
    return own, frozenset({session_id, *_workers_of(session_id)})


def _workers_of(session_id: str) -> list[str]:
    if not (state_home() / "workers.db").exists():
        return []
    try:
        with Registry() as registry:
            return [worker.session_id for worker in registry.spawned_by(session_id) if worker.session_id]
    except (SmartForkError, apsw.Error, OSError) as error:  # a caller may be told of what it started: that is less bad
        log.warning("the register of workers cannot be read: %s", error)
        return []


def _fallback(asked: _Asked) -> tuple[RecentSession, ...]:
    adapters = [agent for agent in READERS if agent.name in asked.agents]
    found = recent_sessions(
        adapters, asked.project, asked.limit + 1, automated=asked.request.include_automated
    ).sessions
    others = [session for session in found if session.session_id != asked.request.caller_session_id]
    return tuple(map(results.recent_session, others[: asked.limit]))


def _engine_not_available(error: EngineUnavailable, asked: _Asked) -> Unsearched:
    """What is said where another engine is configured, and is not there."""
    if asked.outside is None:
        raise error
    log.warning("%s is not available: %s", asked.outside.name, error.message)
    code, next_steps = asked.outside.what_to_do()
    return Unsearched(error=code, message=error.message, next_steps=next_steps, fallback_sessions=_fallback(asked))


def _not_available(message: str, hint: str, asked: _Asked) -> Unsearched:
    """What is said when nothing can be searched: why, what to do, and the most recent sessions."""
    log.warning("smart_fork is not available: %s", message)
    return Unsearched(
        error="index_not_available",
        message=message,
        next_steps=(
            hint
            or advice(
                "Run `smart-fork index run` and read what it says; `smart-fork doctor` explains failures.",
                tool="list_sessions and read_session work without it.",
            ),
            "Let smart-fork index on demand: unset SMART_FORK_INDEXING, or set it to true.",
            "Ask again once indexing has completed.",
        ),
        fallback_sessions=_fallback(asked),
    )
