"""Everything that golden files are kept of: each command's ``--json``, each tool, and each help page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import anyio
import typer

from smart_fork.cli.command_table import COMMANDS
from smart_fork.cli.demo import INTENT
from smart_fork.server import Server
from tests.golden.demo_home import HEADLESS, Scene

#: What a worker's agent answers, and a session that nobody has.
WORDS, NOBODYS = "Retries are in the downloader too.", "00000000-0000-4000-8000-000000000000"


def told(scene: Scene) -> Iterator[tuple[str, Any]]:
    """The name and the answer of each command, in an order in which a person might ask."""
    run = scene.json
    yield "find-without-index", run("find", INTENT, "--limit", "1", "--no-snippets")
    yield "index-run", run("index", "run")
    yield "index-path", run("index", "path")
    yield "index-status", run("index", "status")
    found = run("find", INTENT)
    claude, codex = (
        next(one["session_id"] for one in found["results"] if one["agent_type"] == agent)
        for agent in ("claude", "codex")
    )
    yield "find", found
    yield "find-explain-also", run("find", INTENT, "--explain", "--also", "exponential backoff", "--limit", "2")
    yield "find-all-projects", run("find", "tide tables", "--all-projects", "--agent", "claude", "--limit", "2")
    yield "find-nothing", run("find", INTENT, "--min-score", "1")
    yield "list", run("list")
    yield "list-automated", run("list", "--include-automated", "--agent", "claude")
    yield "show", run("show", claude)
    yield "show-at", run("show", codex, "--at", "2", "--context", "1")
    yield "show-unknown", run("show", NOBODYS)
    yield "export", run("export", claude, "--markdown")
    yield "export-unsaid", run("export", claude)
    yield "usage", run("find")
    yield "lineage", run("lineage", codex)

    yield "fork-dry-run", run("fork", claude, "go on", *HEADLESS, "--dry-run")
    yield "fork-dry-run-at", run("fork", claude, "go on", *HEADLESS, "--dry-run", "--at", "match", "--intent", INTENT)
    forked = run("fork", claude, "go on", *HEADLESS)
    yield "fork", forked
    scene.answered(forked, WORDS)
    new = run("new", "write the docs", "--agent", "codex", "--name", "docs", *HEADLESS)
    yield "new", new
    scene.answered(new, "The docs are there.")
    resumed = run("resume", codex, "go on with it", *HEADLESS)
    yield "resume", resumed
    scene.agents.call(resumed["worker_id"])
    yield "resume-again", run("resume", codex, *HEADLESS)
    yield "spawn", run("spawn", "-", stdin=json.dumps([order(scene, "one"), order(scene, "two", agent_type="nobody")]))
    spawned = run("spawn", "-", stdin=json.dumps([order(scene, "one", worktree=True)]))
    yield "spawn-worktree", spawned
    scene.agents.call(spawned["workers"][0]["worker_id"])

    yield "active", run("active")
    yield "read", run("read", forked["worker_id"])
    yield "message-without-terminal", run("message", "one", "and the tests")
    yield "wait", run("wait", forked["worker_id"], "docs")
    yield "lineage-with-forks", run("lineage", claude)
    yield "status", run("status")
    yield "close", run("close", forked["worker_id"], "docs")
    yield "active-closed", run("active", "--include-closed")
    yield "message-resumes", run("message", forked["worker_id"], "and the tests")
    forks = run("fork", claude, codex, "add retries", *HEADLESS)
    yield "fork-several", forks
    for one in forks["forks"]:
        scene.answered(one, WORDS)
    yield "compare", run("compare")
    # Several are started at the same time, so which is the newest is chance.
    yield "worktrees", in_order(run("worktrees"))
    yield "stop", in_order(run("stop"))
    yield "worktrees-prune", in_order(run("worktrees", "--prune"))

    yield "branch", run("branch", claude, "Retries, again")
    yield "excise-list", run("excise", "list", codex)
    yield "excise-suggest", run("excise", "suggest", codex)
    yield "excise-dry-run", run("excise", "cut", "8-10", claude, "--dry-run")
    yield "excise-cut", run("excise", "cut", "10", claude, "--yes", "--force")
    yield "excise-verify", run("excise", "verify", claude)
    snapshots = run("excise", "rollback", "--list")
    yield "excise-snapshots", snapshots
    yield "excise-rollback", run("excise", "rollback", snapshots["snapshots"][0]["id"], "--force")
    yield "excise-discard", run("excise", "discard", "--session", claude, "--yes")
    yield "forget", run("forget", claude, "--yes")
    yield "forget-undo", run("forget", claude, "--undo")

    yield "setup-dry-run", run("setup", "--dry-run")
    yield "setup-hooks", run("setup", "hooks")
    yield "setup-hooks-remove", run("setup", "hooks", "--remove")
    yield "setup-remove-dry-run", run("setup", "--remove", "--dry-run")
    yield "service-status", run("service", "status")
    yield "service-print", run("service", "print", "--port", "8766")
    yield "open-without-service", run("open")
    yield "statusline", run("statusline", stdin=json.dumps({"session_id": forked["new_session_id"]}))
    yield "welcome", run("welcome")
    yield "doctor", checked(run("doctor"))


def asked(scene: Scene) -> Iterator[tuple[str, Any]]:
    """The name and the answer of each tool."""
    ask = scene.tool
    found = ask("find_sessions", intent=INTENT, agent_type="both")
    claude, codex = (
        next(one["session_id"] for one in found["results"] if one["agent_type"] == agent)
        for agent in ("claude", "codex")
    )
    yield "find_sessions", found
    yield "find_sessions-explain", ask("find_sessions", intent=INTENT, also=["exponential backoff"], explain=True)
    yield "smart_fork", ask("smart_fork", intent=INTENT)
    forked = ask("smart_fork", intent=INTENT, fork_session_id=claude, prompt="go on", run_in="process", limit=1)
    yield "smart_fork-forked", forked
    worker = forked["forked_session"]
    scene.answered(worker, WORDS)
    yield "smart_fork-unfit", ask("smart_fork", intent=INTENT, auto_fork=True, min_score=1.0)
    yield "list_sessions", ask("list_sessions", limit=2)
    yield "read_session", ask("read_session", session_id=codex, at=1)
    yield "index_status", ask("index_status")
    yield "session_lineage", ask("session_lineage", session_id=claude)
    yield "branch_session", ask("branch_session", session_id=claude, title="Retries once more")
    with scene.patch.context() as patch:
        patch.setenv("SMART_FORK_MAX_WORKERS", "1")
        yield "spawn_workers", ask("spawn_workers", workers=[order(scene, "three"), order(scene, "four")])
    yield "list_workers", ask("list_workers")
    yield "read_worker", ask("read_worker", worker=worker["worker_id"])
    yield "wait_workers", ask("wait_workers", workers=[worker["worker_id"]])
    yield "compare_workers", ask("compare_workers", workers=[worker["worker_id"]])
    yield "close_workers", ask("close_workers", workers=[worker["worker_id"], "three"])
    yield "message_worker", ask("message_worker", worker=worker["worker_id"], message="and the tests")
    yield "excise_session", ask("excise_session", session_id=claude, turns="10", dry_run=True)


def order(scene: Scene, name: str, **more: Any) -> dict[str, Any]:
    """One worker as ``spawn`` takes it."""
    return {
        "project_path": str(scene.demo.project), "prompt": f"work on {name}", "name": name, "run_in": "process",
        "worktree": False, **more,
    }  # fmt: skip


def in_order(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer whose lists are sorted by name."""
    return {
        key: sorted(value, key=lambda one: one["name"] if isinstance(one, dict) else one)
        if isinstance(value, list)
        else value
        for key, value in answer.items()
    }


