"""The commands ``index run``, ``index status`` and ``index path``."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from indexer import default_embedder, state_db
from indexer.embedder import ModelUnavailableError, forget_absence
from indexer.locks import IndexBusyError, give_way, step_back
from indexer.pipeline import has_other_vectors
from indexer.project import Project, project_of
from indexer.safe_files import index_db, index_root
from smart_fork.agents.log_readers import READERS
from smart_fork.cli.command import CommandApp
from smart_fork.cli.output import (
    NOT_ERASED,
    ProgressBar,
    at_home,
    out,
    printed_as_json,
    progress_bar,
    say,
    say_passed_over,
)
from smart_fork.display_text import ago
from smart_fork.errors import SmartForkError
from smart_fork.finding.request import OWN, configured_engine

if TYPE_CHECKING:
    from indexer.log_changes import Progress
    from indexer.store.sqlite import Store
    from smart_fork.finding.index_refresh import IndexRunReport
    from smart_fork.finding.index_status import IndexStatus


#: How long an index run waits for another process that is indexing.
PATIENCE = 600.0
#: Seconds between two lines about the progress of the other process.
SAY_SECONDS = 10.0
#: The width of the column of labels.
NAME_WIDTH = 10
#: The most failed logs that are named one by one.
MAX_SHOWN = 5

app = CommandApp(help="Update the search index, or show its state.", no_args_is_help=True)


@app.command("run")
def run(
    if_idle: Annotated[bool, "Do nothing if another process is indexing."] = False,
    no_vectors: Annotated[bool, "Index words only, no embeddings."] = False,
    project: Annotated[
        Path | None, typer.Option("--project", "-p", help="Project to index first. Default: this one.")
    ] = None,
) -> None:
    """Index new and changed sessions."""
    from indexer.refresh import complete
    from indexer.store.schema import VectorsUnavailableError
    from smart_fork.cli.service.after_indexing import renewed
    from smart_fork.finding.index_access import opened
    from smart_fork.finding.index_refresh import index_run_report

    started = time.monotonic()
    engine = configured_engine()  # one that there is not is said before anything is read
    if if_idle:
        step_back()
    else:
        forget_absence()
    embedder = None if no_vectors else default_embedder.configured_embedder(background=if_idle)
    try:
        with opened() as store, progress_bar(quiet=if_idle) as progress:
            before = store.seen()
            if if_idle and embedder is not None and has_other_vectors(store, embedder):
                embedder = None
            waiting = None if if_idle else _OtherRunProgress(store, progress)
            patience, told = (0.0, give_way) if if_idle else (PATIENCE, progress)
            first = _project(project)
            with renewed(store, patience, progress, vectors=not no_vectors):
                report = complete(store, READERS, embedder, first, patience=patience, progress=told, waiting=waiting)
            done = index_run_report(store, report, before, engine.name if engine else OWN)
        _run_pending_erasures()
    except IndexBusyError as error:
        if not if_idle:
            step = "`smart-fork index status` shows the progress."
            raise SmartForkError("Another process has been indexing for ten minutes", step) from error
        printed_as_json({"busy": True})
        return
    except (ModelUnavailableError, VectorsUnavailableError) as error:
        step = "`smart-fork doctor` checks the model and the vector store."
        raise SmartForkError(f"Words are indexed, embeddings are not: {error}", step) from error
    done = replace(done, total_seconds=round(time.monotonic() - started, 2))
    if not printed_as_json(done):
        _print_report(done)


def _project(folder: Path | None) -> Project | None:
    try:
        project = project_of(folder or Path.cwd())
    except OSError:  # the directory that this was started in is gone
        return None
    READERS.note(Path(project.root))
    return project


class _OtherRunProgress:
    """Prints the progress of an index run of another process on stderr, while this process waits for that run."""

    def __init__(self, store: Store, progress: Progress | None) -> None:
        self._store, self._progress = store, progress
        self._said, self._said_at = "", 0.0

    def __call__(self) -> None:
        counts = self._store.counts()
        held = f"{counts.sessions} sessions, {counts.embedded} of {counts.chunks} passages with their meaning"
        if not self._said:
            say("Another process is indexing. This run waits for it and then does the rest.")
        if isinstance(self._progress, ProgressBar):  # lines are said below
            self._progress("another process, embedding", counts.embedded, counts.chunks)
        if held != self._said and (not self._said_at or time.monotonic() >= self._said_at + SAY_SECONDS):
            say(f"It has {held}.")
            self._said, self._said_at = held, time.monotonic()


@app.command("status")
def status() -> None:
    """Show what the index holds, and how fresh it is."""
    from smart_fork.finding.index_status import index_status

    state = index_status()
    if printed_as_json(state):
        return
    for name, text in (*index_rows(state), *_details(state)):
        out.named(name, text, NAME_WIDTH)
    for failed in state.last_run.failed[:MAX_SHOWN] if state.last_run else ():
        out.named("", f"could not be read: {failed.path}: {failed.reason}", NAME_WIDTH)
    say_passed_over(state.passed_over)


def index_rows(state: IndexStatus) -> Iterator[tuple[str, str]]:
    """Yield (label, sentence) for each line about the index's content and age. Labels after the first are empty."""
    waiting = f"{state.unread_logs:,} more log{'s' * (state.unread_logs != 1)} to read" if state.unread_logs else ""
    yield "index", f"{state.sessions:,} session{'s' * (state.sessions != 1)}, {waiting or 'up to date'}"
    share = math.floor(100 * state.covered.all_passages)
    meaning = {0: " only: smart-fork doctor says why", 100: " and by meaning"}
    if state.chunks:
        yield "", f"searchable by words{meaning.get(share, f', {share} % by meaning so far')}"
    changed = ago(state.updated_at)
    yield "", f"{f'changed {changed}; ' if changed else ''}next update {state.next_run_in_words()}"
    if (run := state.last_run) and (run.error or run.failed_logs):
        yield "", f"last full run {state.last_run_in_words()}"
    if state.broken_lines:
        yield "", f"{state.broken_lines:,} broken lines in logs: smart-fork index status --json lists them"


