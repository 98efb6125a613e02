"""The main job's first half: an intent in, the sessions that know how out; for the command line, MCP and scripts."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from indexer.embedding import DEFAULT_MODEL, Embedder
from indexer.failures import is_damage, next_step
from indexer.freshness import IndexBusyError, embed_first, read_changes
from indexer.paths import state_home
from indexer.pipeline import Progress
from indexer.project import Project, project_of, resolve
from indexer.store.base import Scope, SessionRow, Store
from indexer.switches import is_off
from indexer.transcripts.agents import AGENTS
from indexer.transcripts.model import Agent
from smart_fork import permission
from smart_fork.agents.abilities import problems_of
from smart_fork.errors import IndexUnavailable, SmartForkError, Usage
from smart_fork.registry import Registry
from smart_fork.retrieval import results
from smart_fork.retrieval.found import Query
from smart_fork.retrieval.opening import opened
from smart_fork.retrieval.query import is_mostly_not_latin, plain
from smart_fork.retrieval.recent import recent_sessions
from smart_fork.retrieval.rerank import Rerank
from smart_fork.retrieval.search import search
from smart_fork.retrieval.together import Together
from smart_fork.snippets import printable

log = logging.getLogger(__name__)

#: Of a path that is no project's, how much is repeated.
MAX_SHOWN = 500
DEFAULT_LIMIT, MAX_LIMIT = 5, 50
#: How long a question waits for logs to be read, and for vectors of the current project.
READ_SECONDS, EMBED_SECONDS = 20.0, 15.0
#: How long one reads where an indexer does the rest.
SOON_SECONDS = 1.0
_ENGLISH = (
    "The default model knows English and little of other scripts: meaning was hardly searched. Ask in English, or set "
    "SMART_FORK_MODEL to a multilingual model (docs/using.md)."
)
_BEING_READ = "Logs are being indexed just now."
_SWITCHED_OFF = "Indexing is switched off (SMART_FORK_INDEXING=false)."


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked (F-001). `None` means the default everywhere, as MCP clients send it (F-007).

    `session_id`, with its `agent_type`, asks for the passage of that session alone.
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


@dataclass(slots=True)
class Engine:
    """What answers: the embedder, a reranker, and how long a question may wait. `progress` is told about long work.

    `together` is what the questions of one process share. `unfinished` is called where there is more to index than
    there was time for, and no indexer to do it.
    """

    embedder: Embedder
    read_seconds: float = READ_SECONDS
    embed_seconds: float = EMBED_SECONDS
    progress: Progress | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    unfinished: Callable[[], None] | None = None
    rerank: Rerank | None = None
    together: Together | None = None


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that has been checked."""

    request: Request
    intent: str
    agents: tuple[Agent, ...]
    project: Project | None
    limit: int


def find(request: Request, engine: Engine) -> dict[str, Any]:
    """The answer as JSON values (see docs/json.md).

    Raises:
        Usage: something in the request is not acceptable; nothing was read or started (F-009).
    """
    agents = check(request)
    project = None if request.all_projects else current_project(request.project_path)
    limit = min(int(request.limit or DEFAULT_LIMIT), MAX_LIMIT)
    asked = _Asked(request, plain(request.intent), agents, project, limit)
    try:
        with opened() as store:
            left, problem = _refresh(store, asked, engine)
            if problem and not store.counts().sessions:
                return _not_available(problem, "", asked)
            return _answer(store, asked, engine, left, problem)
    except IndexUnavailable as error:
        _go_on(engine)  # what was damaged is built anew
        return _not_available(error.message, error.hint, asked)


