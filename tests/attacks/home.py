"""A home to attack: a project that the client works in, others that are none of its business, and bait."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

#: What the programs that are started in place of the agents answer, after they have written down how they were called.
PROGRAM = """#!/bin/sh
printf '%s\\0' "$0" "$@" >> "{calls}/$$"
echo '  --fork-session  Fork'
echo '  fork  Fork'
echo '  exec  Run'
"""
#: Words that both the client's sessions and the others' have: what is searched for.
LURE = "uploader"
START_SECONDS = 120.0


@dataclass
class Home:
    """What the attack knows. No one of `canaries` may be in any answer; `own` and `foreign` are what calls name.

    Some are names of projects: once the client itself has `sent` one, it may be in what it has made.
    """

    folder: Path
    project: Path
    own: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    canaries: list[str] = field(default_factory=list)
    bait: list[Path] = field(default_factory=list)
    sent: set[str] = field(default_factory=set)
    port: int = 0
    token: str = ""
    #: Tokens, codes and cookies of this run: in no answer, log or command line.
    secrets: set[str] = field(default_factory=set)

    @property
    def state(self) -> Path:
        """Where the service keeps its own files."""
        return self.folder / "state"

    def environment(self) -> dict[str, str]:
        """What the service is started with: nothing of whoever runs the attack."""
        return {
            "HOME": str(self.folder),
            "SMART_FORK_HOME": str(self.state),
            "PATH": str(self.folder / "bin"),
            "LANG": "C.UTF-8",
            "TMPDIR": str(self.folder / "tmp"),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HF_HUB_OFFLINE": "1",
            "SMART_FORK_BACKGROUND": "0",
        }

    def logs(self) -> list[Path]:
        """The agents' logs."""
        return sorted(self.folder.glob(".c*/**/*.jsonl"))


def lay_out(folder: Path, chance: random.Random) -> Home:
    """The home, with a few projects and sessions of both agents in each."""
    home = Home(folder, folder / "shop")
    (folder / "tmp").mkdir(parents=True)
    _programs(home)
    secret = [folder / _canary(home, chance), folder / "work" / _canary(home, chance)]
    for number, place in enumerate((home.project, *secret)):
        place.mkdir(parents=True)
        if number < 2:
            _git(place, "init", "-q", "-b", "main")
            _git(
                place, "-c", "user.name=T", "-c", "user.email=t@example.com", "commit", "-q", "--allow-empty", "-m", "1"
            )
        for _ in range(3):
            canary = "" if place == home.project else _canary(home, chance)
            known = home.foreign if canary else home.own
            known += [_claude(home, place, f"{canary} {LURE}", chance), _codex(home, place, f"{canary} {LURE}", chance)]
        (home.foreign if number else home.own).extend((str(place), place.name))
    between = _claude(home, secret[0], f"{_canary(home, chance)} {LURE}", chance, of=home.own[0])
    nowhere = _claude(home, "", f"{_canary(home, chance)} {LURE}", chance)
    home.foreign += [between, nowhere]
    for name in ("bait.jsonl", "bait.txt", ".netrc"):
        (folder / name).write_text(_canary(home, chance), encoding="utf-8")
        home.bait.append(folder / name)
    return home


