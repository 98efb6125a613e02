"""A made-up repository that keeps its sessions: commits that name checkpoints, and the branch that has them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.which_session.clone import BRANCH, Clone

BEGAN = 1_767_254_400  # 2026-01-01 08:00 UTC
ROOT = "/home/somebody/code/harbor"


def at(minute: float) -> float:
    return BEGAN + 60 * minute


def time_of(minute: float) -> str:
    return datetime.fromtimestamp(at(minute), UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def session_id(number: int) -> str:
    return f"{number:08x}-1111-4111-8111-111111111111"


def checkpoint_id(number: int) -> str:
    return f"{number:012x}"


def typed(minute: float, text: str, **more: Any) -> dict[str, Any]:
    return {"type": "user", "timestamp": time_of(minute), "message": {"role": "user", "content": text}} | more


def edited(minute: float, path: str, text: str) -> dict[str, Any]:
    given = {"file_path": f"{ROOT}/{path}", "old_string": "", "new_string": text}
    return {
        "type": "assistant",
        "timestamp": time_of(minute),
        "message": {
            "id": f"m{minute}",
            "role": "assistant",
            "model": "made-up",
            "content": [
                {"type": "text", "text": f"I change {path}."},
                {"type": "tool_use", "id": f"t{minute}", "name": "Edit", "input": given},
            ],
        },
    }


def succeeded(minute: float, call: float) -> dict[str, Any]:
    return typed(minute, "") | {
        "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{call}", "content": "done"}]}
    }


class Repository:
    """Built step by step, in the order of time; minutes count from its beginning."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._kept: dict[str, str] = {}
        self.git("init", "--quiet", "--initial-branch=main", str(folder), where=folder.parent)

    def copied(self, folder: Path) -> Repository:
        copy = object.__new__(Repository)
        copy.path, copy._kept = Path(shutil.copytree(self.path, folder)), dict(self._kept)
        return copy

    def git(self, *arguments: str, given: str = "", minute: float = 0, where: Path | None = None, **more: str) -> str:
        when = f"{int(at(minute))} +0000"
        environment = os.environ | {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when} | more
        who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgSign=false"]
        done = subprocess.run(
            ["git", *who, *arguments], cwd=where or self.path, env=environment, input=given, text=True,
            capture_output=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    def commit(self, minute: float, files: Mapping[str, str], *checkpoints: int, subject: str = "Change") -> str:
        for name, text in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            self.git("add", name)
        trailers = "\n".join(f"Entire-Checkpoint: {checkpoint_id(one)}" for one in checkpoints)
        self.git("commit", "--quiet", "--allow-empty", "-m", f"{subject}\n\n{trailers}", minute=minute)
        return self.git("rev-parse", "HEAD")

    def keep(
        self, number: int, checkpoint: int, records: Sequence[Mapping[str, Any]], files: Sequence[str], minute: float,
        *, agent: str = "Claude Code", branch: str = "main",
    ) -> None:  # fmt: skip
        """Keep a session's transcript in a checkpoint of this minute."""
        known = {"sessionId": session_id(number), "cwd": ROOT, "gitBranch": branch}
        ids = [f"{number:04x}{checkpoint:04x}-2222-4222-8222-{line:012x}" for line in range(len(records))]
        lines = [
            {"uuid": one, "parentUuid": before} | known | dict(record)
            for one, before, record in zip(ids, (None, *ids), records, strict=False)
        ]
        told = {
            "session_id": session_id(number), "agent": agent, "branch": branch, "created_at": time_of(minute),
            "files_touched": list(files), "checkpoint_id": checkpoint_id(checkpoint),
        }  # fmt: skip
        folder = f"{checkpoint_id(checkpoint)[:2]}/{checkpoint_id(checkpoint)[2:]}/{number}"
        self._kept[f"{folder}/full.jsonl"] = "\n".join(map(json.dumps, lines)) + "\n"
        self._kept[f"{folder}/metadata.json"] = json.dumps(told)

    def worked(self, number: int, minute: float, prompt: str, files: Mapping[str, str], **more: Any) -> str:
        """A session of five minutes: it is asked, edits files, and is committed."""
        records = [typed(minute, prompt)]
        for step, (path, text) in enumerate(files.items(), 1):
            records += [
                edited(minute + step / 10, path, text),
                succeeded(minute + step / 10 + 0.01, minute + step / 10),
            ]
        self.keep(number, number, records, list(files), minute + 4, **more)
        return self.commit(minute + 5, files, number)

    def clone(self) -> Clone:
        index = {"GIT_INDEX_FILE": str(self.path / ".git/checkpoints")}
        for name, text in self._kept.items():
            blob = self.git("hash-object", "-w", "--stdin", given=text)
            self.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{name}", **index)
        commit = self.git("commit-tree", self.git("write-tree", **index), "-m", "Checkpoints")
        self.git("update-ref", f"refs/heads/{BRANCH}", commit)
        return Clone(self.path)


def lines(word: str, count: int = 10) -> str:
    return "".join(f"{word} number {number} of the harbor\n" for number in range(count))


def with_five_before(folder: Path) -> Repository:
    """Five sessions, a quarter of an hour apart, each with a file of its own: `a1.py` to `a5.py`."""
    repository = Repository(folder)
    for number in range(1, 6):
        prompt = f"Write module a{number} about cranes, ships and cargo, part {number}"
        repository.worked(number, 15 * number, prompt, {f"a{number}.py": lines(f"line{number}")})
    return repository