def check(request: Request) -> tuple[Agent, ...]:
    """The agents to search, after everything in the request has been checked. Touches no disk.

    Raises:
        Usage: with the text that F-002…F-006 ask for.
    """
    if not _is_text(request.intent):
        raise Usage("intent is required", "Say what you want to do next, in a sentence.")
    known: dict[object, tuple[Agent, ...]] = {"claude": ("claude",), "codex": ("codex",), "both": ("claude", "codex")}
    agents = known.get(str(request.agent_type or "claude").lower())
    if agents is None:
        raise Usage("agent_type must be 'claude', 'codex', or 'both'")
    if request.limit is not None and not (_is_number(request.limit) and 1 <= request.limit == int(request.limit)):
        raise Usage("limit must be at least 1", f"Leave it out for {DEFAULT_LIMIT}; {MAX_LIMIT} is the most.")
    if request.min_score is not None and not _is_number(request.min_score):
        raise Usage("min_score must be a finite number", "Scores are between 0 and 1.")
    if request.collection is None:
        return agents
    named = tuple(agent for agent in known["both"] if results.COLLECTIONS[agent] == request.collection)
    if not named:
        shown = printable(str(request.collection))[:MAX_SHOWN]
        raise Usage(f"unknown collection: {shown}", f"Known: {', '.join(results.COLLECTIONS.values())}.")
    return named


def current_project(path: str | None) -> Project:
    """The project of `path`, or of the working directory.

    Raises:
        Usage: there is no such directory (F-076).
    """
    shown = printable(path or ".")[:MAX_SHOWN]
    permission.require(path or str(Path.cwd()), shown, below=True)
    try:
        directory = Path(path).expanduser() if path else Path.cwd()
        there = directory.is_dir()
    except (OSError, RuntimeError, ValueError):  # a name too long, an unknown ~user, a NUL
        there = False
    if not there:
        raise Usage(f"project_path does not exist: {shown}", "Give the path of a directory.")
    return project_of(directory)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(plain(value))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _refresh(store: Store, asked: _Asked, engine: Engine) -> tuple[int | None, str]:
    """Bring the index up to date as far as time allows. How many changed logs are left, and what kept us from it."""
    if is_off("SMART_FORK_INDEXING", engine.environment):
        log.warning(_SWITCHED_OFF)
        return None, _SWITCHED_OFF
    together = engine.together
    if together is not None and together.reading and store.counts().sessions:
        return None, _BEING_READ

    indexed = together is not None and together.indexed
    seconds = min(engine.read_seconds, SOON_SECONDS) if indexed else engine.read_seconds

    def look() -> int:
        return read_changes(store, AGENTS, asked.project, seconds, engine.progress)[1]

    try:
        left = look() if together is None else together.left(look)
    except IndexBusyError:
        return None, "Another process is indexing just now."
    except Exception as error:
        if is_damage(error):
            raise
        log.warning("the index could not be brought up to date: %s", error)
        step = next_step(error)
        return None, f"The index could not be brought up to date: {error}{'. ' if step else ''}{step}"
    if not indexed:
        _embed_some(store, asked, engine)
    counts = store.counts()
    stale = counts.embedded < counts.chunks or store.meta("model") not in ("", engine.embedder.model)
    if left or stale:
        _go_on(engine)
    return left, ""


def _go_on(engine: Engine) -> None:
    """Have indexed what is left, by the process's own indexer where it has one."""
    if engine.together is not None and engine.together.indexed:
        engine.together.go_on()
    elif engine.unfinished:
        engine.unfinished()


def _scope(store: Store, asked: _Asked) -> Scope:
    if (session_id := asked.request.session_id) is None:
        return store.scope(asked.project, asked.agents, automated=asked.request.include_automated)
    rows = [row for agent in asked.agents if (row := store.session(agent, session_id))]
    return Scope((rows[0].part,), session=rows[0].row) if rows else Scope()


