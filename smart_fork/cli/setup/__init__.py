"""The command ``setup``, which connects smart-fork to the installed agents.

It plans all steps, asks the person once, does them, and tries the registered MCP servers. ``--remove`` undoes the
steps. ``setup hooks`` is here, too.
"""

from __future__ import annotations

import os
import shlex
import sys
import textwrap
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from indexer import default_embedder
from indexer.embedder import ModelUnavailableError
from indexer.locks import IndexBusyError
from indexer.refresh import complete
from indexer.safe_files import index_db, private_dir, state_home
from indexer.store.schema import VectorsUnavailableError
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.cli.command import CommandApp
from smart_fork.cli.options import YesOption, with_options
from smart_fork.cli.output import (
    at_home,
    out,
    plain,
    print_json,
    printed_as_json,
    progress_bar,
    say,
    say_notes,
    wants_json,
    working,
)
from smart_fork.cli.service.after_indexing import renewed
from smart_fork.cli.setup import agent_hooks, log_copies
from smart_fork.cli.setup.installed_parts import PARTS, end_running, installed_by_hand, lines_of, undo_lines, undone
from smart_fork.cli.setup.ledger import Ledger, setup_lock
from smart_fork.cli.setup.plan import SetupOptions, make_plan
from smart_fork.cli.setup.server_trial import try_server
from smart_fork.cli.setup.setup_output import HooksChanged, HooksSet, StepTold, StepUndone, TakenOut, Trial
from smart_fork.display_text import one_of, printable
from smart_fork.errors import SmartForkError, Usage
from smart_fork.finding.index_access import opened
from smart_fork.system.processes import Processes

if TYPE_CHECKING:
    from smart_fork.cli.setup.ledger import What
    from smart_fork.cli.setup.plan import SetupPlan
    from smart_fork.cli.setup.step import Step


_NAMES = one_of((*AGENTS.settable(), AGENTS.BOTH, AGENTS.ALL), "")
AgentOption = Annotated[list[str] | None, typer.Option("--agent", help=f"Agent: {_NAMES}. Repeatable. Default: all.")]
app = CommandApp(help="Connect smart-fork to your agents. --remove undoes it.", invoke_without_command=True)


@app.command("hooks")
def hooks(
    agent: AgentOption = None,
    remove: Annotated[bool, "Remove the hooks."] = False,
    only_print: Annotated[bool, typer.Option("--print", help="Print the changes. Change nothing.")] = False,
) -> None:
    """Install hooks, so that agents report what their workers do."""
    named = agent or []
    agents = [one for one in AGENTS.to_set_up(named) if AGENTS[one].hooks or one in named]
    if only_print:
        print_json({one: agent_hooks.wanted(one) for one in agents})
        return
    done = [_change_hooks(one, remove=remove, wanted=one in named) for one in agents]
    if not printed_as_json(HooksSet(not any(one.error for one in done), tuple(done))):
        _print_changes(done)
    if any(one.error for one in done):
        raise typer.Exit(1)


def _change_hooks(agent: AgentName, *, remove: bool, wanted: bool) -> HooksChanged:
    """Install or remove the hooks of one agent. Return the change, or the error.

    An agent that has never run here is skipped, unless it is `wanted`: named on the command line.
    """
    path = agent_hooks.settings_file(agent)
    told = HooksChanged(agent=agent, path=str(path))
    registration = AGENTS[agent].registration
    folder = registration.home() if registration else path.parent
    if not wanted and not folder.is_dir():
        return replace(told, notes=(f"{agent} has never run here: there is no {folder}",))
    try:
        return agent_hooks.remove(agent) if remove else agent_hooks.install(agent)
    except SmartForkError as error:
        return replace(told, error=error.message, hint=error.hint)


def _print_changes(done: list[HooksChanged]) -> None:
    for one in done:
        if one.error:
            say(f"error: {one.error}")
            say(f"  {one.hint}")
            continue
        if one.notes and not (one.installed or one.changed):  # such as an agent that has never run here
            out.print(*map(plain, one.notes), sep="\n")
            continue
        what = "hooks are installed in" if one.installed else "no smart-fork hooks in"
        out.print(f"{one.agent}: {what} {one.path}")
        say_notes(one.notes)
    if not any(one.changed or one.error for one in done):
        say("Nothing changed.")


