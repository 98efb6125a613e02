"""The functions of the team that `smart_fork.finding` calls: search and fetch shared sessions, describe the server.

During a search, the server is asked in a thread while the local index is searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from indexer.default_embedder import LightEmbedder, configured_embedder
from indexer.json_values import Value, value
from indexer.session_export import LABELS
from indexer.session_work import Outcome
from indexer.store.base import Scope
from indexer.transcripts.model import AgentName
from smart_fork import config, provenance
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.references import Resolved
from smart_fork.display_text import printable
from smart_fork.errors import Ambiguous, NotAuthenticated, NotFound, ServerUnavailable, SmartForkError, Usage, WrongVerb
from smart_fork.finding import session_lookup
from smart_fork.finding.query import Query
from smart_fork.finding.remote_search import RemoteAnswer, RemoteSession
from smart_fork.finding.request import FindRequest
from smart_fork.finding.search import QuestionEmbeddings
from smart_fork.finding.team_sessions import ServerState
from smart_fork.sharing import log_register
from smart_fork.sharing.tracking import Alias
from smart_fork.sharing.withdrawal import apply_pending
from smart_fork.team import PullOptions, client, stored_logins, wire
from smart_fork.team.client import Client
from smart_fork.team.project import TeamProject, opened
from smart_fork.team.searchable_session import as_float16, vector_space
from smart_fork.team.shared_session_copies import BranchVerb, TeamBranchRequest, branch
from smart_fork.team.shared_session_reader import listed, look_into, read
from smart_fork.team.tracked_sessions import free_alias
from smart_fork.team.wire import Administer
from smart_fork.team.withdraw import apply_withdrawals, apply_withdrawals_to, fetch_withdrawals, opened_current

if TYPE_CHECKING:
    from smart_fork.finding.answer import TeamFound


@dataclass(frozen=True, slots=True)
class FetchedSession:
    """A local copy of a team's session. `source_id` is the session's id on the server.

    `existed` is true if the copy was already on this machine, `by_alias` if the user named it by its alias. `warnings`
    name the content that the copy lacks.
    """

    session_id: str
    agent: AgentName
    path: Path
    alias: str
    source_id: str
    existed: bool
    by_alias: bool = False
    warnings: tuple[str, ...] = ()


@contextmanager
def fetched(reference: str, *, directory: Path | None = None, keep: bool = True) -> Iterator[Resolved]:
    """Yield the session that `reference` names, after fetching it from the team if it is not on this machine.

    A reference is the id of a session or worker, an alias, or a URL. Without `keep`, a fetched session is deleted after
    the context.

    Raises:
        SmartForkError: neither this machine nor the team has the session.
    """
    try:
        here = session_lookup.locate(reference)
    except Ambiguous:  # no team knows better which of them is meant
        raise
    except (NotFound, Usage) as error:
        missing = error
    else:
        if here.path is not None:
            apply_withdrawals_to(here.path, here.agent)
        yield Resolved.here(reference)
        return
    with _fetched_copy(reference, missing, directory, keep=keep) as one:
        yield Resolved(one.session_id, "alias" if one.by_alias else "team", one.warnings)


def is_shared(reference: str) -> bool:
    """Return True if the team has a session of that id, or an alias of that name is tracked here."""
    with suppress(SmartForkError), opened() as where, suppress(NotFound):
        return where.tracking.read().named(reference) is not None or bool(where.find_session(reference))
    return False


@contextmanager
def _fetched_copy(
    reference: str, missing: SmartForkError, directory: Path | None, *, keep: bool
) -> Iterator[FetchedSession]:
    """Yield the local copy of a team's session. If the team has no such session, raise `missing`.

    `missing` is the error of the search on this machine. After an error in the context, or without `keep`, a copy that
    was written by this call is deleted.
    """
    try:
        if not stored_logins.has_login():
            raise missing
        with opened(directory=directory) as where:
            one = _by_alias(where, reference) or _fetched(where, reference)
        provenance.refuse_pending_withdrawal(one.session_id)
    except (NotFound, NotAuthenticated, Usage):
        raise missing from None
    passes = provenance.viewing_copy(one.session_id, one.source_id) if not (keep or one.existed) else nullcontext()
    try:
        with passes:
            yield one
    except BaseException:
        keep = False
        raise
    finally:
        if not (keep or one.existed):
            _delete_copy(where, one)


def _by_alias(where: TeamProject, reference: str) -> FetchedSession | None:
    """Return the local copy that an alias names, without asking the server; `None` if there is no such copy.

    If the alias is the beginning of the session's id and the server answers, return `None`: new records are fetched.
    """
    known = where.tracking.read().named(reference)
    if known is None or known[1].file is None or not _is_unchanged(where, known[1]):
        return None
    if (_source(known[1]) or "").startswith(known[0]) and not client.is_unavailable(where.server):
        return None
    one = _fetched_alias(*known, by_alias=True)
    apply_withdrawals_to(one.path, one.agent)
    return one


def _fetched(where: TeamProject, reference: str) -> FetchedSession:
    """Return the local copy of a session on the server. Write a new copy unless an existing one has all records."""
    source_id = where.find_session(reference).session.id
    apply_withdrawals(where.client)
    return _present_copy(where, source_id) or _fetch_new(where, source_id)


def _present_copy(where: TeamProject, source_id: str) -> FetchedSession | None:
    """Return the user's own log of a shared session, or else an unchanged copy with all its records; or `None`."""
    for name, one in where.tracking.read().aliases.items():
        if _source(one) == source_id and _is_unchanged(where, one) and (one.session_id or _has_all_records(where, one)):
            return _fetched_alias(name, one)
    return None


