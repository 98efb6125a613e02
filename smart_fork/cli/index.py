"""``index run``, ``index status`` and ``index path``."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

import typer

from smart_fork.cli.output import out, plain, print_json, progress_bar, say
from smart_fork.cli.search import JsonOption
from smart_fork.errors import SmartForkError

#: How long a run waits for another process that is indexing.
PATIENCE = 600.0
#: Logs that failed, named one by one.
MAX_SHOWN = 5

app = typer.Typer(help="The search index: bring it up to date, look at it.", no_args_is_help=True)


@app.command("run")
def run(
    if_idle: Annotated[bool, typer.Option("--if-idle", help="Do nothing where another process is indexing.")] = False,
    no_vectors: Annotated[bool, typer.Option("--no-vectors", help="Only words; the meaning is indexed later.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Read what is new or has changed, and index it. Logs are only read."""
    from indexer.embedding import ModelUnavailableError
    from indexer.freshness import IndexBusyError, complete
    from indexer.models import configured_embedder
    from indexer.transcripts.agents import AGENTS
    from smart_fork.retrieval.opening import opened
    from smart_fork.retrieval.status import broken_logs

    started = time.monotonic()
    embedder = None if no_vectors else configured_embedder()
    try:
        with opened() as store, progress_bar(quiet=as_json) as progress:
            before = store.seen()
            report = complete(store, AGENTS, embedder, patience=0.0 if if_idle else PATIENCE, progress=progress)
            counts = store.counts()
            read = {path for path, file in store.seen().items() if before.get(path) != file}
            broken = [row for row in store.broken_logs() if row[0] in read] if report.broken_lines else []
    except IndexBusyError as error:
        if not if_idle:
            step = "`smart-fork index status` shows how far it is."
            raise SmartForkError("Another process has been indexing for ten minutes", step) from error
        if as_json:
            print_json({"busy": True})
        return
    except ModelUnavailableError as error:
        step = "`smart-fork doctor` checks the model."
        raise SmartForkError(f"Words are indexed, meaning is not: {error}", step) from error
    figures = asdict(report) | {"total_seconds": round(time.monotonic() - started, 2), "index": asdict(counts)}
    if as_json:
        print_json(figures | {"broken_logs": broken_logs(broken)})
    else:
        _print_report(figures, len(broken))


@app.command("status")
def status(as_json: JsonOption = False) -> None:
    """What is indexed and how complete it is."""
    from smart_fork.retrieval.status import index_status

    state = index_status()
    if as_json:
        print_json(state)
        return
    for key, value in state.items():
        out.print(plain(f"{key.replace('_', ' '):<18} {_in_words(value)}"))


@app.command("path")
def path(as_json: JsonOption = False) -> None:
    """Where the index and the Markdown exports are."""
    from indexer.paths import index_db, index_root

    if as_json:
        print_json({"index": str(index_db()), "exports": str(index_root())})
        return
    out.print(plain(str(index_db())))
    out.print(plain(str(index_root())))


def _print_report(figures: dict[str, Any], broken: int) -> None:
    counts = figures["index"]
    out.print(
        plain(
            f"{figures['files']} logs: {figures['read']} read ({figures['bytes_read'] / 1e6:,.1f} MB), "
            f"{figures['unchanged']} unchanged, {figures['removed']} gone; {figures['sessions']} sessions written, "
            f"{figures['embedded']} passages embedded in {figures['total_seconds']} s."
        )
    )
    held = f"{counts['sessions']} sessions, {counts['chunks']} passages, {counts['embedded']} with their meaning"
    out.print(plain(f"The index holds {held}."))
    for reason, number in counts["skipped"].items():
        out.print(plain(f"  skipped {number}: {reason}"))
    for name, reason in list(figures["failed"].items())[:MAX_SHOWN]:
        say(f"could not be read: {name}: {reason}")
    if len(figures["failed"]) > MAX_SHOWN:
        say(f"… and {len(figures['failed']) - MAX_SHOWN} more; --json has all")
    if figures["broken_lines"]:
        say(f"{figures['broken_lines']} broken lines in {broken} logs; `smart-fork index status --json` says which")


def _in_words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{number} {reason}" for reason, number in value.items()) or "none"
    if isinstance(value, list):
        return str(len(value))
    return "-" if value is None else str(value)