_VERBS = {"new": "add", "changed": "update", "there": "ready", "left": "skip"}
#: Where a person has to scroll, or lines are broken in words, a plan is not read.
_WIDTH, _BELOW = 80, "  "
_PACKAGES = ("indexer", "smart_fork")


@app.callback()
@with_options
def setup(
    *,
    ctx: typer.Context,
    agent: AgentOption = None,
    yes: YesOption = False,
    dry_run: Annotated[bool, "Show the plan. Change nothing."] = False,
    remove: Annotated[bool, "Undo the setup."] = False,
    options: SetupOptions,
) -> None:
    """Connect smart-fork to your agents: server, skill, hooks, first index, service."""
    if ctx.invoked_subcommand is not None:
        return
    if options.recall and not options.hooks:
        raise Usage("Recall needs the hooks", "Drop --no-hooks, or --recall.")
    options = replace(options, agents=AGENTS.to_set_up(agent or ()))
    parts: Mapping[What, bool | None] = {
        "recall": options.recall, "reading": options.reading, "keep": options.keep,
    }  # fmt: skip
    off = tuple(what for what, said in parts.items() if said is False)
    if off and any(parts.values()):
        raise Usage("These options add and remove in one run", "Run one after the other.")
    with nullcontext() if dry_run else setup_lock():
        asks = not (yes or wants_json() or dry_run) and sys.stdin.isatty()
        if remove or off:
            _undo(Ledger(), options, () if remove else off, dry_run=dry_run, asks=asks)
        else:
            _set_up(Ledger(), options, yes=yes, asks=asks, dry_run=dry_run)


def _set_up(ledger: Ledger, options: SetupOptions, *, yes: bool, asks: bool, dry_run: bool) -> None:
    offers = asks and not options.keep and log_copies.offered(options.agents)
    plan = make_plan(replace(options, keep=True) if offers else options, ledger)
    if not wants_json():
        _print_plan(plan)
    if dry_run:
        printed_as_json(plan.told())
        return
    if not (plan.is_done or yes):
        if not asks:
            printed_as_json(plan.told())
            raise Usage("Nothing was changed: no terminal to confirm in", "Do it with `smart-fork setup --yes`.")
        if not (answer := _confirmed(offers=offers)):
            say("Nothing was changed.")
            raise typer.Exit(1)
        plan = make_plan(options, ledger) if answer == "w" else plan
    compile_ahead()
    AGENTS.note_login_variables_of_person(os.environ)
    done = [_do_step(step, plan, ledger) for step in plan.steps if step.is_open]
    failed = [one for one in done if one.error]
    tried = _try_all(plan, ask=options.index)
    ok = not failed and all(trial.ok for trial in tried)
    if wants_json():
        told = replace(plan.told(), changed=bool(done), ok=ok, done=tuple(done), tried=tuple(tried))
        print_json(told.as_json())
    else:
        _print_trials(tried)
        _print_end(plan, next((one.asked for one in tried if one.asked), ""), ok=ok)
    if not ok:
        raise typer.Exit(1)


def _confirmed(*, offers: bool) -> str:
    """Ask the person to confirm the plan. Return "y" for all steps, "w" for all but copies of logs, empty for no.

    "w" is possible only if the plan `offers` to copy logs.
    """
    if not offers:
        return "y" if typer.confirm("\nGo ahead?", default=True) else ""
    answer = ""
    while answer not in ("y", "w", "n"):
        question = "\nGo ahead? y: all of it, w: without the copies of logs, n: nothing"
        answer = str(typer.prompt(question, default="y")).lower()
    return answer.replace("n", "")


def compile_ahead() -> None:
    """Compile smart-fork's modules to bytecode, which some installers omit, so that the first start is fast."""
    import compileall

    for name in _PACKAGES:
        spec = find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            compileall.compile_dir(folder, quiet=2)


