"""Why lines and files are as they are: their changes, and the prompts that caused them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from indexer.masking import mask
from indexer.project import resolve
from indexer.store.base import Scope, Store
from smart_fork.agents.selection import ALL
from smart_fork.authorship.blame import Line, blamed, file_history, history, name_of, names_lines, range_of
from smart_fork.authorship.sessions import Writer, sessions_of, writers_of
from smart_fork.repository.git import opened as repository_at
from smart_fork.retrieval.answer import Cause, Causes
from smart_fork.retrieval.by_code import ASKED_CHARACTERS, beginning_of
from smart_fork.retrieval.covered import unread_notice
from smart_fork.retrieval.evidence import admitted
from smart_fork.retrieval.found import Query
from smart_fork.retrieval.index_access import opened
from smart_fork.retrieval.request import FindRequest, check, current_project
from smart_fork.retrieval.results import UNTRUSTED
from smart_fork.retrieval.upkeep import CheckedRequest, Engine, refresh
from smart_fork.text.snippets import quoted

#: So many changes are told unless more are asked for.
CHANGES = 20


def why(where: str, engine: Engine, project_path: str | None = None, limit: int = CHANGES) -> Causes:
    """The newest changes of the lines in ``PATH:FIRST-LAST``, or of a whole file.

    Raises:
        Usage, NotFound: there are no such lines, or there is no such file, in the repository.
        IndexUnavailable: the index cannot be opened.
        ProgramMissing, ProgramFailed: git is not installed, or the repository is not believed.
    """
    request = FindRequest("", agent_type=ALL, files=(where,), project_path=project_path)
    agents, project, folder = check(request), current_project(project_path), resolve(project_path or Path.cwd())
    there = repository_at(folder, engine.processes)
    older = 0
    if names_lines(where):
        lines = blamed(there, range_of(there, folder, where))
        made = [*(one for one in lines if not one.commit), *history(there, [one for one in lines if one.asked])]
    else:
        made, older = file_history(there, name_of(there, folder, where), limit)
    with opened() as store:
        state = refresh(store, CheckedRequest(request, "", (), agents, project, 1), engine)
        scope = store.scope(project, agents, automated=True)
        found = zip(made, writers_of(made, store, scope, there), strict=True)
        by_commit = [[*several] for _, several in groupby(found, key=lambda one: one[0].commit)]
        causes = [_cause(store, scope, several) for several in by_commit if any(line.asked for line, _ in several)]
        unread = unread_notice(state.new, store.counts(scope).sessions, scored=False)
    more = older + max(0, len(causes) - limit)
    return Causes(where, UNTRUSTED, min(len(causes), limit), tuple(causes[:limit]), more, unread)


def _cause(store: Store, scope: Scope, made: list[tuple[Line, Writer | None]]) -> Cause:
    lines, writers = zip(*made, strict=True)
    date = datetime.fromtimestamp(lines[0].committed, UTC).isoformat().replace("+00:00", "Z") if lines[0].commit else ""
    cause = Cause(lines[0].commit, date, quoted(mask(lines[0].subject), ASKED_CHARACTERS))
    wrote = next(iter(sessions_of(lines, writers)), None)
    rows, _ = admitted(store.sessions([wrote.session] if wrote else ()).values(), Query("", scope, 1))
    if wrote is None or wrote.session not in rows:
        return cause
    row = rows[wrote.session]
    place, _, asked = beginning_of(store, row, wrote.exchange)
    ends = place.ends if place else None
    return replace(
        cause, session_id=row.session_id, agent_type=row.agent, exchange=wrote.exchange + 1, ends_at_message=ends,
        asked=asked, lines=wrote.lines, of=wrote.of,
    )  # fmt: skip