def _has_all_records(where: TeamProject, one: Alias) -> bool:
    there = where.client.session(where.key, one.parent_id or "").session
    return (there.record_count, there.head_digest) == (one.base_count, one.base_digest)


def _fetched_alias(name: str, one: Alias, *, by_alias: bool = False) -> FetchedSession:
    path = one.file or Path()
    session_id = READERS[one.platform].id_of(path)
    return FetchedSession(session_id, one.platform, path, name, _source(one) or "", existed=True, by_alias=by_alias)


def _source(one: Alias) -> str | None:
    """Return the id of the shared session that a tracked log belongs to, or was copied from."""
    return one.session_id or one.parent_id


def _is_unchanged(where: TeamProject, one: Alias) -> bool:
    here = where.logs.tracked(one.file, one.platform)
    return here is not None and (one.session_id is not None or here.digest(len(here.records)) == one.local_digest)


def _fetch_new(where: TeamProject, source_id: str) -> FetchedSession:
    info = where.client.session(where.key, source_id, "fork").session
    before = where.tracking.read()
    current, name = before.current, free_alias(before, source_id, new=True)
    verb: BranchVerb = "branch" if where.is_mine(info) else "fork"
    done = branch(
        where, verb, source_id, TeamBranchRequest(description=wire.SessionChange(), local=True), PullOptions(alias=name)
    )
    where.tracking.change(lambda after: after.model_copy(update={"current": current}) if current else after)
    path = Path(done.files[0])
    lost = [f"Not in it: {', '.join(f'{number} {what}' for what, number in done.lost.items())}"] if done.lost else []
    session_id = READERS[done.agent].id_of(path)
    return FetchedSession(
        session_id, done.agent, path, name, source_id, existed=False, warnings=(*done.warnings, *lost)
    )


def _delete_copy(where: TeamProject, one: FetchedSession) -> None:
    known = log_register.find(one.path, one.agent)
    AGENTS.files_of(one.agent).remove(one.path)
    if known is not None:
        known.forget()
    provenance.forget_foreign(one.session_id)
    where.tracking.change(lambda tracked: tracked.without(one.alias) if one.alias in tracked.aliases else tracked)