def _do_step(step: Step, plan: SetupPlan, ledger: Ledger) -> StepTold:
    """Do one step of the plan, and print its notes or its error. Return the step with these, for the JSON answer."""
    told = step.told()
    try:
        notes = first_index(plan) if step.what == "index" else step.do(ledger)
    except SmartForkError as error:
        if not wants_json():
            say(f"failed: {_name_and_file(step)}")
            _say_below(error.message)
            _say_below(error.hint)
        return replace(told, error=error.message, hint=error.hint)
    for note in [] if wants_json() else notes:
        say_in_lines(note)
    return replace(told, notes=tuple(notes))


def _try_all(plan: SetupPlan, *, ask: bool) -> list[Trial]:
    """Try each agent's registered MCP server, in parallel: list its tools, and with `ask` search for a session."""
    foreign = {step.agent for step in plan.steps if step.what == "server" and step.state == "left"}
    ways = [AGENTS.registration_of(one.agent) for one in plan.found if one.agent not in foreign]
    with working("trying the connections", quiet=wants_json()), ThreadPoolExecutor() as threads:
        return list(threads.map(lambda way: try_server(way, ask=ask), ways))


def _print_trials(tried: list[Trial]) -> None:
    for one in tried:
        if one.error:
            say(f"failed: connection of {AGENTS.title_of(one.agent)}")
            _say_below(one.error)
    told = {one: f"answered in {one.answer_seconds:.1f} s" if one.asked else f"{one.tools} tools" for one in tried}
    if fine := [f"{AGENTS.title_of(one.agent)} ({told[one]})" for one in tried if not one.error]:
        say_in_lines(f"Connected: {', '.join(fine)}")


def _print_plan(plan: SetupPlan) -> None:
    for found in plan.found:
        _print_steps(AGENTS.title_of(found.agent), [step for step in plan.steps if step.agent == found.agent])
    _print_steps("This machine", [step for step in plan.steps if not step.agent])
    if plan.absent:
        say_in_lines(f"Run this again if you install {AGENTS.titles(plan.absent, 'or')}.")
    if plan.is_done:
        out.print("Everything is set up already; nothing to change.")
    else:
        out.print("Nothing else in these files changes. `smart-fork setup --remove` undoes it all.")


def _print_steps(title: str, steps: list[Step]) -> None:
    """Print the planned `steps` of an agent, grouped by what will be done, such as "add"."""
    head = f"{title}: "
    for (state, _), some in groupby(steps, key=lambda step: (step.state, step.name * bool(step.why))):
        said = ", ".join(f"{_name_and_file(step)}{f': {step.why}' * bool(step.why)}" for step in some)
        for number, line in enumerate(_in_lines(f"{head}{_VERBS[state]} {said}", "" if head else _BELOW)):
            out.print(plain(line, "bold" if head and not number else ""))
        head = ""


def _name_and_file(step: Step) -> str:
    return f"{step.name} {at_home(step.where)}".strip()


def _in_lines(text: str, indent: str = "") -> list[str]:
    """Return `text` in lines of at most `_WIDTH` characters. Paths and commands are not broken."""
    return textwrap.TextWrapper(_WIDTH, indent, _BELOW, break_long_words=False, break_on_hyphens=False).wrap(text)


def say_in_lines(text: str) -> None:
    """Print `text` on stderr in lines of at most `_WIDTH` characters."""
    for line in _in_lines(text):
        say(line)


def _print_end(plan: SetupPlan, title: str, *, ok: bool) -> None:
    """Print the setup's last lines: a search for `title`, a session's title, or the next step after a failure."""
    if not ok:
        say("Not everything works yet: `smart-fork doctor` says what to do. Then run this again.")
        return
    example = _short(" ".join(printable(title).split()), 48) or "add retry to the uploader"
    found = AGENTS.titles((found.agent for found in plan.found), "or")
    out.print(f"Ready. Try: smart-fork find {shlex.quote(example)}")
    say_in_lines(f'Or ask {found} in a new session: "Which session knows about …?"')


