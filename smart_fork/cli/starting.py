"""``new``, ``resume``, ``continue`` and ``spawn``."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smart_fork.cli.forking import PlaceChoice
from smart_fork.cli.output import out, plain, print_json, say
from smart_fork.cli.progress import starting
from smart_fork.cli.search import JsonOption
from smart_fork.errors import ForkRefused, NotFound, SmartForkError, Usage

if TYPE_CHECKING:
    from smart_fork.forking.admission import AlreadyRuns
    from smart_fork.forking.starting import Wanted

PromptArgument = Annotated[str | None, typer.Argument(help="What it is to do.")]
AdapterOption = Annotated[str, typer.Option("--agent", "--adapter", help="claude or codex.")]
ProjectOption = Annotated[
    Path | None, typer.Option("--project", "-p", help="The directory; the current one by default.")
]
PlaceOption = Annotated[PlaceChoice | None, typer.Option("--in", help="Where it runs; tmux where it is installed.")]
NameOption = Annotated[str | None, typer.Option("--name", help="The worker's name, and its window's.")]
UnaskedOption = Annotated[bool, typer.Option("--skip-permissions", help="It never asks before it acts.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Also where the session seems to be open elsewhere.")]


def new(  # noqa: PLR0917 - typer's way
    prompt: PromptArgument = None,
    agent: AdapterOption = "claude",
    project: ProjectOption = None,
    place: PlaceOption = None,
    worktree: Annotated[bool, typer.Option("--worktree", "-w", help="Run it in a new git worktree.")] = False,
    worktree_name: Annotated[
        str | None, typer.Option("--worktree-name", help="The worktree's name; implies --worktree.")
    ] = None,
    name: NameOption = None,
    skip_permissions: UnaskedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Start an agent in a session of its own."""
    from smart_fork.forking.starting import Wanted, agent_named

    wanted = Wanted(
        "new",
        agent_named(agent),
        prompt=prompt,
        worktree=worktree_name or worktree,
        cwd=project or Path.cwd(),
        **_how(place, name, skip_permissions=skip_permissions),
    )
    _start(wanted, as_json=as_json)


def resume(  # noqa: PLR0917 - typer's way
    session: Annotated[str, typer.Argument(help="A session id or a worker's, or at least 8 characters of it.")],
    prompt: PromptArgument = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", "--adapter", help="claude or codex: give it the id as it is, in this directory."),
    ] = None,
    place: PlaceOption = None,
    name: NameOption = None,
    skip_permissions: UnaskedOption = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Go on in a session, in its own directory. Where a worker is in it already, go there."""
    from smart_fork.forking.admission import AlreadyRuns
    from smart_fork.forking.resuming import session_to_resume
    from smart_fork.forking.starting import Wanted, agent_named

    try:
        source = session_to_resume(session, agent=agent_named(agent) if agent is not None else None, force=force)
        how = _how(place, name, skip_permissions=skip_permissions)
        _start(Wanted("resume", source.agent, source, prompt=prompt, **how), as_json=as_json)
    except AlreadyRuns as there:
        _attach(there, prompt, as_json=as_json)


def continue_newest(  # noqa: PLR0917 - typer's way
    prompt: PromptArgument = None,
    agent: AdapterOption = "claude",
    project: ProjectOption = None,
    place: PlaceOption = None,
    name: NameOption = None,
    skip_permissions: UnaskedOption = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Go on in the newest session of the directory. Where a worker is in it already, go there."""
    from smart_fork.forking.admission import AlreadyRuns
    from smart_fork.forking.resuming import check_free, newest_session
    from smart_fork.forking.starting import Wanted, agent_named, directory
    from smart_fork.places import choose_place
    from smart_fork.processes import SystemProcesses

    how = _how(place, name, skip_permissions=skip_permissions)
    headless = choose_place(how["place"], SystemProcesses(), os.environ).headless
    target = directory(project or Path.cwd())
    caller = how["caller_session_id"]
    try:
        source = newest_session(target, agent_named(agent), automated=headless, apart_from=caller)
        check_free(source, force=force)
        _start(Wanted("continue", source.agent, source, prompt=prompt, **how), as_json=as_json)
    except AlreadyRuns as there:
        _attach(there, prompt, as_json=as_json)


