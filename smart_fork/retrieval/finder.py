"""The main job's first half: an intent in, the sessions that know how out; for the command line, MCP and scripts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import apsw

from indexer.damage import kept
from indexer.embedder import DEFAULT_MODEL, Embedder
from indexer.model_notice import telling
from indexer.paths import index_db
from indexer.project import resolve
from indexer.settings import INDEXING
from indexer.store.base import SessionRow, Store
from smart_fork.agents.logs import unread
from smart_fork.agents.programs import problems_of
from smart_fork.agents.readers import READERS
from smart_fork.agents.selection import word_for
from smart_fork.engines.base import EngineUnavailable, collection_of
from smart_fork.engines.configured import OWN, configured_engine
from smart_fork.errors import IndexUnavailable, SmartForkError
from smart_fork.notes import tag as checked_tag
from smart_fork.registry.file import has_registry
from smart_fork.registry.workers import Registry
from smart_fork.repository.past import branch_at
from smart_fork.retrieval import results
from smart_fork.retrieval.answer import Answer, Covered, Found, IndexState, RecentSession, Unsearched
from smart_fork.retrieval.by_code import all_in_scope, by_code, with_files
from smart_fork.retrieval.covered import covered, doubt, early_notice, unread_notice
from smart_fork.retrieval.elsewhere import AskedElsewhere, SaidElsewhere, alone, merge, notice_of, together
from smart_fork.retrieval.found import Candidates, Query, meanings
from smart_fork.retrieval.gone import gone_prompts
from smart_fork.retrieval.index_access import opened
from smart_fork.retrieval.kinship import relatives
from smart_fork.retrieval.meaning import Embed, Meaning, meanings_of
from smart_fork.retrieval.phrasings import further
from smart_fork.retrieval.query import is_mostly_not_latin, language_of, most_are_in, plain
from smart_fork.retrieval.quotation import Nearness
from smart_fork.retrieval.ranking import RIVALS
from smart_fork.retrieval.recent import Listed, recent_sessions
from smart_fork.retrieval.request import DEFAULT_LIMIT, MAX_LIMIT, FindRequest, check, current_project, project_notice
from smart_fork.retrieval.search import search
from smart_fork.retrieval.status import passed_over
from smart_fork.retrieval.upkeep import CheckedRequest, Engine, Upkeep, go_on, makes_vectors, refresh, scope_of
from smart_fork.retrieval.worth import BETTER_FIRST, COMPARED, Worth, better_first, close, worth_of
from smart_fork.text.advice import advice

log = logging.getLogger(__name__)

_ENGLISH = (
    "The default model knows mainly English: search by meaning hardly worked. Add English phrasings (also), or set "
    "SMART_FORK_MODEL to a multilingual model (docs/how-to/languages.md)."
)
_SAME = (
    "The default model hardly knows this script: search by meaning hardly worked. Set SMART_FORK_MODEL to a "
    "multilingual model (docs/how-to/languages.md)."
)
_THEIRS = (
    "The default model hardly knows the script of most sessions here. Add phrasings in their language (also), or "
    "set SMART_FORK_MODEL to a multilingual model (docs/how-to/languages.md)."
)
_OTHER = (
    "Most sessions here are in {0}, and the intent is not. Add phrasings in {0} (also), or set SMART_FORK_MODEL to "
    "a multilingual model (docs/how-to/languages.md)."
)


def find(request: FindRequest, engine: Engine) -> Answer:
    """The answer (see docs/reference/json.md).

    Raises:
        Usage: something in the request is not acceptable; nothing was read or started.
    """
    agents = check(request)
    project = None if request.all_projects else current_project(request.project_path)
    limit = int(request.limit or DEFAULT_LIMIT)
    outside = configured_engine(engine.environment)
    intent = plain(request.intent)
    asked = CheckedRequest(request, intent, further(intent, request.also), agents, project, limit, outside)
    before = kept(index_db())
    meaning = Meaning(engine.embedder, meanings(asked.intent, asked.also))
    if request.tag:
        engine = replace(engine, elsewhere=None)  # tags are of this machine alone
    if request.code:
        engine = replace(engine, elsewhere=None, embed_seconds=engine.embed_seconds if intent else 0.0)
    if engine.elsewhere is not None and outside is None and project is not None:
        there = AskedElsewhere(asked.intent, asked.also, Path(project.root), max(limit, RIVALS), meaning)
        engine.elsewhere.begin(there)
    else:
        engine = replace(engine, elsewhere=None)
    try:
        with telling(engine.progress), opened() as store:
            state = refresh(store, asked, engine)
            if state.problem and not store.counts().sessions:
                return _or_theirs(state.problem, "", asked, engine)
            answer = _answer(store, asked, engine, state, meaning)
        if engine.elsewhere is not None and engine.elsewhere.taken_out():
            with opened() as store:  # what was found may have been withdrawn meanwhile
                answer = _answer(store, asked, engine, state, meaning)
        return replace(answer, index_notice=_damage(before))
    except EngineUnavailable as error:
        return _engine_not_available(error, asked)
    except IndexUnavailable as error:
        go_on(engine, project)  # what was damaged is rebuilt
        return _or_theirs(error.message, error.hint, asked, engine)


def _answer(store: Store, asked: CheckedRequest, engine: Engine, state: Upkeep, meaning: Meaning) -> Found:
    request = asked.request
    scope = scope_of(store, asked)
    caller, hidden = caller_of(store, request.caller_session_id)
    hidden |= engine.elsewhere.withheld() if engine.elsewhere is not None else frozenset()
    most = max(asked.limit, COMPARED)
    counts = store.counts(scope)
    shares = covered(store, counts, scope)
    lacking = bool(asked.intent) and asked.outside is None and makes_vectors(engine, state)
    query = Query(
        asked.intent, scope, most, asked.project is None, request.min_score, caller, hidden, asked.also,
        relatives(store, caller) if caller else (), doubt(shares) if lacking else 0.0,
        counts.sessions / (counts.sessions + state.new) if state.new else 1.0,
        branch_at(resolve(request.project_path or Path.cwd())) if asked.project else "",
    )  # fmt: skip
    if asked.intent and asked.outside is None and counts.sessions > 1:
        query = with_files(query, asked, engine)
    vectors = partial(meanings_of, store, meaning, state.absent)
    code = None
    if not request.code:
        candidates = _found(store, query, asked, engine, vectors)
    else:
        words = _found(store, replace(query, limit=MAX_LIMIT), asked, engine, vectors) if asked.intent else None
        candidates, code = by_code(store, query, asked, engine, words)
    told = engine.elsewhere.answer() if engine.elsewhere is not None else None
    distant = [one for one in (told.hits if told else ()) if one.agent in asked.agents]
    merged = merge(store, candidates, distant, query)
    found, worth = _best_to_fork(store, merged.here, asked, engine)
    starts = {agent: request.as_agent or agent for agent in {hit.session.agent for hit in found.hits}}
    able = problems_of(set(starts.values()), engine.environment)
    near = _nearness(engine.embedder, lambda: vectors(query.meanings))
    own = results.results_of(
        found,
        worth=worth,
        include_snippets=request.include_snippets is not False,
        explain=request.explain,
        problems={agent: able[started] for agent, started in starts.items()},
        works_in=request.works_in,
        nearness=near if asked.outside is None and found.mode in ("hybrid", "vector") else None,
    )
    readers = [READERS[agent] for agent in asked.agents] if asked.outside is None else []
    shown = together(own, merged, query, asked.limit, snippets=request.include_snippets is not False)
    return Found(
        query=results.title(asked.intent),
        also=tuple(map(results.title, asked.also)) if asked.outside is None else (),
        agent_type=word_for(asked.agents),
        collections=tuple(map(collection_of, asked.agents)),
        project_path=str(resolve(request.project_path or Path.cwd())) if asked.project else None,
        notice=notice_of(shown, results.UNTRUSTED),
        project_notice=project_notice(asked.project, found=bool(shown)),
        background_notice=state.background,
        early_notice=early_notice(shares) if lacking else "",
        unread_notice=unread_notice(state.new, counts.sessions) if asked.outside is None and not request.code else "",
        language_notice=_language_notice(asked, candidates, engine.embedder),
        count=len(shown),
        engine=found.engine,
        search_mode=found.mode,
        fallback_used=found.fallback_used,
        search_error=found.error,
        rerank_error=found.rerank_error,
        said=found.said,
        index=results.index_state(counts, shares, state.left, state.problem),
        skipped=found.dropped,
        order_notice=BETTER_FIRST if results.is_moved(found.hits) else "",
        code=code,
        results=shown,
        fallback_sessions=_fallback(asked) if found.error and found.mode == "recent" else None,
        team=told.state if told else None,
        team_error=told.error if told else "",
        unread=unread(readers),
        passed_over=passed_over(store, readers) if readers else (),
        gone_prompts=gone_prompts(asked.project, asked.agents, query.phrasings) if asked.intent else (),
    )


def _best_to_fork(
    store: Store, found: Candidates, asked: CheckedRequest, engine: Engine
) -> tuple[Candidates, dict[int, Worth]]:
    """As many hits as are wanted, of those about as likely as the best one the better first; and how good each is.

    What another engine has scored stands as it is: its scores are no chances.
    """
    own = asked.outside is None and bool(asked.intent) and not asked.request.code
    looked_at = found.hits[: max(asked.limit, close(found.hits) if own else 0)]
    directory = resolve(asked.request.project_path or Path.cwd())
    rows = [hit.session for hit in looked_at]
    worth = worth_of(rows, store, asked.project, directory, engine.processes)
    return replace(found, hits=(better_first(looked_at, worth) if own else looked_at)[: asked.limit]), worth


def _found(store: Store, query: Query, asked: CheckedRequest, engine: Engine, embed: Embed) -> Candidates:
    if not query.intent:
        return all_in_scope(store, query)
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
        f"The index was damaged. It is kept as {aside}, and smart-fork builds a new one from the logs. Unread logs "
        "are not searched yet."
    )


def _language_notice(asked: CheckedRequest, found: Candidates, embedder: Embedder) -> str:
    """What to say where the question and the sessions are not in one language, or in a script that the default model
    was not made for.
    """
    if embedder.model.partition("@")[0] != DEFAULT_MODEL:
        return ""
    phrasings, passages = (asked.intent, *asked.also), [f"{hit.session.title} {hit.text}" for hit in found.hits]
    foreign = [is_mostly_not_latin(phrasing) for phrasing in phrasings]
    theirs = [is_mostly_not_latin(passage) for passage in passages]
    mostly = sum(theirs) * 2 > len(theirs)
    if all(foreign):
        return _SAME if mostly else _ENGLISH
    if mostly and not any(foreign):
        return _THEIRS
    language, spoken = most_are_in(passages), {language_of(phrasing) for phrasing in phrasings} - {""}
    best = language_of(passages[0]) if passages else ""
    return _OTHER.format(language) if language and spoken and not {language, best} & spoken else ""


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


def caller_of(store: Store, session_id: str | None) -> tuple[SessionRow | None, frozenset[str]]:
    """The calling session, and what else it must not find: itself, where it is not indexed yet, and its own workers."""
    if not session_id:
        return None, frozenset()
    own = next((row for row in store.find_sessions(session_id) if row.session_id == session_id), None)
    return own, frozenset({session_id, *_workers_of(session_id)})


def _workers_of(session_id: str) -> list[str]:
    if not has_registry():
        return []
    try:
        with Registry() as registry:
            return [worker.session_id for worker in registry.spawned_by(session_id) if worker.session_id]
    except (SmartForkError, apsw.Error, OSError) as error:  # a caller may be told of what it started: that is less bad
        log.warning("the register of workers cannot be read: %s", error)
        return []


def _fallback(asked: CheckedRequest) -> tuple[RecentSession, ...]:
    adapters = [agent for agent in READERS if agent.name in asked.agents]
    found = recent_sessions(
        adapters,
        asked.project,
        asked.limit + 1,
        automated=asked.request.include_automated or bool(asked.request.tag),
        listed=Listed(checked_tag(asked.request.tag) if asked.request.tag else ""),
    ).sessions
    others = [session for session in found if session.session_id != asked.request.caller_session_id]
    return results.recent_ones(others[: asked.limit])


def _engine_not_available(error: EngineUnavailable, asked: CheckedRequest) -> Unsearched:
    """What is said where another engine is configured, and is not there."""
    if asked.outside is None:
        raise error
    log.warning("%s is not available: %s", asked.outside.name, error.message)
    code, next_steps = asked.outside.what_to_do()
    return Unsearched(error=code, message=error.message, next_steps=next_steps, fallback_sessions=_fallback(asked))


def _or_theirs(message: str, hint: str, asked: CheckedRequest, engine: Engine) -> Answer:
    """What is found elsewhere where nothing can be searched here, and why that is; else that alone."""
    told = engine.elsewhere.answer() if engine.elsewhere is not None else SaidElsewhere()
    own = _not_available(message, hint, asked, off=INDEXING.is_off(engine.environment))
    request = asked.request
    hits = alone(
        replace(told, hits=tuple(one for one in told.hits if one.agent in asked.agents)), asked.intent, asked.also,
        limit=asked.limit, min_score=request.min_score, snippets=request.include_snippets is not False,
    )  # fmt: skip
    if not hits:
        return replace(own, team=told.state, team_error=told.error)
    return Found(
        query=results.title(asked.intent),
        also=tuple(map(results.title, asked.also)),
        agent_type=word_for(asked.agents),
        collections=tuple(map(collection_of, asked.agents)),
        project_path=str(resolve(request.project_path or Path.cwd())),
        notice=notice_of(hits, results.UNTRUSTED),
        project_notice=project_notice(asked.project),
        count=len(hits),
        engine=OWN,
        search_mode="hybrid",
        fallback_used=False,
        index=IndexState(
            sessions=0, chunks=0, embedded=0, covered=Covered(0.0, 0.0), complete=False,
            problem=f"{own.message} {own.next_steps[0]}",
        ),
        results=hits,
        fallback_sessions=own.fallback_sessions,
        team=told.state,
    )  # fmt: skip


def _not_available(message: str, hint: str, asked: CheckedRequest, *, off: bool) -> Unsearched:
    """What is said when nothing can be searched: why, what to do, and the most recent sessions."""
    log.warning("smart_fork is not available: %s", message)
    return Unsearched(
        error="index_not_available",
        message=message,
        next_steps=(
            hint
            or advice(
                "Run `smart-fork index run` and read its messages. `smart-fork doctor` explains failures.",
                tool="Tell the user that smart-fork cannot search, and why.",
            ),
            "Let smart-fork index on demand: unset SMART_FORK_INDEXING, or set it to true."
            if off
            else advice(
                "`smart-fork list` and `smart-fork show` work without it.",
                tool="list_sessions and read_session work without it.",
            ),
            "Ask again once indexing has completed.",
        ),
        fallback_sessions=_fallback(asked),
    )
