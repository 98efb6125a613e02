"""Forks that forms of the page ask for: started, or what they would load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from indexer.shapes import dataclass
from smart_fork import sessions
from smart_fork.agents.options import Options
from smart_fork.budget.selection import Selection
from smart_fork.budget.wanted import MATCH, Wanted, amount
from smart_fork.errors import Usage
from smart_fork.forking.launch import fork_session
from smart_fork.forking.match import fork_at_match
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.spending import Spending
from smart_fork.forking.started import Forked
from smart_fork.forking.ways import parts_in_words, use_in_words
from smart_fork.page.inherited import Inherited, inherited
from smart_fork.page.renderer import PageValues
from smart_fork.page.scope import folder
from smart_fork.page.sent_forms import SentForm
from smart_fork.page.session import number
from smart_fork.page.since import check_still
from smart_fork.registry.workers import Registry
from smart_fork.retrieval.upkeep import Engine
from smart_fork.team.workers import on_this_machine
from smart_fork.text.given import is_empty
from smart_fork.workers.observation import WorkerWatch

#: What a form asks of a fork.
_SAID = ("prompt", "at", "worktree", "place", "budget", "brief", "agent", "unmasked")
ASKED = ("session", "project", *_SAID, "form", "seen")


@dataclass(frozen=True, slots=True)
class ForkPage(PageValues):
    """A fork that was started, whether it still runs, and what it began with, as far as its log has that.

    `twin` is the form that had asked for the same before, where one had.
    """

    fork: Forked
    state: str
    inherited: Inherited | None
    twin: SentForm[Any] | None


@dataclass(frozen=True, slots=True)
class PreviewPage(PageValues):
    """What a fork would load, and have within its budget, and what it is asked for.

    `parts` says what all of the session loads, `chosen` is the option of the way that is asked for, and `moved` are
    exchanges that a person has moved.
    """

    fork: Forked
    selection: Selection | None
    ways: tuple[ShownWay, ...]
    parts: str
    chosen: str
    given: Mapping[str, str]
    moved: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class ShownWay:
    """A way to fork a session in words: what it keeps, the option that asks for it, and whether it is cached."""

    keeps: str
    option: str
    tokens: int
    cache: str


def forked(form: Mapping[str, str], *, engine: Callable[[], Engine]) -> Forked:
    """Start the fork that a form asks for; within a budget, `engine` says what answers.

    Raises:
        SmartForkError: nothing was started.
    """
    return _fork(form, engine)


def previewed(form: Mapping[str, str], engine: Callable[[], Engine]) -> PreviewPage:
    """What a fork that a form asks for would load, and have within its budget: as a dry run says it.

    Raises:
        SmartForkError: it could not be started either.
    """
    form = _in_way(form)
    would = _fork(form, engine, dry_run=True)
    ways = tuple(ShownWay(_keeps(way.option), way.option, way.tokens, use_in_words(way)) for way in would.ways)
    given = {name: value for name in ASKED if (value := form.get(name, "").strip())}
    moved = {number: where for where in ("keep", "drop") for number in _moved(form, where)}
    parts = " ".join(parts_in_words(would.ways))
    return PreviewPage(would, would.selection, ways, parts, _option(given), given, moved)


def _in_way(form: Mapping[str, str]) -> Mapping[str, str]:
    """What a form asks for whose button is a way: it says where the fork leaves, or how much of that is kept."""
    way = form.get("way", "")
    name, _, value = way.removeprefix("--").partition(" ")
    if name == "budget":
        return {**form, "budget": value}
    return {**form, "at": value if name == "at" else "", "budget": ""} if way else form


def _option(given: Mapping[str, str]) -> str:
    """The option of the way that is asked for, as `Way` has it."""
    if budget := given.get("budget", ""):
        return f"--budget {amount(budget)}"
    return f"--at {given['at']}" if given.get("at") else ""


def _keeps(option: str) -> str:
    """What a fork keeps in that way."""
    name, _, value = option.removeprefix("--").partition(" ")
    if name == "budget":
        return "Only what answers the prompt" if value == MATCH else f"What answers, within {int(value):,} tokens"
    if name == "at":
        return "Up to the exchange that answers" if value == MATCH else f"Up to message {value}"
    return "The whole session"


def _fork(form: Mapping[str, str], engine: Callable[[], Engine], *, dry_run: bool = False) -> Forked:
    """A session of the team is written here first, for the project that was asked about."""
    session, project = form.get("session", "").strip(), form.get("project", "").strip()
    if is_empty(form.get("prompt", "")):
        raise Usage("The prompt is empty.", "Go back and write it in a sentence.")
    with on_this_machine([session], directory=folder(project) if project else None, keep=not dry_run) as (here,):
        return _fork_here(here, form, engine, dry_run=dry_run)


def _fork_here(session: str, form: Mapping[str, str], engine: Callable[[], Engine], *, dry_run: bool) -> Forked:

    prompt, at, worktree, place, budget, brief, agent, plain = (form.get(name, "").strip() for name in _SAID)
    if seen := form.get("seen", ""):
        check_still(seen, sessions.look_into(sessions.locate(session)))
    own, told = worktree == "yes" or None, brief == "yes"
    options = Options(prompt, own, place=place or None, brief=told, unmasked=plain == "yes")
    asked = ForkRequest(session, options, as_agent=agent or None, dry_run=dry_run)
    if at != MATCH:
        asked = replace(asked, at=number(at))
    if budget:
        wanted = Wanted(amount(budget), _moved(form, "keep"), _moved(form, "drop"))
        asked = replace(asked, budget=Spending(wanted, prompt, (), engine()))
    elif dry_run:
        asked = replace(asked, preview=Spending(Wanted(MATCH), prompt, (), engine()))
    return fork_at_match(asked, prompt, engine()) if at == MATCH else fork_session(asked)


def _moved(form: Mapping[str, str], where: str) -> frozenset[int]:
    """The numbers of the exchanges that a person has moved there."""
    moved = (name.removeprefix("exchange-") for name, value in form.items() if value == where)
    return frozenset(int(number) for number in moved if number.isascii() and number.isdigit() and len(number) < 7)


def outcome(fork: Forked, twin: SentForm[Any] | None) -> ForkPage:
    """A fork that was started, and whether it still runs: the page may be looked at long afterwards."""
    with Registry() as registry:
        watch, worker = WorkerWatch(), registry.get(fork.worker_id)
        seen = watch.look(worker, registry)
    return ForkPage(fork, seen.state, inherited(worker, watch), twin)
