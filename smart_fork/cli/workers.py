"""The commands ``active``, ``read``, ``message``, ``wait``, ``close``, ``stop``, ``compare`` and ``worktrees``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from indexer.json_values import json_of
from indexer.masking import beginning
from smart_fork.cli.options import EVERYBODY, ProjectOption, WorkersOption
from smart_fork.cli.output import cut_to, err, out, plain, print_json, printed_as_json, say, say_notes, wants_json
from smart_fork.display_text import ago, minute, tokens_about
from smart_fork.finding.request import current_project
from smart_fork.system.processes import Processes
from smart_fork.workers import worktree_cleanup as trees
from smart_fork.workers.comparison import compare as compared
from smart_fork.workers.messages import message_worker
from smart_fork.workers.observation import list_workers, read_worker, wait_workers
from smart_fork.workers.results import Compared
from smart_fork.workers.termination import close_workers, stop_workers

if TYPE_CHECKING:
    from smart_fork.workers.results import WorkerClosed, WorkerState


WorkerArgument = Annotated[str, typer.Argument(metavar="ID", help="Worker: id, name, session id or terminal.")]
WorkersArgument = Annotated[list[str], typer.Argument(metavar="ID…", help="Workers: id, name, session id or terminal.")]
WorktreeOption = Annotated[
    bool, typer.Option("--remove-worktree", help="Remove its worktree too, if nothing in it is unsaved.")
]


def active(
    here: Annotated[bool, typer.Option("--here", "-a", help="Workers of this project. The default.")] = False,  # noqa: ARG001
    everywhere: Annotated[bool, typer.Option("--all-projects", "-A", help="All projects.")] = False,
    agent: WorkersOption = EVERYBODY,
    project: ProjectOption = None,
    include_closed: Annotated[bool, "Include ended workers."] = False,
) -> None:
    """List the running workers, newest first, and what each one does."""
    within = None if everywhere else current_project(project)
    found = list_workers(within, agent=agent, include_closed=include_closed)
    if printed_as_json({"count": len(found), "workers": json_of(found)}):
        return
    if not found:
        where = f" in {Path(within.root).name}. --all-projects looks everywhere" if within else ""
        out.print(f"No worker is running{where}.")
    for number, one in enumerate(found, start=1):
        _print_worker(number, one, with_directory=everywhere)
    say_notes(f"{name} did not answer: what it knows is missing" for name in Processes.not_asked_again())


def read(
    worker: WorkerArgument,
    exchanges: Annotated[int, typer.Option("--exchanges", "-n", min=1, help="Number of exchanges.")] = 3,
) -> None:
    """Print a worker's last prompts and its own answers, numbered as in its session."""
    told = read_worker(worker, exchanges=exchanges)
    if printed_as_json(told):
        return
    say(_in_words(told))
    if told.earlier:
        say(f"{told.earlier} of its messages come before these; --exchanges shows more.")
    for one in told.messages:
        out.print(f"## {one.number} · {one.role} · {minute(one.timestamp)}\n\n{one.text}\n")


def message(
    worker: WorkerArgument,
    text: Annotated[str, typer.Argument(help="Message. With --answer: number of an option.")],
    queue: Annotated[bool, "Send while it works. It reads the message afterwards."] = False,
    answer: Annotated[bool, "Choose an option of its question."] = False,
) -> None:
    """Send a message to a worker, in its session.

    Words starting with a dash go after "--":  smart-fork message ID -- "-Werror again, look at it"
    """
    told = message_worker(worker, text, queue=queue, answer=answer)
    if printed_as_json(told):
        return
    say_notes(told.warnings)
    out.print(f"{told.how.capitalize()}: {_in_words(told)}")