def _undo(ledger: Ledger, options: SetupOptions, what: tuple[What, ...], *, dry_run: bool, asks: bool) -> None:
    lines = lines_of(ledger, options.agents, what)
    if lines and asks and not what:
        _print_undone([undone(line) for line in lines], [], dry_run=True, whole=True)
        if not typer.confirm("\nRemove all of it?", default=True):
            say("Nothing was changed.")
            raise typer.Exit(1)
    steps = [undone(line) for line in lines] if dry_run else undo_lines(ledger, lines, Processes())
    left = list(installed_by_hand(options.agents)) if not (dry_run or what) else []
    ok = not any(one.error for one in steps)
    changed = bool(steps) and not dry_run
    everywhere = changed and not what and len(options.agents) == len(AGENTS.registrations())
    ended = end_running(Processes()) if everywhere else []
    told = TakenOut(ok=ok, changed=changed, steps=tuple(steps), ended=tuple(ended), left=tuple(left))
    if not printed_as_json(told):
        _print_undone(steps, [*(f"Ended: {one}" for one in ended), *left], dry_run=dry_run, whole=not what)
    if not ok:
        raise typer.Exit(1)


def _print_undone(steps: list[StepUndone], left: list[str], *, dry_run: bool, whole: bool) -> None:
    for one in steps:
        done = "off" if one.step == "keep" else "removed" if one.removed else "stays"
        verb = "failed" if one.error else "remove" if dry_run else done
        out.print(f"  {verb:<8}{PARTS[one.step].NAME:<24}  {at_home(one.where)}")
        for note in (one.error, one.hint, *one.notes):
            if note:
                _say_below(note)
    for note in left:
        say(note)
    if not steps:
        out.print(f"Nothing {'' if whole else 'of it '}was set up here; nothing was changed.")
    elif whole and not dry_run and index_db().exists():
        out.print(f"The index stays in {at_home(str(state_home()))}: delete that folder to remove it.")


def _say_below(message: str) -> None:
    """Print `message` below the line of its step, indented, with its own line breaks."""
    for line in message.splitlines():
        for part in _in_lines(line, _BELOW):
            say(part)


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


#: No waiting for another process that is indexing. So few passages are embedded in a moment.
_PATIENCE, _FEW = 0.0, 128


def first_index(plan: SetupPlan) -> list[str]:
    """Index the words of all sessions, and embed missing passages: a few now, many in the background. Return notes.

    Raises:
        SmartForkError: the index or the embedding model is not available.
    """
    try:
        sessions, more = _indexed()
    except KeyboardInterrupt:
        return [_index_the_rest(plan)]
    except IndexBusyError:
        return ["Another process is indexing in the background."]
    except (ModelUnavailableError, VectorsUnavailableError) as error:
        step = "`smart-fork doctor` checks the model and the vector store."
        raise SmartForkError(f"Words are indexed, embeddings are not: {error}", step) from error
    many = f"{sessions:,} session{'s' * (sessions != 1)}"
    return [f"Indexed: words of {many}. {_index_the_rest(plan)}" if more else f"Indexed: {many}."]


def _indexed() -> tuple[int, bool]:
    """Index the words of all sessions; embed their passages, too, if few lack an embedding.

    Return the number of sessions, and True if some passages still lack an embedding.
    """
    with opened() as store, progress_bar() as progress, renewed(store, _PATIENCE, progress, vectors=True):
        complete(store, READERS, None, patience=_PATIENCE, progress=progress)
        read = store.counts()
        if read.chunks - read.embedded <= _FEW:
            complete(store, READERS, default_embedder.configured_embedder(), patience=_PATIENCE, progress=progress)
        counts = store.counts()
    return counts.sessions, counts.embedded < counts.chunks


def _index_the_rest(plan: SetupPlan) -> str:
    """Have the remaining sessions indexed by the service, or else by a new process. Return a note for the person."""
    if not any(step.what == "service" and step.state != "left" for step in plan.steps):
        argv, log = [plan.program, "index", "run", "--if-idle"], private_dir(state_home() / "logs") / "index.log"
        Processes().start(argv, cwd=state_home(), env=os.environ, log=log)
    return "Rest in the background: `smart-fork index status`"