def checked(examined: dict[str, Any]) -> dict[str, Any]:
    """What ``doctor`` says, without what it found on this machine."""
    return examined | {"checks": [{**check, "detail": "<detail>"} for check in examined["checks"]]}


def listed() -> Iterator[tuple[str, Any]]:
    """What ``tools/list`` says, of the few and of all."""
    for name, everything in (("tools-list", False), ("tools-list-all", True)):
        server = Server(everything=everything)
        tools = anyio.run(server.list_tools)
        yield name, [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]


def helped(scene: Scene) -> Iterator[tuple[str, str]]:
    """The help page of each command."""
    yield "smart-fork", scene.run("--help").out
    for words in commands():
        yield "-".join(words), scene.run(*words, "--help").out


def commands() -> Iterator[tuple[str, ...]]:
    """The words of each command, and of those of its group."""
    for name, command in COMMANDS.items():
        yield (name,)
        found = getattr(import_module(command.module), command.place.rpartition(".")[2])
        if isinstance(found, typer.Typer):
            yield from _parts(found, name)


def _parts(app: typer.Typer, *above: str) -> Iterator[tuple[str, ...]]:
    for part in app.registered_commands:
        yield *above, str(part.name or part.callback.__name__)  # type: ignore[union-attr]
    for group in app.registered_groups:
        yield *above, str(group.name)
        yield from _parts(group.typer_instance, *above, str(group.name))  # type: ignore[arg-type]
