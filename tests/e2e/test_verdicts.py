"""What came of real forks of Claude Code in worktrees of their own, and a search that says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agents import Machine
from tests.e2e.model_server import Call, Say
from tests.e2e.scenario import EXCHANGES, INTENT, settled, unlike_any_other

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("machine")]


def worked(machine: Machine, project: Path, session_id: str, name: str) -> dict[str, Any]:
    """A fork that writes a file in a worktree of its own and ends. Its file is committed."""
    prompt, tree = unlike_any_other(f"Do it for the {name} downloader"), project / ".worktrees" / name
    written = {"file_path": str(tree / f"{name}.py"), "content": f"def {name}(parcel):\n    return {name}_of(parcel)\n"}
    machine.model.when(prompt, Call("", "Write", written, Say(f"The {name} downloader is written.")))
    options = ("--worktree-name", name, "--in", "process", "--json", "--", prompt)
    fork: dict[str, Any] = json.loads(machine.smart_fork("fork", session_id, *options, cwd=project).stdout)
    settled(machine, fork)
    machine.smart_fork("wait", fork["worker_id"], cwd=project)
    machine.smart_fork("close", fork["worker_id"], cwd=project)
    machine.run("git", "add", ".", cwd=tree)
    machine.run("git", "commit", "-q", "-m", name, cwd=tree)
    return fork


@pytest.mark.thorough  # without an agent: test_notes.py
def test_a_merged_a_thrown_away_and_a_given_up_fork_are_known_as_such_wherever_they_are_found(
    equipped: Machine, project: Path
):
    settings = project / ".claude/settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"permissions": {"allow": ["Write"]}}))
    equipped.run("git", "add", ".", cwd=project)
    equipped.run("git", "commit", "-q", "-m", "Agents may write", cwd=project)
    parent = equipped.session_of_before("claude", *EXCHANGES, cwd=project)
    merged, dropped, slow = (worked(equipped, project, parent.session_id, name) for name in ("quick", "lost", "slow"))
    equipped.run("git", "merge", "-q", "smart-fork/quick", cwd=project)
    equipped.run("git", "worktree", "remove", "--force", str(project / ".worktrees/lost"), cwd=project)
    equipped.run("git", "branch", "-D", "smart-fork/lost", cwd=project)
    equipped.smart_fork("index", "run")

    ids = [one["worker_id"] for one in (merged, dropped, slow)]
    compared = json.loads(equipped.smart_fork("compare", *ids, "--json", cwd=project).stdout)["workers"]
    equipped.smart_fork("verdict", slow["worker_id"], "dropped", "too slow", cwd=project)

    said = [one.get("noted", {}).get("verdict", {}) for one in compared]
    assert [("merged", "git"), ("dropped", "git"), (None, None)] == [
        (one.get("outcome"), one.get("said_by")) for one in said
    ]
    found = json.loads(equipped.smart_fork("find", INTENT, "--include-automated", "--json", cwd=project).stdout)
    noted = {hit["session_id"]: hit["noted"] for hit in found["results"] if "noted" in hit}
    told = json.dumps(noted)
    assert "A fork of it was tried on " in told or "Tried on " in told
    assert "and given up" in told  # of all forks, or of the one that is found in the place of its family
    shown = equipped.smart_fork("show", parent.session_id, cwd=project).stdout
    assert [1, 2] == [shown.count(one) for one in (" and merged\n", " and given up")]
    assert " and given up: too slow" in shown