@contextmanager
def serving(home: Home, leave: Callable[[Home], object]) -> Iterator[subprocess.Popen[bytes]]:
    """The service of that home, with workers of several projects, a forgotten session, and one whose log is gone.

    `leave` leaves what a service of before has left.
    """
    command = [sys.executable, "-m", "smart_fork"]
    _run(home, [*command, "index", "run"])
    _run(home, [*command, "forget", home.foreign[0], "--yes"])
    next(path for path in home.logs() if home.foreign[1] in path.name).unlink()
    _run(home, [sys.executable, "-c", _WORKERS, str(home.project), home.foreign[2], *_folders(home), home.canaries[0]])
    ids = json.loads((home.folder / "workers.json").read_text(encoding="utf-8"))
    home.own += ids[:1]
    home.foreign += ids[1:]
    home.token = "".join(random.Random(str(home.folder)).choices("0123456789abcdef", k=64))
    (home.state / "service-token").touch(mode=0o600)
    (home.state / "service-token").write_text(home.token, encoding="utf-8")
    leave(home)
    events = home.folder / "events.jsonl"
    argv = [
        sys.executable,
        str(Path(__file__).with_name("audited_command.py")),
        str(events),
        "serve",
        "--port",
        str(_free_port()),
    ]
    with (home.folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(argv, env=home.environment(), cwd="/", stdout=stderr, stderr=stderr)
        try:
            _wait_for(home, process)
            yield process
        finally:
            process.terminate()
            process.wait(timeout=60)


_WORKERS = """
import json, sys
from pathlib import Path
from smart_fork.workers.registry import Registry
own, session, *others, canary = sys.argv[1:]
ids = []
with Registry() as registry:
    for cwd in (own, *others):
        secret = "" if cwd == own else canary
        made = registry.add(
            "claude", source_session_id=session, place="process", cwd=Path(cwd), prompt=f"{secret} go on",
            name=f"worker {secret}", session_id=session if cwd == others[0] else None,
        )
        registry.set_state(made.id, "ended")
        ids.append(made.id)
Path(sys.argv[1]).with_name("workers.json").write_text(json.dumps(ids))
"""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def _folders(home: Home) -> list[str]:
    return [one for one in home.foreign if one.startswith("/")]


def _canary(home: Home, chance: random.Random) -> str:
    home.canaries.append(f"canary{chance.getrandbits(48):012x}")
    return home.canaries[-1]


def _programs(home: Home) -> None:
    folder, calls = home.folder / "bin", home.folder / "calls"
    folder.mkdir(parents=True)
    calls.mkdir()
    for name in ("claude", "codex"):
        (folder / name).write_text(PROGRAM.format(calls=calls), encoding="utf-8")
        (folder / name).chmod(0o755)
    for name in ("git", "ps", "sh"):
        found = shutil.which(name)
        assert found, f"{name} is needed"
        (folder / name).symlink_to(found)


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def _run(home: Home, argv: list[str]) -> None:
    done = subprocess.run(argv, env=home.environment(), cwd="/", capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def _wait_for(home: Home, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS
    said = home.state / "service.json"
    while not said.is_file():
        assert process.poll() is None, (home.folder / "stderr").read_text(encoding="utf-8")
        assert time.monotonic() < until, "the service does not start"
        time.sleep(0.05)
    home.port = json.loads(said.read_text(encoding="utf-8"))["port"]


def _claude(home: Home, cwd: Path | str, words: str, chance: random.Random, of: str = "") -> str:
    """A session of Claude Code, as a fork of another one where that is said."""
    identity = str(uuid.UUID(int=chance.getrandbits(128), version=4))
    records = []
    if of:
        source = next(path for path in home.logs() if of in path.name)
        records = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
        records = [record | {"sessionId": identity} for record in records]
    about = {"sessionId": identity, "cwd": str(cwd), "version": "2.1.197", "isSidechain": False, "entrypoint": "cli"}
    for turn in range(4):
        kind = "assistant" if turn % 2 else "user"
        text = f"{words} {('answer', 'question')[turn % 2]} {turn}"
        content = [{"type": "text", "text": text}] if turn % 2 else text
        parent = records[-1]["uuid"] if records else None
        records.append(
            {"type": kind, "uuid": str(uuid.UUID(int=chance.getrandbits(128))), "parentUuid": parent, **about,
             "timestamp": f"2026-01-01T00:{chance.randrange(60):02}:{turn:02}.000Z",
             "message": {"role": kind, "content": content}}
        )  # fmt: skip
    folder = (
        "".join(letter if letter.isalnum() else "-" for letter in str(cwd)) or "nowhere"
    )  # "-" would be that of "/"
    return _written(home.folder / ".claude/projects" / folder / f"{identity}.jsonl", records, identity)


def _codex(home: Home, cwd: Path, words: str, chance: random.Random) -> str:
    identity = str(uuid.UUID(int=chance.getrandbits(128), version=4))
    stamp = "2026-01-01T00:00:00.000Z"
    meta = {"id": identity, "cwd": str(cwd), "originator": "codex-tui", "source": "vscode", "cli_version": "0.169.0"}
    records = [{"timestamp": stamp, "type": "session_meta", "payload": meta}]
    for turn in range(4):
        role, kind = ("assistant", "output_text") if turn % 2 else ("user", "input_text")
        content = [{"type": kind, "text": f"{words} turn {turn}"}]
        payload = {"type": "message", "role": role, "content": content}
        records.append({"timestamp": stamp, "type": "response_item", "payload": payload})
    name = f"rollout-2026-01-01T00-00-00-{identity}.jsonl"
    return _written(home.folder / ".codex/sessions/2026/01/01" / name, records, identity)


def _written(path: Path, records: list[dict], identity: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    os.utime(path, (1.78e9, 1.78e9))
    return identity
