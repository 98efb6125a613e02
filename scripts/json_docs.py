"""The keys in docs/reference/json.md, from the answered values: ``make json-docs`` writes keys and types.

What a key means is written by hand beside it, and stays; a key that is new says nothing yet. A key without a meaning
of its own that is one of the common keys is only named.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from indexer.json_values import RARE, SPREAD, Value
from indexer.runs import LastRun
from smart_fork import doctor
from smart_fork.agents import log_tail
from smart_fork.cli import agents, status
from smart_fork.cli.service.installation import ServiceInstallation
from smart_fork.cli.service.token import Rotated
from smart_fork.cli.setup import setup_output as setting_up
from smart_fork.excise import erasure as session_removal
from smart_fork.finding import answer, conversation, hit, index_refresh, index_status, project_places
from smart_fork.forking import results
from smart_fork.page import export
from smart_fork.server import worker_tools
from smart_fork.sharing.sync import run as sync_run
from smart_fork.sharing.sync.setup import SyncedRepositories
from smart_fork.workers import results as worker_results
from smart_fork.workers import worktree_cleanup

DOCS = Path(__file__).resolve().parent.parent / "docs/reference/json.md"
_COMMON = "Common keys"
_ALSO = f"* [{_COMMON}](#common-keys):"
_NULL = " or null"
#: A key that several values have, and its type.
_ROW = re.compile(r"^\* `(\w+)` ([^:,\n]*):", re.MULTILINE)
_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


class Table(NamedTuple):
    """The table below a heading has the keys of `kinds`: of several, those that not all have may be absent.

    So may those in `rare`, which one way of asking answers and another does not. Those of `but` stand elsewhere, and
    those in `unsaid` are described in the text.
    """

    kinds: tuple[type[Value], ...]
    rare: tuple[str, ...] = ()
    but: type[Value] | None = None
    unsaid: tuple[str, ...] = ()


def _of(*kinds: type[Value], rare: str = "", but: type[Value] | None = None, unsaid: str = "") -> Table:
    return Table(kinds, tuple(rare.split()), but, tuple(unsaid.split()))


TABLES: Mapping[str, Table] = {
    "find, find_sessions and smart_fork": _of(answer.Found),
    "results": _of(hit.Hit, rare="said_by"),
    "wrote": _of(hit.WroteLines),
    "code": _of(answer.AskedCode),
    "gone_prompts": _of(answer.DeletedPrompt),
    "why": _of(answer.Causes),
    "changes": _of(answer.Cause),
    "fix": _of(answer.Fixes),
    "fixes": _of(answer.Fix),
    "drift": _of(hit.Drift),
    "price": _of(hit.Price),
    "match": _of(hit.Match),
    "explain": _of(hit.Explanation),
    "phrasings": _of(hit.ToldBy),
    "cache": _of(hit.CacheUse),
    "lineage": _of(hit.Lineage),
    "index": _of(answer.IndexState),
    "forked_session": _of(results.Forked),
    "failed fork": _of(results.NotForked),
    "fork_price": _of(results.ForkPrice),
    "started_worker": _of(results.StartedWorker),
    "spawn and spawn_workers": _of(results.Spawned),
    "failed_worker": _of(results.NotSpawned),
    "index_not_available": _of(answer.Unsearched, unsaid="hint forked_session resolved next"),
    "list and list_sessions": _of(answer.Recents, rare="notice"),
    "sessions": _of(answer.RecentSession),
    "first_answer": _of(log_tail.TokenUse),
    "show and read_session": _of(conversation.Conversation, conversation.Exported),
    "messages": _of(conversation.Message),
    "made commits": _of(answer.CommitsMade),
    "made commit": _of(answer.MadeCommit),
    "export": _of(export.SessionFile),
    "active and list_workers": _of(worker_tools.Workers, rare="notice"),
    "workers": _of(worker_results.WorkerState),
    "read and read_worker": _of(worker_results.WorkerRead, but=worker_results.WorkerState),
    "message and message_worker": _of(worker_results.WorkerMessaged, but=worker_results.WorkerState),
    "wait and wait_workers": _of(worker_results.WorkersWaited),
    "waited": _of(worker_results.WorkerWaited, but=worker_results.WorkerState),
    "close, stop and close_workers": _of(worker_tools.WorkersClosed),
    "closed": _of(worker_results.WorkerClosed),
    "branch and branch_session": _of(results.Branched),
    "lineage and session_lineage": _of(results.Family),
    "relatives": _of(results.Relative),
    "compare and compare_workers": _of(worker_tools.Comparison),
    "compared": _of(worker_results.Compared, rare="diff"),
    "project": _of(project_places.AboutProject),
    "sync": _of(sync_run.Synced),
    "moved": _of(sync_run.MovedSession),
    "waiting": _of(sync_run.PendingSessions),
    "not moved": _of(sync_run.FailedMove),
    "sync setup": _of(SyncedRepositories),
    "places": _of(project_places.ProjectPlace),
    "worktrees": _of(worktree_cleanup.WorkersTrees),
    "trees": _of(worktree_cleanup.WorkersTree),
    "index status and index_status": _of(index_status.IndexStatus),
    "last_run": _of(LastRun),
    "broken_logs": _of(index_refresh.BrokenLog),
    "index run": _of(index_refresh.IndexRunReport),
    "agents": _of(agents.AgentsAtAGlance),
    "agent": _of(agents.AgentAtAGlance),
    "forget": _of(session_removal.Removal),
    "setup": _of(setting_up.SetUp),
    "steps": _of(setting_up.StepTold, unsaid="notes error hint"),
    "tried": _of(setting_up.Trial),
    "setup --remove": _of(setting_up.TakenOut),
    "undone": _of(setting_up.StepUndone),
    "setup hooks": _of(setting_up.HooksSet),
    "settings": _of(setting_up.HooksChanged),
    "status": _of(status.Overview),
    "doctor": _of(doctor.Checked),
    "checks": _of(doctor.Check),
    "service status": _of(ServiceInstallation),
    "service rotate": _of(Rotated),
}
#: Under which heading a kind of value is described.
_PLACES = {table.kinds[0]: heading for heading, table in TABLES.items()}


def made(text: str) -> str:
    """The text with its lists of keys as the values are."""
    common = dict(_ROW.findall(_part(text, _COMMON)))
    return "".join(_section(one, common) for one in re.split(r"^(?=##+ )", text, flags=re.MULTILINE))


def _part(text: str, heading: str) -> str:
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def _section(text: str, common: Mapping[str, str]) -> str:
    heading = text.splitlines()[0].lstrip("# ")
    listed = re.search(
        rf"(?:^\* (?:`\w+`\??[^:,\n]*(?::|$)|{re.escape(_ALSO)})[^\n]*\n(?:^\* [^\n]*\n)*)", text, re.MULTILINE
    )
    if heading not in TABLES or listed is None:
        return text
    rows = "\n".join(_rows(TABLES[heading], listed[0].splitlines(), common))
    return f"{text[: listed.start()]}{rows}\n{text[listed.end() :]}"


def _rows(table: Table, before: Sequence[str], common: Mapping[str, str]) -> Iterator[str]:
    """Yield the value's own keys in their order, the common ones in one line, then what was written by hand besides."""
    meanings = {}
    for line in before:
        if row := re.match(r"\* `(\w+)`\??[^:,]*(?:: (.*))?$", line):
            meanings[row[1]] = row[2]
    folded = []
    keys = list(_keys(table))
    for name, mark, kind in keys:
        meaning = meanings.get(name)
        if meaning is None and common.get(name) == kind.removesuffix(_NULL):
            folded.append(f"`{name}`{mark}{_NULL if kind.endswith(_NULL) else ''}")
        else:
            yield f"* `{name}`{mark} {kind}" + (f": {meaning}" if meaning else "")
    if folded:
        yield f"{_ALSO} {', '.join(folded)}"
    own = {name for name, _, _ in keys}
    for line in before:
        row = re.match(r"\* `(\w+)`\??[^:,]*(?::|$)", line)
        if not line.startswith(_ALSO) and (row is None or row[1] not in own):
            yield line


def _keys(table: Table) -> Iterator[tuple[str, str, str]]:
    """The names, a question mark where a key may be absent, and what stands there."""
    found = [{name: (may, of) for name, may, of in _fields(kind)} for kind in table.kinds]
    elsewhere = {name for name, _, _ in _fields(table.but)} if table.but else set()
    for name in dict.fromkeys(name for one in found for name in one):
        if name in elsewhere or name in table.unsaid:
            continue
        said = [one[name] for one in found if name in one]
        may = name in table.rare or len(said) < len(found) or any(may for may, _ in said)
        yield name, "?" if may else "", _said(said[0][1])


def _fields(kind: type[Value]) -> Iterator[tuple[str, bool, Any]]:
    hints = get_type_hints(kind)
    for one in fields(kind):
        if SPREAD in one.metadata:
            yield from ((name, True, of) for name, of in one.metadata[SPREAD].items())
            continue
        may, of = RARE in one.metadata, hints[one.name]
        if may and one.default is None:  # then the key is not there
            of = Union[tuple(part for part in get_args(of) if part is not type(None))]  # noqa: UP007
        yield one.name, may, of


def _said(kind: Any) -> str:
    """A type in words, with the place where it is described."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal or (isinstance(kind, type) and issubclass(kind, str)):
        return "string"
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_said, parts)))
    if isinstance(kind, type) and issubclass(kind, Value):
        return f"[{_PLACES[kind]}](#{_anchor(_PLACES[kind])})" if kind in _PLACES else "object"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "object"
    if isinstance(origin, type) and issubclass(origin, (tuple, list)):
        return "list" if get_origin(parts[0]) is tuple else f"list of {_said(parts[0])}"
    return _NAMES.get(getattr(kind, "__supertype__", kind), "object")


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")


if __name__ == "__main__":
    DOCS.write_text(made(DOCS.read_text("utf-8")), "utf-8")