#: Seconds to wait for the vectors of a question. Without them, the server computes them.
VECTOR_SECONDS = 0.5


@dataclass
class TeamSearch:
    """The search of a team's sessions for one question; see `smart_fork.finding.remote_search.RemoteSearch`.

    With `wanted`, a project without a team is an error. `seconds` is how long the search waits for the server.
    """

    wanted: bool = False
    seconds: float = field(default_factory=lambda: client.QUICK_SECONDS)
    _asked: tuple[object, ...] = ()
    _said: RemoteAnswer | None = None
    _waiting: client.PendingAnswer | None = field(default=None, repr=False)
    _origin: str = ""
    _withheld: frozenset[str] = frozenset()

    def begin(self, query: Query, embeddings: QuestionEmbeddings) -> None:
        """Send the question to the server in a thread, unless it was already sent."""
        if self._asked == (same := (query.phrasings, query.directory)):
            return  # the own index is searched again, for all agents
        self._asked, self._said = same, None
        work = partial(self._ask, query, embeddings)
        self._waiting = client.PendingAnswer(work, "ask the team", self.seconds)

    def answer(self) -> RemoteAnswer:
        """Return the server's answer, or an answer with an error if it does not arrive in time."""
        if self._waiting is not None:
            self._waiting.has_ended()
        if self._said is None:  # from now on it is too late, whatever comes
            self._said = RemoteAnswer(error=f"The team server did not answer within {self.seconds:g} seconds.")
            if self._origin:
                client.note_unavailable(self._origin)
        return self._said

    def withheld(self) -> frozenset[str]:
        """Return the ids of local sessions from which withdrawn messages must still be removed."""
        self._withheld = provenance.pending_withdrawals()
        return self._withheld

    def taken_out(self) -> bool:
        """Remove withdrawn messages from local sessions. Return True if any session changed."""
        if not provenance.pending_withdrawals():
            return False
        done = apply_pending()
        return bool(done.changed or done.removed or provenance.pending_withdrawals() - self._withheld)

    @property
    def auto_fork(self) -> bool:
        """True if the settings allow smart-fork to fork a team's session that the user did not choose."""
        return config.team().auto_fork

    def _ask(self, query: Query, embeddings: QuestionEmbeddings) -> None:
        try:
            with opened(directory=query.directory) as where:
                self._origin = where.server
                if client.is_unavailable(where.server):
                    self._said = RemoteAnswer(error=client.ASKED_LATER)
                    return
                with client.impatient_client(where.client.account) as quick:
                    fetch_withdrawals(quick)
                    found = search_server(quick, where.key, query, embeddings)
                self._said = remote_answer(where, found, query.phrasings)
        except (NotFound, Usage) as error:  # this project is not shared, or is none that could be
            self._said = RemoteAnswer(error=error.message if self.wanted else "")
        except ServerUnavailable as error:
            client.note_unavailable(self._origin)
            self._said = RemoteAnswer(error=error.message)
        except SmartForkError as error:
            self._said = RemoteAnswer(error=error.message)
        except Exception as error:  # noqa: BLE001 - the answer of this machine stands
            self._said = RemoteAnswer(error=f"The team's sessions could not be searched: {type(error).__name__}")


def find_in_team(request: FindRequest, *, server: str | None = None, project: str | None = None) -> TeamFound:
    """Search only the team's sessions, and return the results."""
    query = request.checked().query(Scope())
    with opened_current(server, project) as where:
        embeddings = QuestionEmbeddings(configured_embedder(), query.meanings)
        try:
            told = search_server(where.client, where.key, query.to_server, embeddings)
        finally:
            embeddings.settle()
        found = remote_answer(where, told, query.phrasings)
    return found.answer_alone(query, snippets=request.include_snippets is not False)