def wait(
    workers: WorkersArgument,
    any_of: Annotated[bool, typer.Option("--any", help="Return when the first worker is done.")] = False,
    timeout: Annotated[float | None, typer.Option("--timeout", min=0, help="Longest wait in seconds.")] = None,
) -> None:
    """Wait until workers are idle, ask something or have ended, and print their last words. Exit with 1 at the
    timeout.
    """
    known = -1

    def told(done: int, of: int, _seconds: float) -> None:
        nonlocal known
        if done != known and err.is_terminal and not wants_json():
            say(f"{done} of {of} done")
        known = done

    answer = wait_workers(workers, any_of=any_of, timeout=timeout, told=told)
    if not printed_as_json(answer):
        for one in answer.workers:
            out.print(plain(_in_words(one), "bold"))
            out.print(f"{one.last_words}\n" if one.last_words else "")
    if not answer.done:
        raise typer.Exit(1)


def close(workers: WorkersArgument, remove_worktree: WorktreeOption = False) -> None:
    """End workers. What they wrote stays."""
    _print_closed(close_workers(workers, remove_worktree=remove_worktree))


def stop(
    everywhere: Annotated[bool, typer.Option("--all", help="Workers of all projects.")] = False,
    project: ProjectOption = None,
    remove_worktree: WorktreeOption = False,
) -> None:
    """End all workers of the current project that run. What they wrote stays."""
    within = None if everywhere else current_project(project)
    closed = stop_workers(within, remove_worktree=remove_worktree)
    if not closed and not wants_json():
        say("Nothing runs here." + ("" if everywhere else " --all looks everywhere."))
    _print_closed(closed)


#: The most cells of a worker's name, so that its line fits into 80 columns.
_NAME_CELLS = 30


def _print_closed(closed: Sequence[WorkerClosed]) -> None:
    if not printed_as_json({"workers": json_of(closed)}):
        for one in closed:
            note = f": {one.note}" if one.note else ""
            out.print(f"{one.worker_id} {'ended' if one.closed else 'was not changed'}{note}")
    if any(one.failed for one in closed):
        raise typer.Exit(1)


def _print_worker(number: int, one: WorkerState, *, with_directory: bool) -> None:
    if one.worker_id is None:
        out.row(plain(f"{number:>2}. ?  {one.name}", "dim"))
    else:
        name = "" if one.name == one.worker_id else f"  {cut_to(one.name, _NAME_CELLS)}"
        tokens = f"{tokens_about(one.tokens)} tokens" if one.tokens else ""
        facts = filter(None, (one.worker_id, one.kind, tokens, ago(one.started_at)))
        out.row(plain(f"{number:>2}. {in_a_word(one):<8}{name}", "bold cyan"), f" {' · '.join(facts)}")
        if one.prompt:
            out.row(f"    {one.prompt}")
        if one.first_answer:
            out.row(plain(f"    first answer: {one.first_answer}", "dim"))
    if one.waiting_for:
        for line in one.waiting_for.splitlines():
            out.row(plain(f"    │ {line}", "yellow"))
    if one.session_id:
        out.print(plain(f"    session {one.session_id}", "dim"))
    if with_directory:
        out.row(plain(f"    {one.cwd}", "dim"))
    if one.attach:
        out.print(plain(f"    {one.attach}", "dim"))


def in_a_word(one: WorkerState) -> str:
    """Return a worker's state in a word: "working", "idle", "asks" (it waits for an answer), or how it ended."""
    doing = (one.status if one.state == "running" else one.state) or "starting"
    return "asks" if doing == "waiting" else doing


def _state(one: WorkerState) -> str:
    doing = one.status if one.state == "running" else one.state
    tokens = f"{one.tokens:,} tokens" if one.tokens else ""
    took = f"first answer: {one.first_answer}" if one.first_answer else ""
    return " · ".join(filter(None, (doing, tokens, took)))


def _in_words(one: WorkerState) -> str:
    asks = f": {one.waiting_for}" if one.waiting_for else ""
    return f"{one.worker_id} ({one.session_id or 'session not known yet'}) {_state(one)}{asks}"


#: The most characters and files that a column of ``compare`` shows. HTML page and JSON have all of them.
MAX_ANSWER_CHARACTERS, MAX_FILES = 1_500, 15