def spawn(  # noqa: PLR0917 - typer's way
    workers: Annotated[
        str | None, typer.Argument(help="A file with a JSON list of workers; - reads it from stdin.")
    ] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", help="One worker by options: what it is to do.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", "--adapter", help="claude or codex.")] = None,
    project: ProjectOption = None,
    name: NameOption = None,
    fork_from: Annotated[str | None, typer.Option("--fork-from", help="The session that it forks.")] = None,
    at: Annotated[int | None, typer.Option("--at", help="With --fork-from: at the message of this number.")] = None,
    resume_id: Annotated[str | None, typer.Option("--resume", help="The session that it goes on with.")] = None,
    newest: Annotated[bool, typer.Option("--continue", help="It goes on with the directory's newest session.")] = False,
    forks: Annotated[bool, typer.Option("--fork", help="It forks what --resume or --continue means.")] = False,
    worktree: Annotated[
        bool | None, typer.Option("--worktree/--no-worktree", help="A git worktree of its own; if possible by default.")
    ] = None,
    worktree_name: Annotated[str | None, typer.Option("--worktree-name", help="That worktree's name.")] = None,
    place: PlaceOption = None,
    skip_permissions: UnaskedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Start 1 to 4 workers, each with a prompt; all are checked before the first is started."""
    from smart_fork.forking import spawning

    options = {
        "prompt": prompt, "agent_type": agent, "name": name, "fork_from": fork_from, "at": at,
        "resume_session_id": resume_id, "continue_session": newest or None, "fork_session": forks or None,
        "worktree": worktree_name or worktree, "run_in": place.value if place else None,
        "skip_permissions": skip_permissions or None,
    }  # fmt: skip
    given = {key: value for key, value in options.items() if value is not None}
    if workers is not None and (given or project):
        raise Usage("Workers from a file cannot have options too", "Say everything in the file.")
    one = [{"project_path": str(project or Path.cwd()), **given}] if given or project else []
    asked = one if workers is None else _read(workers)
    with starting(None, quiet=as_json):
        answer = spawning.summary(spawning.spawn(asked, caller_session_id=_caller()))
    if as_json:
        print_json(answer)
    else:
        for result in answer["workers"]:
            _print_result(result)
    if answer["failed"]:
        raise typer.Exit(1)


def _read(source: str) -> list[Any]:
    """The workers in a file, as a list or as ``{"workers": […]}``."""
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
        found = json.loads(text)
    except FileNotFoundError as error:
        raise NotFound(f"No such file: {source}", "Give a file with a JSON list of workers, or - for stdin.") from error
    except (OSError, ValueError) as error:
        raise Usage(
            f"The workers cannot be read: {error}", "They are a JSON list; docs/workers.md shows one."
        ) from error
    if isinstance(found, dict):
        found = found.get("workers")
    if not isinstance(found, list):
        raise Usage("The workers are not a JSON list", "docs/workers.md shows one.")
    return found


def _caller() -> str | None:
    return os.environ.get("CLAUDE_CODE_SESSION_ID")


def _how(place: PlaceChoice | None, name: str | None, *, skip_permissions: bool) -> dict[str, Any]:
    return {
        "place": place.value if place else None,
        "name": name,
        "skip_permissions": skip_permissions,
        "caller_session_id": _caller(),
    }


def _start(wanted: Wanted, *, as_json: bool) -> None:
    from smart_fork.forking.starting import start

    with starting(wanted.place, quiet=as_json):
        worker = start(wanted).as_json()
    if as_json:
        print_json(worker | {"already_running": False})
    else:
        _print_worker(worker)


def _attach(there: AlreadyRuns, prompt: str | None, *, as_json: bool) -> None:
    """Say the prompt there, and go to where the session is open; where nobody sits at a terminal, say how."""
    from smart_fork.forking.report import describe

    worker = there.worker
    told = _deliver(there, prompt) if prompt and prompt.strip() else {}
    if as_json:
        known = describe(worker, shlex.join(worker.command), told.get("warnings", []), confirmed=True).as_json()
        print_json(known | {"already_running": True, "how": told.get("how")})
        return
    say(f"{there.message}.")
    for warning in told.get("warnings", ()):
        say(f"note: {warning}")
    if told:
        say(f"It was told the prompt: {told['how']}.")
    inside = "TMUX" in os.environ  # tmux refuses to be opened in itself
    if worker.place == "tmux" and worker.attach and not inside and sys.stdin.isatty() and sys.stdout.isatty():
        from smart_fork.processes import SystemProcesses

        SystemProcesses().replace(shlex.split(worker.attach), cwd=Path.cwd(), env=os.environ)
    out.print(plain(worker.attach or worker.id))


def _deliver(there: AlreadyRuns, prompt: str) -> dict[str, Any]:
    """Say it to the worker that is in the session already.

    Raises:
        SmartForkError: it cannot be told now, and was not.
    """
    from smart_fork.workers.messaging import message_worker

    try:
        return message_worker(there.worker.id, prompt)
    except SmartForkError as error:
        raise ForkRefused(f"{there.message}, and was not told the prompt: {error.message}", error.hint) from error


def _print_result(result: dict[str, Any]) -> None:
    if "error" in result:
        say(f"error: worker {result['index']}: {result['message']}")
        say(f"  {result['hint']}")
    else:
        _print_worker(result)


def _print_worker(worker: dict[str, Any]) -> None:
    for warning in worker["warnings"]:
        say(f"note: {warning}")
    session = worker["session_id"] or "(id not known yet)"
    out.print(plain(f"Started {worker['worker_id']}, session {session}"))
    out.print(plain(f"  {worker['agent_type']} in {worker['terminal_id'] or 'a process'}, directory {worker['cwd']}"))
    if worker["branch"]:
        out.print(plain(f"  on branch {worker['branch']}"))
    if worker["attach"]:
        out.print(plain(f"  watch it: {worker['attach']}"))
    if worker["log"]:
        out.print(plain(f"  its output: {worker['log']}"))