def search_server(client: Client, project: str, query: Query, embeddings: QuestionEmbeddings) -> wire.SearchAnswer:
    """Send a question to a server, and return the answer.

    The question's vectors are sent too, if they can be computed in a moment. Otherwise the server computes them.
    """
    made = embeddings.within(VECTOR_SECONDS) if embeddings.model == LightEmbedder().model else None
    wanted = wire.valid_message(
        wire.Search,
        question=query.relevant or query.intent,
        also=query.also,
        space=vector_space(embeddings.model, LightEmbedder.dimensions) if made else None,
        e=as_float16(made or ()),
        limit=min(query.limit, wire.MAX_PAGE),
    )
    return client.search(project, wanted)


def remote_answer(where: TeamProject, found: wire.SearchAnswer, phrasings: Sequence[str]) -> RemoteAnswer:
    """Convert the server's answer to a form that can be merged with the local results.

    Results of unknown form are dropped.
    """
    here = {one.session_id: one.file for one in where.tracking.ours().aliases.values() if one.session_id and one.file}
    distant = []
    for hit in found.hits:
        info = hit.session
        if len(hit.speaking) != len(phrasings) or info.agent not in READERS.names:
            continue
        log = here.get(info.id)
        passage = None
        if hit.passage is not None:
            passage = hit.passage.model_dump(exclude={"message_id"})
            passage["text"] = hit.passage.text.removeprefix(LABELS[hit.passage.role])
        distant.append(
            RemoteSession.received(
                (where.server, info.owner, info.id),
                [one.model_dump() for one in hit.speaking],
                passage,
                similar=hit.similar,
                embedded=found.embedded,
                agent=info.agent,
                title=info.title or (_first_line(passage["text"]) if passage else ""),
                family=hit.family,
                branch=info.meta.branch,
                **hit.model_dump(include={"turns", "tokens", "started", "last_activity"}),
                outcome=Outcome(hit.outcome).value,
                local_id=READERS[info.agent].id_of(log) if log else "",
            )
        )
    return RemoteAnswer.of(distant, where.server, where.key, found.sessions, found.by_words_only)


def _first_line(text: str) -> str:
    return printable(text).strip().partition("\n")[0][:200]


#: The next step for failed background jobs.
JOBS_HINT = "smart-fork team jobs shows the reasons. smart-fork team jobs --retry tries again."


@value
class FailedJob(Value):
    """A background job of the server (such as indexing) that failed too often, and waits for an admin's retry."""

    kind: str
    project: str | None
    session_id: str | None
    attempts: int
    error: str


_JOBS = TypeAdapter(tuple[FailedJob, ...])


def failed_jobs(client: Client) -> tuple[FailedJob, ...] | None:
    """Return the failed jobs of a server; `None` if the user is not an admin."""
    try:
        told = client.administer(Administer(verb="jobs"))
    except (WrongVerb, NotFound, Usage):
        return None
    try:
        return _JOBS.validate_python(told.get("jobs"))
    except ValidationError:
        return None


def server_state() -> ServerState | None:
    """Return the state of the user's server, with its failed jobs; `None` if the user has not logged in."""
    if not stored_logins.has_login():
        return None
    account = stored_logins.logged_in_account()
    try:
        found = client.ask_briefly(account, failed_jobs, "ask for failed jobs")
    except ServerUnavailable:
        step = "Is it running, and is the address right? Local sessions do not need it."
        return ServerState(account.origin, client.NO_ANSWER, step)
    return ServerState(account.origin, jobs_in_words(found), JOBS_HINT) if found else ServerState(account.origin)


def jobs_in_words(failed: tuple[FailedJob, ...]) -> str:
    """Return a sentence with the number of failed background jobs of the server."""
    return f"The server has given up {len(failed)} job{'s' if len(failed) > 1 else ''}."


__all__ = ["fetched", "is_shared", "listed", "look_into", "read", "search", "server_state"]


def search(*, wanted: bool) -> TeamSearch:
    """Return a search of the team's sessions. With `wanted`, a project without a team is an error."""
    return TeamSearch(wanted=wanted)
