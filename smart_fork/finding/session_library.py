"""The library: one caller's access to past sessions. All searches of the index go through it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from indexer.default_embedder import configured_embedder
from indexer.embedder import configured_reranker
from indexer.environment import Setting
from indexer.log_changes import Progress
from indexer.safe_files import index_db
from indexer.shared_embedder import SharedEmbedder
from indexer.store.base import Counts, Scope, SessionRow
from indexer.store.damage import kept
from indexer.transcripts.commands import WorkCommands
from indexer.transcripts.model import Session
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.programs import Program
from smart_fork.errors import IndexUnavailable, Usage, advice
from smart_fork.finding import index_refresh, results, search, session_hints
from smart_fork.finding.answer import AskedCode, Causes, Exchanges, Fixes, Found, RecentSession, Unsearched
from smart_fork.finding.candidates import Candidates
from smart_fork.finding.code_authors import by_code, causes_of
from smart_fork.finding.code_lines import changed_lines
from smart_fork.finding.error_fixes import fixes
from smart_fork.finding.fork_suitability import BETTER_FIRST, MAX_COMPARED, ForkWorth, better_first, close, worth_of
from smart_fork.finding.hit import Hit
from smart_fork.finding.index_refresh import Engine, Refreshed
from smart_fork.finding.project_index import ProjectIndex, with_files
from smart_fork.finding.query import Query
from smart_fork.finding.ranking import ExchangeEvidence
from smart_fork.finding.recent import ListFilter, deleted_prompts, passed_over, recent_sessions
from smart_fork.finding.remote_search import RemoteAnswer, RemoteSearch, alone, merge, together
from smart_fork.finding.request import MAX_LIMIT, SELF, EngineUnavailable, FindRequest, current_project, project_notice
from smart_fork.finding.result_snippets import nearness
from smart_fork.finding.session_hints import Hint, HookEvent
from smart_fork.finding.session_notes import tag
from smart_fork.finding.session_place import permits

log = logging.getLogger(__name__)

#: A function that opens a library, as `Library.open` does.
Opening = Callable[..., AbstractContextManager["Library"]]
#: The number of changes in an answer, unless more are asked for.
CHANGES = 20
_EVERYTHING = FindRequest("", agent_type=AGENTS.ALL, include_automated=True)


class Library(ProjectIndex):
    """The past sessions of a project, or of all projects, as one caller may find them. A session never finds itself.

    The index is opened and updated once, by the first question. A `RemoteSearch` (of a team's server) gets each
    question while the index is searched.
    """

    @classmethod
    @contextmanager
    def open(
        cls, path: str | None, engine: Engine, *, caller: str | None = None, everywhere: bool = False,
        elsewhere: RemoteSearch | None = None,
    ) -> Iterator[Library]:  # fmt: skip
        """Open the past sessions of the project of `path` (default: the working directory), or of all projects.

        `caller` is the session that asks. Nothing is read before the first question.
        """
        library = cls(engine, path, caller, elsewhere, everywhere=everywhere)
        with library.held():
            yield library

    def find(self, request: FindRequest) -> Found | Unsearched:
        """Find the sessions that answer a request (see docs/reference/json.md); raise `Usage` for an invalid one."""
        asked = request.checked()
        damaged, there = kept(index_db()), self._ask_elsewhere(asked)
        try:
            with self.index() as store:
                state = self.refreshed(asked)
                if state.problem and not store.counts().sessions:
                    return self._without_index(state.problem, "", asked, there)
                answer = self._search(asked, state, there)
                if there is not None and there.taken_out():  # what was found may have been withdrawn meanwhile
                    answer = self._search(asked, state, there)
            return replace(answer, index_notice=_damage_notice(damaged))
        except EngineUnavailable as error:
            return self._without_program(error, asked)
        except IndexUnavailable as error:
            index_refresh.continue_indexing(self.engine, self.project)  # what was damaged is rebuilt
            return self._without_index(error.message, error.hint, asked, there)

    def _search(self, asked: FindRequest, state: Refreshed, there: RemoteSearch | None) -> Found:
        """Search the index, add the results of the remote search `there`, and put better sessions to fork first."""
        withheld = there.withheld() if there is not None else frozenset[str]()
        query = self.query(asked, withheld)
        counts = self.store.counts(query.scope)
        shares, new = index_refresh.embedded_shares(self.store, counts, query.scope), state.new(self.store, query)
        early = bool(asked.intent) and self.search_program is None and index_refresh.makes_vectors(self.engine, state)
        read = counts.sessions / (counts.sessions + new) if new else 1.0
        query = replace(query, doubt=index_refresh.doubt(shares) if early else 0.0, read=read)
        if asked.intent and self.search_program is None and counts.sessions > 1:
            query = with_files(query, asked.code, self.engine.processes)
        vectors = partial(self.vectors, state.absent)
        candidates, code = self._candidates(query, asked, vectors)
        self._weighed[query.phrasings] = candidates.weighed
        told = there.answer() if there is not None else RemoteAnswer()
        distant = [one for one in told.hits if one.agent in query.agents]
        merged = merge(self.store, candidates, distant, query) if distant else None
        found, worth = self._better_first(merged.here if merged else candidates, asked)
        own = self._results(found, worth, asked, partial(vectors, query.meanings))
        snippets = asked.include_snippets is not False
        shown = together(own, merged, query, snippets=snippets) if merged else own[: query.limit]
        readers = [READERS[agent] for agent in query.agents] if self.search_program is None else []
        scored = self.search_program is None and not asked.code
        return self._answer(
            asked, found, shown, told,
            index=results.index_state(counts, state.left, state.problem, shares, state.seconds_left),
            background_notice=state.background,
            early_notice=index_refresh.early_notice(shares) if early else "",
            unread_notice=index_refresh.unread_notice(new if scored else 0, counts.sessions),
            language_notice=results.language_notice(
                self.store, query.phrasings, candidates, self.engine.embedder.model,
            ),
            order_notice=BETTER_FIRST if results.is_moved(found.hits) else "",
            code=code,
            fallback_sessions=self._recent(asked) if found.error and found.mode == "recent" else None,
            unread=READERS.unread(readers),
            passed_over=passed_over(self.store, readers) if readers else (),
            gone_prompts=deleted_prompts(self.project, query.agents, query.phrasings) if asked.intent else (),
        )  # fmt: skip

    def recall(self, first: HookEvent) -> Hint | None:
        """Return a hint (line for a model) about the session that probably answers a first prompt; else `None`.

        The index is not updated, and only the prompt is embedded.
        """
        if (asked := session_hints.question_of(first)) is None:
            return None
        _ = self.project  # a directory that is not there is an error
        with self.index() as store:
            if store.meta("model") != self.engine.embedder.model:
                return None
            hidden = frozenset({first.session_id})
            query = self.relevant(asked.query(self.scope(asked), hidden=hidden, **self.branch_fields(asked.intent)))
            return session_hints.recall_hint(search.search(store, query, partial(self.vectors, "")))

    def fix(self, request: FindRequest) -> Fixes:
        """Find how sessions of the repository ended the error in the request, for instance by an edit or a command.

        Raises:
            Usage: the request is invalid or has no error.
        """
        asked, error = request.checked(), str(request.error or "")
        if not error.strip():
            raise Usage("there is no error on standard input", "Pipe the output of the failed command into it.")
        with self.index() as store:
            state = self.refreshed(asked, vectors=False)
            query = self.query(replace(asked, include_automated=True))
            return fixes(error, store, query, state.new(store, query))

    def after_failure(self, call: HookEvent) -> Hint | None:
        """Return a hint (line for a model) about a session that ended the error of a failed call; else `None`.

        The index is not updated.
        """
        output, command = (one if isinstance(one := call.given.get(key), str) else "" for key in ("output", "command"))
        if not WorkCommands.of(command):  # it may show an error of another command
            return None
        with self.index() as store:
            return session_hints.fix_hint(output, store, self.query(_EVERYTHING))

    def before_edit(self, edit: HookEvent) -> Hint | None:
        """Return a hint (line for a model) about the session that wrote most of the lines to be edited; else `None`.

        The index is not updated.
        """
        if (where := session_hints.place_of(edit)) is None:
            return None
        project = current_project(str(where.file.parent))
        there, lines = session_hints.edited_lines(where, self.engine.processes)
        with self.index() as store:
            scope = store.scope(project, _EVERYTHING.agents, automated=True)
            return session_hints.author_hint(
                there, lines, store, _EVERYTHING.query(scope, hidden=frozenset({edit.session_id}))
            )

    def why(self, where: str, limit: int = CHANGES) -> Causes:
        """Return the newest changes of ``PATH:FIRST-LAST``, or of a whole file, and the prompts that led to them."""
        asked = FindRequest("", agent_type=AGENTS.ALL, files=(where,)).checked()
        _ = self.project  # who may not ask here gets no further
        there, lines, older = changed_lines(where, self.directory, limit, self.engine.processes)
        with self.index() as store:
            state = self.refreshed(asked, vectors=False)
            query = _EVERYTHING.query(self.scope(_EVERYTHING))  # whoever asks may have written it
            causes = causes_of(there, lines, store, query)
            known = store.counts(query.scope).sessions
            unread = index_refresh.unread_notice(state.new(store, query), known, scored=False)
        shown, more = tuple(causes[:limit]), older + max(0, len(causes) - limit)
        return Causes(where, results.UNTRUSTED, len(shown), shown, more, unread)

    def within(self, request: FindRequest) -> Exchanges:
        """Return the exchanges (prompts with their answers) of one session that answer the request, best first.

        Raises:
            Usage: the request is invalid, or the calling session is unknown.
            NotFound: there is no such session.
        """
        asked = request.checked()
        wanted = str(self.caller or "" if request.session == SELF else request.session)
        if not wanted:
            raise Usage("it is not known which session asks", "Give the session's id.")
        with self.index() as store:
            if not (rows := list(filter(permits, store.find_sessions(wanted)))):
                self.refreshed(asked, vectors=False)  # one that is there is read when its exchanges are looked for
                rows = list(filter(permits, store.find_sessions(wanted)))
            row = search.only_one(rows, wanted)
            return search.best_exchanges(store, row, self.evidence(row, request.intent, request.also), asked)

    def evidence(self, session: Session | SessionRow, intent: str, also: Sequence[str] | None = ()) -> ExchangeEvidence:
        """Return the evidence that each exchange (prompt, answer) of a session answers an intent. It is computed once.

        Raises:
            Usage: the intent is blank, or `also` is invalid.
            IndexUnavailable: nothing can be searched.
        """
        asked = FindRequest(intent, session.agent, limit=1, include_automated=True, also=also).checked()
        known = (session.agent, session.session_id, asked.intent, *(asked.also or ()))
        if known in self._evidence:
            return self._evidence[known]
        with self.index() as store:
            state = self.refreshed_for(
                partial(search.query_of, store, session, asked), (session.agent, session.session_id)
            )
            if state.problem and not store.counts().sessions:
                raise IndexUnavailable(state.problem, _what_to_do("", off=False)[0])
            query = self.relevant(search.query_of(store, session, asked))
            if not query.scope.parts:
                return ExchangeEvidence(why_not=state.problem or "the session is not in the index")
            weighed = self._weighed.get(query.phrasings, ())
            found = search.exchange_evidence(store, query, partial(self.vectors, state.absent), weighed)
        return self._evidence.setdefault(known, found)

    def _candidates(
        self, query: Query, asked: FindRequest, vectors: search.Embed
    ) -> tuple[Candidates, AskedCode | None]:
        """Return the sessions that answer the request or wrote its code, and the code's size if it names code.

        Without code, these are more than requested, so that better ones to fork can be put first.
        """
        if not asked.code:
            return self._by_words(replace(query, limit=max(query.limit, MAX_COMPARED)), vectors), None
        if self.project is None or self.search_program is not None:
            raise Usage(
                "lines can only be looked up in one repository, with the built-in engine", "Ask in one project."
            )
        words = self._by_words(replace(query, limit=MAX_LIMIT), vectors) if asked.intent else None
        return by_code(self.store, query, asked.code, self.engine.processes, words)

    def _by_words(self, query: Query, vectors: search.Embed) -> Candidates:
        if not query.intent:
            return search.all_in_scope(self.store, query)
        if self.search_program is None:
            return search.search(self.store, query, vectors, self.engine.rerank)
        self.search_program.refresh(self.store.counts().updated_at)
        return search.search_documents(self.store, query, self.search_program, query.agents)

    def _better_first(self, found: Candidates, asked: FindRequest) -> tuple[Candidates, dict[int, ForkWorth]]:
        """Return the requested number of hits and their worth; of about equal ones, better ones to fork first.

        The order of an external engine is kept: its scores are not chances.
        """
        limit = int(asked.limit or 0)
        own = self.search_program is None and bool(asked.intent) and not asked.code
        looked_at = found.hits[: max(limit, close(found.hits) if own else 0)]
        rows = [hit.session for hit in looked_at]
        worth = worth_of(rows, self.store, self.project, self.directory, self.engine.processes)
        return replace(found, hits=(better_first(looked_at, worth) if own else looked_at)[:limit]), worth

    def _results(
        self,
        found: Candidates,
        worth: Mapping[int, ForkWorth],
        asked: FindRequest,
        vectors: Callable[[], Sequence[bytes]],
    ) -> tuple[Hit, ...]:
        starts = {agent: asked.as_agent or agent for agent in {hit.session.agent for hit in found.hits}}
        able = Program.problems_of(set(starts.values()), self.engine.environment)
        by_meaning = self.search_program is None and found.mode in ("hybrid", "vector")
        return results.results_of(
            found, self.store, worth=worth, include_snippets=asked.include_snippets is not False,
            explain=asked.explain, problems={agent: able[started] for agent, started in starts.items()},
            works_in=asked.works_in, nearness=nearness(self.engine.embedder, vectors) if by_meaning else None,
        )  # fmt: skip

    def _ask_elsewhere(self, asked: FindRequest) -> RemoteSearch | None:
        """Send the request to the remote search, and return the search; `None` without one, or for a tag or code."""
        there, project, own = self.elsewhere, self.project, self.search_program is None
        if there is None or project is None or not own or asked.tag or asked.code:
            return None
        query = self.relevant(asked.query(Scope(), directory=Path(project.root), **self.branch_fields(asked.intent)))
        there.begin(query.to_server, self.embeddings(query.meanings))
        return there

    def _answer(
        self, asked: FindRequest, found: Candidates, shown: tuple[Hit, ...], told: RemoteAnswer, **more: Any
    ) -> Found:
        return Found(
            query=results.title(asked.intent),
            also=tuple(map(results.title, asked.also or ())) if self.search_program is None else (),
            agent_type=AGENTS.word_for(asked.agents), collections=asked.collections,
            project_path=str(self.directory) if self.project else None, notice=results.notice_of(shown),
            project_notice=project_notice(self.project, found=bool(shown)), count=len(shown), engine=found.engine,
            search_mode=found.mode, fallback_used=bool(found.error), search_error=found.error,
            rerank_error=found.rerank_error, said=found.said, skipped=found.dropped, results=shown,
            team=told.state, team_error=told.error, **more,
        )  # fmt: skip

    # -- where nothing can be searched ----------------------------------------------------------------------------

    def _recent(self, asked: FindRequest) -> tuple[RecentSession, ...]:
        adapters = [agent for agent in READERS if agent.name in asked.agents]
        limit = int(asked.limit or 0)
        automated, listed = asked.include_automated or bool(asked.tag), ListFilter(tag(asked.tag) if asked.tag else "")
        found = recent_sessions(adapters, self.project, limit + 1, automated=automated, listed=listed).sessions
        others = [session for session in found if session.session_id != self.caller]
        return results.recent_ones(others[:limit])

    def _without_program(self, error: EngineUnavailable, asked: FindRequest) -> Unsearched:
        """Return the answer if the configured search program is missing: recent sessions and next steps."""
        if self.search_program is None:
            raise error
        log.warning("%s is not available: %s", self.search_program.name, error.message)
        code, next_steps = self.search_program.what_to_do()
        return Unsearched(
            error=code, message=error.message, next_steps=next_steps, fallback_sessions=self._recent(asked)
        )

    def _without_index(
        self, message: str, hint: str, asked: FindRequest, there: RemoteSearch | None
    ) -> Found | Unsearched:
        """Return the answer if the index cannot be searched: remote results, or `message` and next steps."""
        log.warning("smart_fork is not available: %s", message)
        told = there.answer() if there is not None else RemoteAnswer()
        steps = _what_to_do(hint, off=Setting.INDEXING.is_off(self.engine.environment))
        theirs = replace(told, hits=tuple(one for one in told.hits if one.agent in asked.agents))
        hits = alone(theirs, asked.query(Scope()), snippets=asked.include_snippets is not False)
        recent = self._recent(asked)
        if not hits:
            return Unsearched(
                error="index_not_available", message=message, next_steps=steps, fallback_sessions=recent,
                team=told.state, team_error=told.error,
            )  # fmt: skip
        nothing = Counts(0, 0, 0, 0, {}, 0, "")
        index = results.index_state(nothing, None, f"{message} {steps[0]}")
        return self._answer(asked, Candidates((), "hybrid"), hits, told, index=index, fallback_sessions=recent)


def _what_to_do(hint: str, *, off: bool) -> tuple[str, ...]:
    return (
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
    )


def _damage_notice(before: Collection[Path]) -> str:
    """Return a notice if the index was just found damaged and set aside, else "". `before` are older damaged copies."""
    aside = next((path for path in kept(index_db()) if path not in before), None)
    if aside is None:
        return ""
    return (
        f"The index was damaged. It is kept as {aside}, and smart-fork builds a new one from the logs. Unread logs "
        "are not searched yet."
    )


#: The seconds that a question to a server waits for the model, for logs to be read, and for new embeddings.
MODEL_SECONDS, READ_SECONDS, EMBED_SECONDS = 12.0, 12.0, 5.0


def library(
    path: str | None = None, progress: Progress | None = None, shared: SharedEmbedder | None = None,
    seconds: float = 0.0, **how: Any,
) -> AbstractContextManager[Library]:  # fmt: skip
    """Open the library for a command of the command line, or for a server. `how` are arguments of `Library.open`.

    A command never finds the session that runs it. A server passes its `shared` model, and names the caller in `how`.
    Questions to a server may wait longer: at least `seconds`.
    """
    own = engine(progress)
    if shared is None:
        return Library.open(path, own, caller=AGENTS.caller_session(os.environ), **how)
    reads, embeds = max(seconds, READ_SECONDS), max(seconds, EMBED_SECONDS)
    own = replace(own, embedder=shared, read_seconds=reads, embed_seconds=embeds)
    return Library.open(path, own, **how)


def engine(progress: Progress | None = None) -> Engine:
    """Return the models and time limits of a search from the command line."""
    return Engine(
        configured_embedder(),
        progress=progress,
        unfinished=None if Setting.BACKGROUND.is_off() else index_refresh.index_in_background,
        rerank=configured_reranker(),
    )