def compare(
    workers: Annotated[list[str] | None, typer.Argument(help="Workers. Default: the last fan-out.")] = None,
    diff: Annotated[bool, "Print each diff."] = False,
    html: Annotated[Path | None, "Write answers and diffs to this HTML file."] = None,
) -> None:
    """Compare workers with the same prompt side by side: answers, changes, tokens and time."""
    found = compared(list(workers or ()), patch=diff or html is not None)
    if html is not None:
        from smart_fork.page.export import write_comparison

        write_comparison(found, html)
        say(f"Written: {html}")
    if wants_json():
        print_json({"workers": [{k: v for k, v in one.as_json().items() if diff or k != "diff"} for one in found]})
    elif html is None:
        _print(found, diff=diff)


def _print(found: list[Compared], *, diff: bool) -> None:
    from rich.table import Table

    table = Table(show_lines=True, expand=False)
    table.add_column("")
    for one in found:
        table.add_column(plain(one.name), overflow="fold", ratio=1)
    table.add_row("worker", *(plain(f"{one.worker_id} ({one.agent_type})") for one in found))
    for rows in zip(*map(Compared.facts, found), strict=True):
        table.add_row(rows[0][0], *(plain(value) for _, value in rows))
    table.add_row("files", *(plain(_files(one)) for one in found))
    table.add_row("answer", *(plain(_answer(one)) for one in found))
    out.print(table, soft_wrap=False)
    for one in found if diff else ():
        out.print(plain(f"\n{one.name}: {one.worktree or 'no worktree of its own'}", "bold"))
        out.print(one.diff or ("Not known." if one.files is None else "No changes."))


def _files(one: Compared) -> str:
    lines = [f"{file.path} {file.counted()}" for file in one.files or ()]
    return "\n".join(lines[:MAX_FILES] + ([f"… {len(lines) - MAX_FILES} more"] if len(lines) > MAX_FILES else []))


def _answer(one: Compared) -> str:
    text = beginning(one.answer, MAX_ANSWER_CHARACTERS)
    return "\n".join([*([text] if text else []), *(f"({note}.)" for note in one.notes)])


def worktrees(
    prune: Annotated[bool, "Remove worktrees of ended workers without unsaved work."] = False,
    project: ProjectOption = None,
    everywhere: Annotated[bool, typer.Option("--all", "--all-projects", "-A", help="All projects.")] = False,
) -> None:
    """List the git worktrees of workers: what is in each one, and whether it can be removed."""
    within = None if everywhere else current_project(project)
    gone: list[trees.WorkersTree] = []
    copies: list[Path] = []
    kept: list[str] = []
    if prune:
        gone, left = trees.prune(Processes(), within)
        copies, kept = trees.remove_copies_of_gone(within)
    else:
        left = trees.worktrees(Processes(), within)
    if wants_json():
        told = trees.WorkersTrees(tuple(left))
        if prune:
            removed, copied = tuple(one.worktree for one in gone), tuple(map(str, copies))
            told = replace(told, removed=removed, copies=copied, notes=tuple(kept))
        print_json(told.as_json())
        return
    for one in gone:
        out.print(f"Removed {one.worktree} and {one.branch}")
    for path in copies:
        out.print(f"Removed {path}, a copy that was made for it")
    say_notes(kept)
    for one in left:
        _print_worktrees(one, everywhere=everywhere)
    if not left and not gone:
        say("No worktrees were made here, or all are gone." + ("" if everywhere else " --all looks everywhere."))


def _print_worktrees(one: trees.WorkersTree, *, everywhere: bool) -> None:
    changed = "?" if one.changed_files is None else one.changed_files
    ahead = "?" if one.ahead is None else one.ahead
    out.print(plain(one.worktree, "bold"))
    out.print(f"  {one.branch} · {one.name} ({one.worker_id}) · changed files: {changed} · commits: {ahead}")
    pruning = "smart-fork worktrees --prune" + (" --all" if everywhere else "")
    out.print(f"  can be removed: {pruning}" if one.removable else f"  kept: {one.reason}")