def _embed_some(store: Store, asked: _Asked, engine: Engine) -> None:
    """Vectors for what is asked about, as far as time allows. Words answer without; the search then says why."""
    scope = _scope(store, asked)
    counts = store.counts(scope)
    current = store.meta("model") in ("", engine.embedder.model)
    if (counts.embedded == counts.chunks and current) or engine.embed_seconds <= 0:
        return
    try:
        _ = engine.embedder.dimensions  # a model is loaded before the clock runs and others are kept from writing
        embed_first(store, engine.embedder, scope, engine.embed_seconds, engine.progress)
    except IndexBusyError:
        log.info("another process is embedding")
    except Exception as error:  # the model is the user's choice, and may fail in any way
        if is_damage(error):
            raise
        log.warning("no new vectors: %s", error)


def _answer(store: Store, asked: _Asked, engine: Engine, left: int | None, problem: str) -> dict[str, Any]:
    request = asked.request
    scope = _scope(store, asked)
    caller, hidden = _caller(store, request.caller_session_id)
    query = Query(asked.intent, scope, asked.limit, asked.project is None, request.min_score, caller, hidden)
    found = search(store, query, lambda text: _embed(store, engine.embedder, text), engine.rerank)
    problems = problems_of({hit.session.agent for hit in found.hits}, store, engine.environment)
    return {
        "query": asked.intent,
        "agent_type": asked.agents[0] if len(asked.agents) == 1 else "both",
        "collections": [results.COLLECTIONS[agent] for agent in asked.agents],
        "project_path": str(resolve(request.project_path or Path.cwd())) if asked.project else None,
        "notice": results.UNTRUSTED,
        **({"language_notice": _ENGLISH} if _is_foreign(asked.intent, engine.embedder) else {}),
        "count": len(found.hits),
        "search_mode": found.mode,
        "fallback_used": found.fallback_used,
        **({"search_error": found.error} if found.error else {}),
        **({"rerank_error": found.rerank_error} if found.rerank_error else {}),
        "index": results.index_state(store.counts(scope), left, problem),
        **({"skipped": found.dropped} if found.dropped else {}),
        "results": results.results_of(
            found, include_snippets=request.include_snippets is not False, explain=request.explain, problems=problems
        ),
        **({"fallback_sessions": _fallback(asked)} if found.mode == "recent" else {}),
    }


def _is_foreign(intent: str, embedder: Embedder) -> bool:
    """Whether the model is the default one, and the intent in a script that it was not made for."""
    return embedder.model.partition("@")[0] == DEFAULT_MODEL and is_mostly_not_latin(intent)


def _embed(store: Store, embedder: Embedder, text: str) -> bytes:
    if not store.meta("model"):
        raise LookupError("no session has been embedded yet")
    if store.meta("model") != embedder.model:
        raise LookupError(f"the index is embedded with {store.meta('model')}, not with {embedder.model}")
    return bytes(embedder.embed([text])[0].tobytes())


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
    except (
        SmartForkError,
        apsw.Error,
        OSError,
    ) as error:  # of what it started a caller may be told; not finding is worse
        log.warning("the register of workers cannot be read: %s", error)
        return []


def _fallback(asked: _Asked) -> list[dict[str, Any]]:
    adapters = [agent for agent in AGENTS if agent.name in asked.agents]
    found = recent_sessions(adapters, asked.project, asked.limit + 1, automated=asked.request.include_automated)
    others = [session for session in found if session.session_id != asked.request.caller_session_id]
    return [results.recent_session(session) for session in others[: asked.limit]]


def _not_available(message: str, hint: str, asked: _Asked) -> dict[str, Any]:
    """What is said when nothing can be searched (F-130…F-133): why, what to do, and the most recent sessions."""
    log.warning("smart_fork is not available: %s", message)
    return {
        "error": "index_not_available",
        "message": message,
        "next_steps": [
            hint
            or "Run `smart-fork index run` in a terminal and read what it says; `smart-fork doctor` explains failures.",
            "Let smart-fork index on demand: unset SMART_FORK_INDEXING, or set it to true.",
            "Ask again once indexing has completed.",
        ],
        "fallback_sessions": _fallback(asked),
    }
