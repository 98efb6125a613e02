"""The MCP server is killed again and again; the workers that it had started, agents after a script, are not lost."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from smart_fork.finding import session_lookup
from smart_fork.system.processes import Machine
from smart_fork.workers.recovery import reconcile
from smart_fork.workers.registry import Registry, WorkerRecord
from tests.smart_fork.forks import eventually
from tests.support.executables import shebang
from tests.support.exhaustive import full_or_sample
from tests.support.mcp_process import McpProcess

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 2
#: Each is like the one before: `SMART_FORK_DRILLS=all` has ten of them.
CRASHES = full_or_sample(10, 1)
#: Forks as the real one does: copies the log, begins in the name of the source, and has a shell run its hooks.
AGENT = """{first}import datetime, json, os, shlex, subprocess, sys, uuid
from pathlib import Path
if "--help" in sys.argv:
    sys.exit(print("  --fork-session  Fork"))
source, own = (sys.argv[sys.argv.index(name) + 1] for name in ("--resume", "--session-id"))
log = next(Path.home().glob(f".claude/projects/*/{{source}}.jsonl"))
records = [json.loads(line) | {{"sessionId": own}} for line in log.read_text().splitlines()]

def hook(event, session=own):
    command = shlex.join(["{python}", "-P", "-m", "smart_fork.hooks", "claude"])
    body = {{"hook_event_name": event, "session_id": session, "cwd": os.getcwd()}}
    subprocess.run([ "/bin/sh", "-c", f"{{command}}; true"], input=json.dumps(body).encode(), check=True)

def say(role, text):
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    content = text if role == "user" else [{{"type": "text", "text": text}}]
    records.append(records[-1] | {{"type": role, "uuid": str(uuid.uuid4()), "parentUuid": records[-1]["uuid"],
                                   "timestamp": now, "message": {{"role": role, "content": content}}}})

def ask(prompt):
    hook("UserPromptSubmit")
    say("user", prompt)
    say("assistant", f"Done: {{prompt}}")
    staging = log.parent / f".{{own}}"
    staging.write_text("".join(json.dumps(record) + "\\n" for record in records))
    staging.replace(log.parent / f"{{own}}.jsonl")
    hook("Stop")

hook("SessionStart", source)
ask(sys.argv[-1].strip())
for line in sys.stdin:
    ask(line.strip())
"""
SERVE = [
    "import indexer.default_embedder as e; from tests.smart_fork.world import WordsModel",
    "e.configured_embedder = lambda **_: WordsModel()",
    "from smart_fork.server import Server; Server.run_stdio()",
]


@pytest.fixture
def program(world, private_tmux, monkeypatch) -> None:
    """A `claude` after a script, that finds our hooks."""
    (world.home / "bin" / "claude").write_text(AGENT.format(first=shebang(), python=sys.executable))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("PYTHONPATH", "HOME"):
        private_tmux("set-environment", "-g", name, os.environ[name])


def said_by(worker: WorkerRecord) -> list[str]:
    """What stands in the worker's own part of its log."""
    session = session_lookup.read(session_lookup.locate(worker.id))
    return [turn.text for turn in worker.own_part(session)]


def test_crashes_lose_nothing_and_double_nothing(world, shop, program, private_tmux):
    """R-040, R-041, R-043, R-047: same ids, same windows, same sessions, transcripts right."""
    source = world.claude(shop, "add retry to the uploader", "It retries five times")
    command = [sys.executable, "-c", "\n".join(SERVE)]

    def panes() -> set[tuple[str, int]]:
        lines = private_tmux("list-panes", "-a", "-F", "#{pane_id} #{pane_pid}").splitlines()
        return {(pane, int(pid)) for pane, pid in map(str.split, lines)}

    others = panes()
    with McpProcess(command, cwd=shop, env=os.environ) as server, Registry() as registry:
        for number in range(WORKERS):
            words = {"intent": "retry", "fork_session_id": source, "prompt": f"go {number}", "run_in": "tmux"}
            assert server.call("smart_fork", **words)["forked_session"]["new_session_id"]
        facts = {one.id: (one.session_id, one.terminal_id, one.pid, one.started_at) for one in registry.workers()}
        told = {one.id: [one.prompt, f"Done: {one.prompt}"] for one in registry.workers()}
        windows = panes()
        assert {(pane, pid) for _, pane, pid, _ in facts.values()} == windows - others

        for crash in range(CRASHES):
            server.kill()
            for identity, (_, pane, _, _) in facts.items():  # nobody of ours is there, and they go on
                private_tmux("send-keys", "-t", pane, f"again {crash}", "Enter")
                told[identity] += [f"again {crash}", f"Done: again {crash}"]
            eventually(lambda: all(told[one.id] == said_by(one) and one.status == "idle" for one in registry.workers()))

            server.start()
            server.call("list_sessions")
            assert ([], []) == reconcile(registry, Machine())
            now = registry.workers()
            assert facts == {one.id: (one.session_id, one.terminal_id, one.pid, one.started_at) for one in now}
            # The note that a worker began to answer may come after the answer: each is a process of its own.
            eventually(lambda: {("running", "idle")} == {(one.state, one.status) for one in registry.workers()})
            assert windows == panes()

        private_tmux("kill-pane", "-t", facts[min(facts)][1])
        server.kill()
        server.start()
        assert min(facts) == eventually(lambda: [one.id for one in registry.workers(states=["ended"])])[0]
    assert WORKERS + 1 == len(list(world.log_of(source).parent.glob("*.jsonl")))
