"""The commands ``new``, ``resume``, ``continue`` and ``spawn``, which start agents."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexer.errors import joined
from smart_fork.agents import AGENTS
from smart_fork.agents.request_fields import Options, Subject, takes
from smart_fork.cli.options import FIRST, NOTHING_SAID, AnyStartedOption, CwdOption, GivenOption, StartedOption
from smart_fork.cli.output import out, printed_as_json, say, say_notes, starting
from smart_fork.errors import ForkRefused, NotFound, SmartForkError, Usage
from smart_fork.forking.results import NotSpawned
from smart_fork.forking.resume import AgentStart
from smart_fork.forking.session_use import AlreadyRuns
from smart_fork.forking.spawn import spawn as start_all
from smart_fork.forking.start import start
from smart_fork.system.processes import Machine, Processes
from smart_fork.workers.messages import message_worker
from smart_fork.workers.terminals import choose_place

if TYPE_CHECKING:
    from smart_fork.forking.results import StartedWorker
    from smart_fork.forking.worker_spec import WorkerSpec
    from smart_fork.workers.results import WorkerMessaged


_NO_SUBJECT = Subject()
PromptArgument = Annotated[list[str] | None, typer.Argument(help="Prompt.")]
ProjectOption = Annotated[Path | None, typer.Option("--project", "-p", help="Directory. Default: the current one.")]
#: Fields of a request that have no meaning for a resumed session.
_MADE = ("worktree", "worktree_name", "with_changes", "brief", "unmasked")
ForceOption = Annotated[bool, typer.Option("--force", help="Resume even if the session seems open elsewhere.")]


@takes(
    without=("with_changes", "brief", "unmasked"),
    prompt=PromptArgument,
    order="prompt agent project place worktree worktree_name",
)
def new(agent: StartedOption = FIRST, project: ProjectOption = None, options: Options = NOTHING_SAID) -> None:
    """Start an agent in a new session."""
    _start(AgentStart(options, project or Path.cwd(), caller=_caller()).new(agent))


@takes(without=_MADE, prompt=PromptArgument, order="session prompt agent cwd")
def resume(
    session: Annotated[str, typer.Argument(help="Session or worker id, 8 characters or more.")],
    agent: GivenOption = None,
    cwd: CwdOption = None,
    options: Options = NOTHING_SAID,
    force: ForceOption = False,
) -> None:
    """Resume a session in its own directory. If a worker is in it already, go to that worker."""
    try:
        _start(AgentStart(options, cwd, force, _caller()).resumed(session, agent))
    except AlreadyRuns as there:
        _attach(there, options.prompt)


@takes(without=_MADE, prompt=PromptArgument, order="prompt agent project cwd")
def continue_newest(
    agent: StartedOption = FIRST,
    project: ProjectOption = None,
    cwd: CwdOption = None,
    options: Options = NOTHING_SAID,
    force: ForceOption = False,
) -> None:
    """Resume the newest session of the directory. If a worker is in it already, go to that worker."""
    try:
        _start(AgentStart(options, cwd, force, _caller()).newest(agent, project or Path.cwd()))
    except AlreadyRuns as there:
        _attach(there, options.prompt)


@takes(
    without=("with_changes",),
    agent_type=AnyStartedOption,
    project_path=ProjectOption,
    prompt=Annotated[str | None, typer.Option("--prompt", help="Prompt of one worker.")],
    worktree=Annotated[
        bool | None, typer.Option("--worktree/--no-worktree", help="Run in a new git worktree. Default: if possible.")
    ],
    worktree_name=Annotated[str | None, typer.Option("--worktree-name", help="Name of the worktree.")],
    order="prompt agent_type project_path name fork_from at resume_session_id continue_session fork_session worktree "
    "worktree_name place skip_permissions",
)
def spawn(
    workers: Annotated[str | None, typer.Argument(help="JSON file with a list of workers. - reads stdin.")] = None,
    subject: Subject = _NO_SUBJECT,
    options: Options = NOTHING_SAID,
) -> None:
    """Start one to four workers, each with a prompt. All are checked before the first one starts."""
    given = subject.as_json(options)
    if workers is not None and given:
        raise Usage("Workers from a file cannot have options too", "Put every option in the file.")
    one = [{"project_path": str(Path.cwd()), **given}] if given else []
    asked = one if workers is None else _read(workers)
    with starting(None):
        answer = start_all(asked, caller_session_id=_caller())
    if not printed_as_json(answer):
        for result in answer.workers:
            if isinstance(result, NotSpawned):
                say(f"error: worker {result.index}: {result.message}")
                say(f"  {result.hint}")
            else:
                _print_worker(result)
    if answer.failed:
        raise typer.Exit(1)


def resume_log(log: str, agent: str, told: Mapping[str, Any]) -> None:
    """Start a worker that resumes the session of the log at the path `log`, and print it.

    `told` has further keys for the JSON answer.
    """
    worker = _started(AgentStart(caller=_caller()).of_log(Path(log), agent))
    if not printed_as_json({**told, "worker": worker.as_json()}):
        _print_worker(worker)


def _read(source: str) -> list[Any]:
    """Return the descriptions of workers in the JSON file `source`, or on stdin if it is ``-``.

    The JSON is a list, or an object with a list under ``workers``.
    """
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
        found = json.loads(text, object_pairs_hook=_once)
    except FileNotFoundError as error:
        raise NotFound(f"No such file: {source}", "Give a file with a JSON list of workers, or - for stdin.") from error
    except (OSError, ValueError) as error:
        raise Usage(
            f"The workers cannot be read: {error}", "They are a JSON list; docs/how-to/workers.md shows one."
        ) from error
    if isinstance(found, dict):
        found = found.get("workers")
    if not isinstance(found, list):
        raise Usage("The workers are not a JSON list", "docs/how-to/workers.md shows one.")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a dict. Refuse repeated keys, because only one value could be kept."""
    if repeated := [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]:
        raise ValueError(f"{repeated[0]} is there twice")
    return dict(pairs)


