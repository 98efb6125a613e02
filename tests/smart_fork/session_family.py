"""A session with what follows a cut of it: a copy that was staged for a fork, and branches that we wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from smart_fork.agents.claude.log_files import folder_of
from smart_fork.forking import lineage as families
from smart_fork.forking.results import Relative
from smart_fork.workers.registry import Registry
from tests.smart_fork.forks import branched
from tests.smart_fork.world import World

SAID = ("add retry", "done", "the passphrase is swordfish", "I will remember swordfish")


def relatives(world: World, shop: Path, branches: int) -> list[Path]:
    """Their files, the session's first."""
    log = world.log_of(world.claude(shop, *SAID))
    copy = folder_of(world.home / "elsewhere") / log.name
    copy.parent.mkdir(parents=True)
    shutil.copy(log, copy)
    with Registry() as registry:
        registry.add_staged_copy(copy, session_id=log.stem, source_path=log)
    world.find("retry", shop)
    made = [Path(branch(log.stem)["path"]) for _ in range(branches)]
    world.find("retry", shop)
    return [log, copy, *made]


def ids_with(path: Path, word: str) -> list[str]:
    """The ids of the records in which the word stands."""
    return [json.loads(line)["uuid"] for line in path.read_text().splitlines() if word in line and "uuid" in line]


def branch(session_id: str, **how: Any) -> dict[str, Any]:
    """A branch that was made, as it is answered."""
    return branched(session_id, **how).as_json()


def lineage(session_id: str) -> dict[str, Any]:
    """A family, as it is answered."""
    return families.lineage(session_id).as_json()


def a_relative(session_id: str, **more: Any) -> Relative:
    values = {
        "depth": 0, "agent_type": "claude", "parent": None, "left_parent_at": None, "log_gone": False, "title": "",
        "started": "", "last_activity": "", "begun": "", "turns": 1, "token_estimate": 1, "working_directory": "/x",
        "jsonl_path": None, "copies": (), "resume_command": None, "started_by": None, "running": None,
    }  # fmt: skip
    return Relative(session_id=session_id, **values | more)
