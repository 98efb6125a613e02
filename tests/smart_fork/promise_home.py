"""What the tools are called in to see that they keep what they say: a repository, sessions and agents."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from smart_fork.agents import AGENTS
from smart_fork.display_text import one_of
from smart_fork.finding import session_notes
from tests.smart_fork import mcp_client
from tests.smart_fork.fake_agents import Scripted
from tests.smart_fork.finding.test_authorship import BODY, commit
from tests.smart_fork.world import Did, World

#: Sentences that each agent more makes longer.
EXPENSIVE = (
    f"Past {AGENTS.titles(AGENTS.readable())} sessions of this repository are expensive context that already exists."
)
ONE_OF = f"{one_of(AGENTS.choices())}."
RETRY, DONE = "retry uploads with backoff", "It retries with backoff now"
ERROR = "ModuleNotFoundError: No module named 'zeppelin_uploader'"
PATCH = "diff --git a/upload.py b/upload.py\n--- a/upload.py\n+++ b/upload.py\n@@ -2 +2 @@\n-    for attempt in range(retries):\n+    for attempt in range(9):\n"


@dataclass
class Scene:
    """A repository with a session that `knows`, another one, and agents that are scripted."""

    world: World
    shop: Path
    scripted: Scripted
    knows: str
    other: str

    def ask(self, tool: str = "find_sessions", **given: Any) -> dict[str, Any]:
        return mcp_client.answer(self.world, tool, **given)

    def refused(self, tool: str, **given: Any) -> str:
        return mcp_client.refusal(self.world, tool, **given)

    def ids(self, tool: str = "find_sessions", **given: Any) -> list[str]:
        return [one["session_id"] for one in self.ask(tool, **given)["results"]]

    def fork(self, **given: Any) -> dict[str, Any]:
        """What a fork of the one that knows would be, or is."""
        asked = {"intent": RETRY, "fork_session_id": self.knows, "run_in": "process", "dry_run": True} | given
        return dict(self.ask("smart_fork", **asked)["forked_session"])

    def worker(self, **given: Any) -> dict[str, Any]:
        (made,) = self.ask("spawn_workers", workers=[self.order(**given)])["workers"]
        return dict(made)

    def order(self, **given: Any) -> dict[str, Any]:
        return {"project_path": str(self.shop), "prompt": "paint it", "run_in": "process", "worktree": False} | given

    def branch(self, **given: Any) -> dict[str, Any]:
        return self.ask("branch_session", **({"session_id": self.knows} | given))

    def log(self, session_id: str = "") -> bytes:
        return self.world.log_of(session_id or self.knows).read_bytes()

    def said_to(self, worker_id: str) -> list[str]:
        return self.scripted.call(worker_id)[1]


@pytest.fixture
def scene(world, shop, scripted, monkeypatch) -> Scene:
    monkeypatch.chdir(shop)
    path = shop / "upload.py"
    knows = world.worked(
        "claude", shop, f"> {RETRY}", Did("Write", {"file_path": str(path), "content": BODY}), DONE,
        "> run it", Did("Bash", {"command": "python app.py"}, f"Traceback\n{ERROR}", failed=True),
        Did("Bash", {"command": "pip install zeppelin"}), Did("Bash", {"command": "python app.py"}, "done"), "It runs.",
    )  # fmt: skip
    commit(shop, "upload.py", BODY)
    path.write_text(BODY.replace("range(retries)", "range(6)"))
    other = world.claude(shop, "paint the header", "painted")
    session_notes.mark("claude", knows, ["later"])
    for log in (world.log_of(knows), world.log_of(other)):  # nobody has them open
        os.utime(log, (1.7e9 + (log.stem == other), 1.7e9 + (log.stem == other)))
    return Scene(world, shop, scripted, knows, other)