def _caller() -> str | None:
    return AGENTS.caller_session(os.environ)


def _started(spec: WorkerSpec) -> StartedWorker:
    if choose_place(spec.options.place, Machine()).replaces:  # then nothing can be said afterwards
        say_notes(spec.unloaded())
    with starting(spec.options.place):
        return start(spec)


def _start(spec: WorkerSpec) -> None:
    worker = _started(spec)
    if not printed_as_json(worker.as_json() | {"already_running": False}):
        _print_worker(worker)


def _attach(there: AlreadyRuns, prompt: str | None) -> None:
    """Send `prompt` to the worker `there`, which already runs in the session, and show it in this terminal.

    Without a terminal, print the command that shows the worker.
    """
    worker = there.worker
    told = _deliver(there, prompt) if prompt and prompt.strip() else None
    warnings = told.warnings if told else ()
    known = there.described(warnings).as_json()
    if printed_as_json(known | {"already_running": True, "how": told.how if told else None}):
        return
    say(f"{there.message}.")
    say_notes(warnings)
    if told:
        say(f"Prompt sent: {told.how}.")
    inside = "TMUX" in os.environ  # tmux refuses to be opened in itself
    if worker.place == "tmux" and worker.attach and not inside and sys.stdin.isatty() and sys.stdout.isatty():
        Processes().replace(shlex.split(worker.attach), cwd=Path.cwd(), env=os.environ)
    out.print(worker.attach or worker.id)


def _deliver(there: AlreadyRuns, prompt: str) -> WorkerMessaged:
    """Send `prompt` to the worker `there`, which already runs in the session.

    Raises:
        ForkRefused: the prompt cannot be sent now, and was not sent.
    """
    try:
        return message_worker(there.worker.id, prompt)
    except SmartForkError as error:
        raise ForkRefused(joined(there.message, f"The prompt was not sent: {error.message}"), error.hint) from error


def _print_worker(worker: StartedWorker) -> None:
    say_notes(worker.warnings)
    session = worker.session_id or "(id not known yet)"
    out.print(f"Started {worker.worker_id}, session {session}")
    out.print(f"  {worker.agent_type} in {worker.terminal_id or 'a process'}, directory {worker.cwd}")
    if worker.branch:
        out.print(f"  on branch {worker.branch}")
    if worker.attach:
        out.print(f"  watch it: {worker.attach}")
    if worker.log:
        out.print(f"  its output: {worker.log}")
