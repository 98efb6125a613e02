"""What the drills share: a small home of logs, our real processes, and what is right afterwards."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import apsw
import pytest

import indexer
from indexer.default_embedder import DIMENSIONS, LightEmbedder
from indexer.embedder import Embedder
from indexer.refresh import complete
from indexer.safe_files import index_db, state_home
from indexer.store.sqlite import Store
from smart_fork.agents.log_readers import READERS
from smart_fork.cli.service.instance import announced
from smart_fork.cli.service.token import token
from tests.indexer.index_inputs import (
    HashEmbedder,
    append,
    claude_log,
    claude_records,
    codex_log,
    content,
    lines,
    same_vectors,
)
from tests.support import forkserver

ROOT = Path(indexer.__file__).parent.parent
SMART_FORK = [sys.executable, "-m", "smart_fork"]
#: Few enough that the model's light engine embeds them: nothing here is about speed.
LOGS = 7
WORDS = ("retry", "backoff", "uploader", "invoice", "parser", "colour", "timeout", "schema", "ledger", "harbour")
#: How long a loaded machine may take for anything: to wait for longer costs nothing where all is well.
SECONDS = 120


def session(number: int) -> str:
    return f"{number:08}-1111-4111-8111-111111111111"


def write_logs(number: int = LOGS) -> list[Path]:
    """Logs of both agents in three projects, torn and broken lines among them."""
    chance = random.Random(5)  # noqa: S311
    made = []
    for one in range(number):
        texts = [f"question {one} about {WORDS[one % len(WORDS)]}", " ".join(chance.choices(WORDS, k=30))]
        cwd = f"/work/project{one % 3}"
        tail = b'broken\n{"torn' if one % 4 == 1 else b""
        made.append(
            codex_log(session(one), cwd, *texts) if one % 5 == 0 else claude_log(session(one), cwd, *texts, tail=tail)
        )
    return made


def grow(path: Path, *texts: str) -> None:
    """Somebody goes on in a session of Claude Code."""
    number = path.read_bytes().count(b"\n")
    append(path, b"\n" + lines(claude_records(path.stem, "/work/grown", texts, first=number)))


def logs() -> dict[str, str]:
    """Every file of the agents, with the digest of what is in it: this must never change by itself."""
    found = [
        path
        for home in (READERS["claude"].home(), READERS["codex"].home())
        for path in home.rglob("*")
        if path.is_file()
    ]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


@contextmanager
def untouched() -> Iterator[None]:
    """Whatever happens within, no log changes."""
    before = logs()
    yield
    assert before == logs()


class Quick(HashEmbedder):
    """Vectors for nothing, under the name of the model that our processes have."""

    def __init__(self) -> None:
        super().__init__(dimensions=DIMENSIONS)
        self.model = LightEmbedder().model


def fresh(folder: Path, embedder: Embedder | None = None) -> dict[str, Any]:
    """What an index made at once of these logs holds. Nobody in this process may index meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SMART_FORK_HOME", str(folder))
        with closing(Store(index_db())) as store:
            complete(store, READERS, embedder or Quick(), patience=0)
        return content(index_db())


def differs(expected: dict[str, Any], apart: int = 1) -> str:
    """In what the index is not as it should be: sessions, chunks, words, vectors or exports; empty where in nothing.

    Vectors may be so many steps `apart` in each place: those of many texts depend a little on which texts they come with.
    """
    actual = content(index_db())
    assert len(expected["vectors"]) == len(expected["chunks"]) > 0
    if not same_vectors(expected["vectors"], actual["vectors"], apart):
        return "vectors"
    return next((name for name in expected if name != "vectors" and expected[name] != actual[name]), "")


def until_right(folder: Path) -> None:
    """Wait until the index holds what a new one in `folder` does."""
    until_holds(fresh(folder, LightEmbedder()))


def until_holds(expected: dict[str, Any], apart: int = 1) -> None:
    """Wait until the index is right. While it is made anew, it may not be there, be damaged, or have no tables yet."""

    def right() -> bool:
        try:
            return not differs(expected, apart)
        except (apsw.Error, OSError):
            return False

    eventually(right, "the index to be right", pause=0.25)  # to look at all of it is work


def eventually(condition: Callable[[], object], what: str, seconds: float = SECONDS, pause: float = 0.05) -> Any:
    """What `condition` gives as soon as it is true."""
    waiting = Event()
    for _ in range(int(seconds / pause)):
        if result := condition():
            return result
        waiting.wait(pause)
    raise AssertionError(f"in vain: {what}")


def environment(**more: str) -> dict[str, str]:
    given = {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "SMART_FORK_BACKGROUND": "0",
        "OPENBLAS_NUM_THREADS": "1",
    }
    return os.environ | given | more


def smart_fork(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A command, run to its end."""
    return forkserver.run(
        [*SMART_FORK, *words], cwd="/", env=environment(**more), capture_output=True, text=True, check=False, timeout=90
    )


def found(intent: str, *words: str, **more: str) -> dict[str, Any]:
    """The answer to a question in every project."""
    answer = smart_fork("find", intent, "--all-projects", "--agent", "both", "--json", *words, **more)
    return dict(json.loads(answer.stdout))


@dataclass
class Service:
    """The service, as a process of its own."""

    process: subprocess.Popen[bytes]
    secret: str = field(default_factory=token)

    def ask(self, path: str) -> tuple[int, dict[str, Any]]:
        address = announced()
        assert address is not None
        with closing(http.client.HTTPConnection(address.host, address.port, timeout=SECONDS)) as connection:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.secret}"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    @property
    def indexing(self) -> dict[str, Any]:
        return dict(self.ask("/status")[1]["indexing"])

    def until_error(self, part: str) -> str:
        """The error that its status tells, once it has this part."""
        return str(eventually(lambda: part in (error := self.indexing["last_error"] or "") and error, part))


@contextmanager
def serving(wait: bool = True, **more: str) -> Iterator[Service]:
    """The service while it runs; ended as the system ends it."""
    (state_home() / "service.json").unlink(missing_ok=True)
    command = [*SMART_FORK, "serve"]
    env = environment(SMART_FORK_INDEXING="true", SMART_FORK_PORT="0", **more)
    with forkserver.Popen(command, cwd="/", env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            if wait:
                eventually(lambda: process.poll() is not None or announced(), "the service to listen")
                assert process.poll() is None, process.stderr.read().decode()
            yield Service(process)
        finally:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=SECONDS)


def records() -> list[dict[str, Any]]:
    """What the service has logged."""
    text = (state_home() / "logs/service.log").read_text()
    return [json.loads(line) for line in text.splitlines()]