def _details(state: IndexStatus) -> Iterator[tuple[str, str]]:
    """Yield (label, sentence) for each line about the last index run, the model, the files, and skipped logs."""
    if (run := state.last_run) and not (run.error or run.failed_logs):
        yield "last run", state.last_run_in_words()
    yield "model", (state.model or "none yet").partition("@")[0]
    yield "files", f"{at_home(state.index)}, {state.bytes / 1e6:.1f} MB"
    yield "exports", at_home(state.exports)
    for reason, number in state.skipped.items():
        yield "skipped", f"{number:,} log{'s' * (number != 1)}: {reason}"
    if not state.erased:
        yield "to erase", NOT_ERASED


@app.command("path")
def path() -> None:
    """Print the folders of the index and the exports."""
    if printed_as_json({"index": str(index_db()), "exports": str(index_root())}):
        return
    out.print(str(index_db()))
    out.print(str(index_root()))


def _run_pending_erasures() -> None:
    """Erase cut text from the index's files if a killed ``excise cut`` has left that undone."""
    if state_db.rows("SELECT 1 FROM owed_erasures LIMIT 1"):
        from smart_fork.excise import erasure

        erasure.run_pending()


def _print_report(done: IndexRunReport) -> None:
    counts = done.index
    out.print(
        f"{done.files} logs: {done.read} read ({done.bytes_read / 1e6:,.1f} MB), "
        f"{done.unchanged} unchanged, {done.removed} gone; {done.sessions} sessions written, "
        f"{done.embedded} passages embedded in {done.total_seconds} s."
    )
    held = f"{counts.sessions} sessions, {counts.chunks} passages, {counts.embedded} with their meaning."
    out.print(f"The index holds {held}")
    for reason, number in counts.skipped.items():
        out.print(f"  skipped {number}: {reason}")
    for name, reason in list(done.failed.items())[:MAX_SHOWN]:
        say(f"could not be read: {name}: {reason}")
    if len(done.failed) > MAX_SHOWN:
        say(f"… and {len(done.failed) - MAX_SHOWN} more; --json has all")
    for why in READERS.unread():
        say(why)
    say_passed_over(done.passed_over)
    if not done.erased:
        say(NOT_ERASED)
    if done.broken_lines:
        broken = f"{done.broken_lines} broken lines in {len(done.broken_logs)} logs"
        say(f"{broken}; `smart-fork index status --json` lists them")
