"""A repository that keeps its agents' sessions as checkpoints, as the tests make one."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.smart_fork.world import World

#: Where the author worked, on another machine.
THERE = "/Users/alice/work/shop"
BRANCH = "refs/heads/entire/checkpoints/v1"
REGULAR, LINK, SUBMODULE = "100644", "120000", "160000"


@dataclass(frozen=True)
class Entry:
    """A file of a checkpoint; a submodule's `data` is a commit."""

    path: str
    data: bytes
    mode: str = REGULAR


def jsonl(records: list[dict]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def claude(world: World, session_id: str, *said: str, cwd: str = THERE, **more: object) -> bytes:
    """A transcript of Claude Code, written elsewhere."""
    return jsonl(world.claude_records(session_id, cwd, *said, **more))


def session(
    session_id: str, transcript: bytes, number: int = 0, *, agent: str = "Claude Code", prompt: str = "add retry",
    created: str = "2026-01-02T03:04:05Z", **facts: object,
) -> list[Entry]:  # fmt: skip
    """The files of one session of a checkpoint."""
    said = {"session_id": session_id, "agent": agent, "created_at": created, "branch": "main", **facts}
    return [
        Entry(f"{number}/metadata.json", json.dumps(said).encode()),
        Entry(f"{number}/full.jsonl", transcript),
        Entry(f"{number}/prompt.txt", prompt.encode()),
    ]


def commit(
    repo: Path, checkpoint: str, entries: list[Entry], *, author: bytes = b"Alice", ref: str = BRANCH, at: int = 1767323045,
    remove: str = "", session_id: str = "",
) -> None:  # fmt: skip
    """Add a checkpoint, or `remove` a path: as one commit, without a working tree. An own ref has it at its root."""
    below = "" if ref.rpartition("/")[2] == checkpoint else f"{checkpoint[:2]}/{checkpoint[2:]}/"
    message = f"Checkpoint: {checkpoint}\n\nEntire-Session: {session_id}\nEntire-Strategy: manual-commit\n".encode()
    lines = [
        f"commit {ref}".encode(),
        *(who + author + b" <a@example.com> %d +0000" % at for who in (b"author ", b"committer ")),
    ]
    lines += [b"data %d" % len(message), message.rstrip(b"\n") + b"\n"]
    if (
        subprocess.run(
            ["git", "rev-parse", "-q", "--verify", ref], cwd=repo, capture_output=True, check=False
        ).returncode
        == 0
    ):
        lines.append(f"from {ref}^0".encode())
    lines += [f"D {remove}".encode()] if remove else []
    for one in entries:
        if one.mode == SUBMODULE:
            lines.append(f"M {one.mode} {one.data.decode()} {json.dumps(below + one.path)}".encode())
            continue
        lines += [f"M {one.mode} inline {json.dumps(below + one.path)}".encode(), b"data %d" % len(one.data), one.data]
    given = b"\n".join(lines) + b"\n"
    subprocess.run(["git", "fast-import", "--quiet", "--force"], cwd=repo, input=given, check=True, capture_output=True)


def frozen(folder: Path) -> dict[str, bytes | str]:
    """All that is in a folder, to see that nothing was written."""
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }
