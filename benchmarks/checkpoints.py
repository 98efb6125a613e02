"""How soon the sessions of a fresh clone are found that its repository keeps as checkpoints, and what that costs.

    python benchmarks/checkpoints.py [--checkpoints 300] [--exchanges 12] [--json FILE]

It makes a repository with a branch ``entire/checkpoints/v1``, clones it, and asks in the clone with an empty home, as
processes of their own. All text is invented. Nothing may be written into the clone: its files are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

THERE = "/Users/ann/work/shop"
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
VERBS = ("add", "mend", "test", "document", "speed up", "rename", "split", "log", "retry", "cache")
THINGS = (
    "uploader",
    "parser",
    "scheduler",
    "login form",
    "invoice",
    "search index",
    "importer",
    "mailer",
    "cart",
    "router",
)
WORDS = [
    "the",
    "request",
    "fails",
    "when",
    "a",
    "file",
    "is",
    "larger",
    "than",
    "its",
    "limit",
    "so",
    "we",
    "read",
    "it",
    "in",
    "parts",
    "and",
    "keep",
    "what",
    "came",
    "before",
]


def moment(number: int) -> str:
    """That many minutes after the first session began."""
    return (BEGUN + timedelta(minutes=number)).isoformat().replace("+00:00", "Z")


def transcript(session: str, number: int, exchanges: int, chance: random.Random) -> tuple[str, bytes]:
    """A prompt, and the log of a session that begins with it: questions, edits, output of tests, answers."""
    topic = f"{VERBS[number % 10]} the {THINGS[number // 10 % 10]} of module {number}"
    records: list[dict[str, object]] = []

    def said(kind: str, content: object) -> None:
        records.append({
            "type": kind, "uuid": str(uuid.UUID(int=chance.getrandbits(128), version=4)), "sessionId": session,
            "parentUuid": records[-1]["uuid"] if records else None, "cwd": THERE, "gitBranch": "main", "version": "2.1",
            "isSidechain": False, "timestamp": moment(number * 60 + len(records)), "userType": "external",
            "message": {"role": kind, "content": content},
        })  # fmt: skip

    for one in range(exchanges):
        text = " ".join(chance.choices(WORDS, k=80))
        said("user", topic if not one else f"and now step {one}: {text}")
        edit = {"file_path": f"{THERE}/src/module_{number}.py", "old_string": text[:99], "new_string": text[99:]}
        said("assistant", [{"type": "tool_use", "id": f"toolu_{one}", "name": "Edit", "input": edit}])
        said("user", [{"type": "tool_result", "tool_use_id": f"toolu_{one}", "content": text * 8}])
        said("assistant", [{"type": "text", "text": f"Step {one} of {topic} is done: {text}"}])
    return topic, b"".join(json.dumps(record).encode() + b"\n" for record in records)


def commits(checkpoints: int, exchanges: int) -> Iterator[bytes]:
    """The branch as `git fast-import` reads it."""
    chance = random.Random(32)
    for number in range(checkpoints):
        name, session = f"{chance.getrandbits(48):012x}", str(uuid.UUID(int=chance.getrandbits(128), version=4))
        topic, log = transcript(session, number, exchanges, chance)
        facts = {
            "session_id": session,
            "agent": "Claude Code",
            "created_at": moment(number * 60 + 59),
            "branch": "main",
        }
        message = f"Checkpoint: {name}\n\nEntire-Session: {session}\n".encode()
        yield b"commit refs/heads/entire/checkpoints/v1\nauthor Ann <a@example.com> %d +0000\n" % (
            1_767_225_600 + number
        )
        yield b"committer Ann <a@example.com> %d +0000\ndata %d\n%s\n" % (1_767_225_600 + number, len(message), message)
        for file, data in {
            "metadata.json": json.dumps(facts).encode(),
            "full.jsonl": log,
            "prompt.txt": topic.encode(),
        }.items():
            yield b"M 100644 inline %s/%s/0/%s\ndata %d\n%s\n" % (
                name[:2].encode(),
                name[2:].encode(),
                file.encode(),
                len(data),
                data,
            )


def made(folder: Path, checkpoints: int, exchanges: int) -> Path:
    """A fresh clone of such a repository."""
    source, clone = folder / "source", folder / "clone"
    git(folder, "init", "-q", "-b", "main", str(source))
    git(source, "-c", "user.name=Ann", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "First")
    git(source, "fast-import", "--quiet", given=b"".join(commits(checkpoints, exchanges)))
    git(folder, "clone", "-q", f"file://{source}", str(clone))
    return clone


def git(folder: Path, *words: str, given: bytes = b"") -> None:
    """Run git."""
    subprocess.run(["git", *words], cwd=folder, input=given, check=True)


def digest(folder: Path) -> str:
    """One digest of all names, contents and times of a folder."""
    found = sha256()
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        found.update(f"{path.relative_to(folder)} {info.st_mode} {info.st_mtime_ns} {info.st_size}\n".encode())
        found.update(path.read_bytes() if path.is_file() else b"")
    return found.hexdigest()


def asked(clone: Path, home: Path, *words: str) -> dict[str, Any]:
    """What a command says, and what it cost: seconds, seconds of the processor, and the most memory so far."""
    own = {
        "HOME": str(home),
        "SMART_FORK_SERVICE": "false",
        "SMART_FORK_BACKGROUND": "0",
        "SMART_FORK_PRELOAD": "false",
    }
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SMART_FORK_", "CLAUDE"))} | own
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, "-m", "smart_fork", *words, "--json"]
    said = json.loads(
        subprocess.run(
            command, cwd=clone, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
        ).stdout
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "said": said,
        "seconds": round(time.monotonic() - began, 2),
        "processor": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
        "megabytes": round(after.ru_maxrss / 1024),
    }


def measured(folder: Path, checkpoints: int, exchanges: int) -> dict[str, Any]:
    """All that is told."""
    clone, home = made(folder, checkpoints, exchanges), folder / "home"
    home.mkdir()
    before = digest(clone)
    steps = {
        "list": asked(clone, home, "list", "-n", "500"),
        "find": asked(clone, home, "find", f"cache the router of module {checkpoints - 1}"),
        "rest": asked(clone, home, "index", "run", "--no-vectors"),
        "again": asked(clone, home, "index", "run", "--no-vectors"),
    }
    steps["listed again"] = asked(clone, home, "list", "-n", "500")
    found, said = steps["find"]["said"], steps["rest"]["said"]
    return {
        "checkpoints": checkpoints,
        "transcript_megabytes": round(sum(len(data) for data in commits(checkpoints, exchanges)) / 1e6, 1),
        "listed": steps["list"]["said"]["count"],
        "first_result": found["results"][0]["title"] if found["results"] else None,
        "unread_after_first_answer": found["index"]["unread_logs"],
        "indexed": said["index"]["sessions"],
        "read_again": steps["again"]["said"]["read"],
        "state_megabytes": round(sum(one.stat().st_size for one in home.rglob("*") if one.is_file()) / 1e6, 1),
        "clone_is_as_it_was": before == digest(clone),
        "costs": {name: {key: value for key, value in step.items() if key != "said"} for name, step in steps.items()},
    }


def main() -> None:
    """Measure, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", type=int, default=300)
    parser.add_argument("--exchanges", type=int, default=12)
    parser.add_argument("--json", type=Path)
    asked_for = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        told = json.dumps(measured(Path(folder).resolve(), asked_for.checkpoints, asked_for.exchanges), indent=1)
    print(told)
    if asked_for.json:
        asked_for.json.write_text(told)


if __name__ == "__main__":
    main()
