"""Preconditions of starting a worker (an agent that smart-fork runs): worker limit, login, permissions, directories.

An agent passes only a part of the user's environment on to its MCP servers, and a background service has almost none.
So smart-fork notes the names of the variables that a person set for the agent. It reads their values from the login
shell.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from indexer.environment import Setting
from indexer.lazy_compilation import dataclass
from indexer.project import resolve
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.fork_plan import ForkPlan
from smart_fork.agents.programs import Program
from smart_fork.agents.start_command import LaunchRequest
from smart_fork.display_text import plain_name, quoted
from smart_fork.errors import ForkRefused, NotFound, Usage, advice
from smart_fork.finding.session_place import WorkDirectory
from smart_fork.forking.session_use import AlreadyRuns, occupant
from smart_fork.forking.worker_spec import WorkerSpec
from smart_fork.system import call_context
from smart_fork.system.processes import Machine
from smart_fork.workers.liveness import is_alive
from smart_fork.workers.registry import WorkerRecord
from smart_fork.workers.worker_place import WorkerPlace


class WorkerLimit(ForkRefused):
    """Error: the setting for the number of running workers (agents that smart-fork started) allows no more."""

    code = "worker_limit"
    http_status = 429


def limit(env: Mapping[str, str]) -> int:
    """Return the number of workers that may run at the same time; raise `Usage` if the setting is not a number."""
    if fault := Setting.MAX_WORKERS.fault(env):
        raise Usage(fault)
    return Setting.MAX_WORKERS.number(env)


def admission(request: LaunchRequest, machine: Machine, *, counts: bool) -> Callable[[Sequence[WorkerRecord]], None]:
    """Return a check that refuses a new worker if one of the given running workers has its session or name.

    With `counts`, it also refuses if too many workers run. A worker in a person's own terminal does not count.
    """
    most = limit(machine.env)

    def admit(running: Sequence[WorkerRecord]) -> None:
        if request.form == "resume" and (worker := occupant(request.session_id, running, machine)):
            raise AlreadyRuns(worker, request.session_id)
        namesakes = (worker for worker in running if worker.name == request.name)
        if other := next((worker for worker in namesakes if is_alive(worker, machine)), None):
            hint = advice(f"Choose another, or end that one: smart-fork close {other.id}", tool="Choose another name.")
            raise ForkRefused(f"{quoted(other.name)} is the name of {other.id}, which runs", hint)
        others = [worker for worker in running if worker.place != "here"]
        if counts and len(others) >= most and sum(is_alive(worker, machine) for worker in others) >= most:
            raise WorkerLimit(
                f"{most} workers are running, and {Setting.MAX_WORKERS} allows no more",
                advice(
                    "Wait until one ends, or end one. `smart-fork active` lists them.",
                    tool="Wait until one ends (list_workers, wait_workers), or let the user end one.",
                ),
            )

    return admit


class NotLoggedIn(ForkRefused):
    """Error: the agent is not logged in. If it were started, it would only ask for a login."""

    code = "not_logged_in"


@dataclass(frozen=True, slots=True)
class Provisions:
    """Environment variables to add for a worker, and notes about them to show to the user."""

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()

    def environment(self, plan: ForkPlan, env: Mapping[str, str]) -> dict[str, str]:
        """Return the full environment for the plan's program, with a search path that finds it."""
        return plan.environment({**env, **Program.path_for(plan.argv[0], env), **self.variables})


def provisions(agent: AgentName, program: str, place: WorkerPlace, machine: Machine) -> Provisions:
    """Return the variables from the login shell that a worker of `agent` needs in `place` and this process lacks.

    Raises:
        NotLoggedIn: the agent's own check says that it is not logged in.
    """
    if place.replaces:  # a person sits there, whom the agent asks itself
        return Provisions()
    login, env, processes = AGENTS.login_of(agent), machine.env, machine.processes
    wanted = dict.fromkeys((*login.noted(), *login.required()))
    missing = [name for name in wanted if not env.get(name)]
    if not missing and login.is_plain(env):
        return Provisions()
    around = {**place.inherited(machine), **env}
    settled = login.settled()
    missing = [name for name in missing if name not in around and name not in settled]
    # A worker's home is the one that its session was found in: another one would not have it.
    shell = login.shell(env)
    given = shell.values([name for name in missing if name != login.folder], processes)
    missing = [name for name in missing if name not in given]
    found = Program.login_state(login, around | given, program, processes)
    whence = "its settings name" if found.lacks else "your environment had"
    lacks = _lacks(found.lacks or missing, whence, shell.path)
    if found.logged_in is not False or Setting.CHECK_LOGIN.is_off(env):
        return Provisions(
            given, (f"{AGENTS.title_of(agent)} starts with the login that it finds{lacks}",) if missing else ()
        )
    if sys.platform == "darwin" and not found.lacks:  # its keychain may be open where the worker runs
        return Provisions(given, (f"{AGENTS.title_of(agent)} says that it is not logged in here{lacks}",))
    raise NotLoggedIn(
        f"Nothing was started: {AGENTS.title_of(agent)} is not logged in here{lacks}", _step(login.command)
    )


def _lacks(names: Sequence[str], whence: str, shell: str) -> str:
    """Return the end of an error or warning about unset variables `names`; empty without names.

    `whence` says why they are expected. `shell` is the login shell that was asked for them, if any.
    """
    if not names:
        return ""
    one = len(names) == 1
    asked = f", and your login shell ({Path(shell).name}) does not set {'it' if one else 'them'}" if shell else ""
    return f": {_listed(names)}, which {whence}, {'is' if one else 'are'} not set{asked}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _step(command: str) -> str:
    anyway = f"{Setting.CHECK_LOGIN}=false starts it anyway."
    return advice(
        f"Log in with `{command}`, or set it in the profile that your login shell reads. {anyway}",
        tool=f"Tell the user: log in with `{command}`, or set it in the profile of the login shell. {anyway}",
    )


def check_handed_over(spec: WorkerSpec) -> None:
    """Refuse to start an agent on another agent's session, whose log it cannot read, unless it gets the text."""
    source = spec.source
    if source is not None and source.agent != spec.agent and not (spec.content.handover or spec.written):
        raise ForkRefused(
            f"A session of {AGENTS.title_of(source.agent)} cannot be forked with {AGENTS.title_of(spec.agent)}",
            advice(
                f"Hand it over: smart-fork fork {source.session_id} --as {spec.agent}",
                tool=f"Hand it over: as_agent '{spec.agent}', or agent_type beside fork_from.",
            ),
        )


def check_permissions(request: LaunchRequest) -> None:
    """Refuse to start an agent without permission prompts in another user's session, which may contain instructions."""
    if request.of_others and request.skip_permissions:
        raise ForkRefused(
            f"{request.session_id} continues a teammate's session: its agent asks before it acts",
            advice(
                "Drop --skip-permissions. Its window can change the permissions.",
                tool="Drop skip_permissions. The user can change the permissions in its window.",
            ),
        )


def check_resumable(spec: WorkerSpec, request: LaunchRequest) -> None:
    """Refuse to resume a session in a worktree, from an earlier message, or where the agent does not find its log."""
    if spec.options.in_worktree or spec.content.point:
        raise Usage("Only a fork can have a worktree or begin at an earlier message", "Fork the session instead.")
    source = spec.source if spec.source and spec.source.turns else None
    if source and not AGENTS.storage_of(spec.agent).finds(source.source_path, source.cwd, request.target_cwd):
        raise ForkRefused(
            f"{AGENTS.title_of(spec.agent)} cannot find this session in {request.target_cwd}",
            advice(f"Fork it instead: smart-fork fork {request.session_id}", tool="Fork it instead: fork_from."),
        )


def check_delivery(plan: ForkPlan, place: WorkerPlace) -> None:
    """Refuse a prompt if `place` (such as tmux) cannot deliver it in the way that the agent needs."""
    if plan.prompt and plan.delivery not in place.delivers:
        hint = advice(
            "Run it in tmux: --in tmux. Or start without a prompt, and type it.", tool="Run it in tmux: run_in."
        )
        how = {"typed": "typed", "input": "on its standard input", "argument": "as an argument"}[plan.delivery]
        raise ForkRefused(
            f"{AGENTS.title_of(plan.agent)} takes this prompt only {how}, and that cannot be done in {place.name}", hint
        )


def place_of_work(worked_in: str, cwd: str | Path | None = None) -> Path:
    """Return the directory in which an agent starts: `cwd` or, if the directory `worked_in` was moved, its new path.

    Raises:
        ForkRefused: the session's directory is unknown.
        NotFound: the directory and its repository are gone.
    """
    hint = advice("Give a directory: --cwd DIR.", tool="Give a directory: project_path, or cwd of a branch.")
    if cwd is not None:
        return directory(cwd)
    if why := WorkDirectory(worked_in).problem:
        raise ForkRefused(f"No directory to work in: {why}", hint)
    return directory(WorkDirectory(worked_in).now, hint)


def directory(path: str | Path, hint: str = "Give an existing directory.") -> Path:
    """Return the resolved path of an existing directory; else raise `NotFound` with `hint`."""
    call_context.require(str(path), plain_name(str(path)))
    try:
        target = resolve(path)
        there = target.is_dir()
    except (OSError, ValueError) as error:  # too long, a NUL
        raise NotFound(f"No such directory: {plain_name(str(path))}", hint) from error
    if not there:
        raise NotFound(f"No such directory: {plain_name(str(target))}", hint)
    return target
