"""The page's forms that fork a session, and the preview of a fork."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from smart_fork.agents.request_fields import Options
from smart_fork.errors import Usage, is_empty
from smart_fork.finding import session_lookup
from smart_fork.finding.session_library import Opening
from smart_fork.finding.team_sessions import sessions_here
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import Budget, BudgetOptions, ForkRequest
from smart_fork.forking.results import Forked
from smart_fork.page.changes_since_shown import refuse_changed_session
from smart_fork.page.endpoint_builder import existing_directory
from smart_fork.page.forms import parse_form
from smart_fork.page.renderer import Shown

#: The fields of a form that are options of a fork.
_SAID = ("prompt", "at", "worktree", "place", "budget", "keep", "drop", "brief", "as_agent", "unmasked")
_IS_NUMBER = re.compile("[0-9]{1,6}")
ASKED = ("session", "project", *_SAID, "form", "seen")


def forked(form: Mapping[str, str], *, library: Opening, dry_run: bool = False) -> Forked:
    """Start the fork that a form asks for, or with `dry_run` only plan it.

    If the form sets a budget, `library` selects the exchanges that fit. A shared session is first written to this
    machine, for the form's project.
    """
    session, project = form.get("session", "").strip(), form.get("project", "").strip()
    if is_empty(form.get("prompt", "")):
        raise Usage("The prompt is empty.", "Go back and write it in a sentence.")
    moved = _moved(form).items()
    by_hand = {name: ",".join(str(number) for number, to in moved if to == name) for name in ("keep", "drop")}
    options, budget = parse_form(Options, form, _SAID), parse_form(BudgetOptions, {**form, **by_hand}, _SAID)
    with sessions_here([session], existing_directory(project) if project else None, keep=not dry_run) as (here,):
        if seen := form.get("seen", ""):
            refuse_changed_session(seen, session_lookup.look_into(session_lookup.locate(here.session_id)))
        asked = replace(parse_form(ForkRequest, form, _SAID), session=here.session_id, options=options, dry_run=dry_run)
        return fork_session(replace(asked, budget=budget.wanted() if budget.budget else None), library)


def previewed(form: Mapping[str, str], library: Opening) -> Shown:
    """Return the template values for a preview of the fork that a form asks for: its tokens, and what it keeps.

    `parts` describes the tokens of the whole session. `chosen` is the form's choice as a command-line option, such as
    ``--at 12``. `moved` maps the exchanges that the user keeps or drops by hand to "keep" or "drop".
    """
    form = _in_way(form)
    would = forked(form, library=library, dry_run=True)
    # Each way in words: what it keeps, the option that asks for it, and what is said of it beside.
    ways = tuple((_keeps(way.option), way.option, way.tokens, way.last_use) for way in would.ways)
    given = {name: value for name in ASKED if (value := form.get(name, "").strip())}
    parts = " ".join(filter(None, (one.parts for one in would.ways)))
    choice = {"chosen": _option(given), "given": given, "moved": _moved(form)}
    return {"fork": would, "selection": would.selection, "ways": ways, "parts": parts, **choice}


def _in_way(form: Mapping[str, str]) -> Mapping[str, str]:
    """Return the form with the fields `at` and `budget` set by its pressed button, `way`, such as ``--at 12``."""
    way = form.get("way", "")
    name, _, value = way.removeprefix("--").partition(" ")
    if name == "budget":
        return {**form, "budget": value}
    return {**form, "at": value if name == "at" else "", "budget": ""} if way else form


def _option(given: Mapping[str, str]) -> str:
    """Return the command-line option for the form's choice: ``--at`` or ``--budget``; "" for the whole session."""
    if budget := given.get("budget", ""):
        return f"--budget {Budget.parse_amount(budget)}"
    return f"--at {given['at']}" if given.get("at") else ""


def _keeps(option: str) -> str:
    """Describe the part of a session that a fork with this command-line option keeps."""
    name, _, value = option.removeprefix("--").partition(" ")
    if name == "budget":
        return (
            "Only what answers the prompt" if value == Budget.MATCH else f"What answers, within {int(value):,} tokens"
        )
    if name == "at":
        return "Up to the exchange that answers" if value == Budget.MATCH else f"Up to message {value}"
    return "The whole session"


def _moved(form: Mapping[str, str]) -> dict[int, str]:
    """Return the exchanges that the user moved by hand: for each number, "keep" or "drop"."""
    moved = ((name.removeprefix("exchange-"), to) for name, to in form.items() if name.startswith("exchange-"))
    return {int(number): to for number, to in moved if _IS_NUMBER.fullmatch(number) and to in ("keep", "drop")}
