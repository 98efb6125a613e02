"""Of some hundred secrets that agents' logs and commands have, none is in a file of ours that is said to have none."""

from __future__ import annotations

import base64
import gzip
import io
import json
import random
import string
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import apsw
import orjson
import pytest
import zstandard

from indexer.refresh import complete
from indexer.safe_files import index_db, state_home
from indexer.store.sqlite import Store
from smart_fork.agents.log_readers import READERS
from tests.indexer.transcripts.records import ASKED, below_home
from tests.indexer.transcripts.test_resuming import AGENTS
from tests.smart_fork.agents.opencode.database import make as make_opencode
from tests.smart_fork.commands import command_model, run
from tests.smart_fork.forks import eventually
from tests.smart_fork.world import Did

pytestmark = pytest.mark.slow

__all__ = ["command_model", "run"]

#: The files of our home that have what agents wrote as it was (docs/explanation/privacy.md).
UNMASKED = ("kept/", "snapshots/", "marks.key")
#: The fields of records of which the texts get a secret more.
SAID = {
    "text", "content", "message", "command", "cmd", "output", "customTitle", "summary", "thread_name", "gitBranch",
    "branch", "title", "thought", "prompt", "aiTitle", "repository_url", "response_text", "new_string", "stderr",
}  # fmt: skip
LETTERS = string.ascii_letters + string.digits


class Secrets:
    """Makes a secret more each time, and knows them all."""

    def __init__(self) -> None:
        self._random = random.Random(45)  # noqa: S311 - the same each time
        self.made: list[str] = []

    def one(self) -> str:
        """A text with a new secret, in one form after the other that is masked wherever it is."""
        value = "".join(self._random.choices(LETTERS, k=36))
        self.made.append(value)
        return (
            f"ghp_{value}", f"postgres://app:{value}@db.example.org/shop", f"glpat-{value[:20]}",
            f"AWS_SECRET_ACCESS_KEY={value}wJ9x", f"Authorization: Bearer {value}", f"sk-ant-api03-{value}",
            f"password={value}", f"npm_{value}", f"https://x-access-token:{value}@git.example.org/a.git",
        )[len(self.made) % 9]  # fmt: skip

    def planted(self, value: object, key: str = "") -> object:
        """A record with a secret behind each text of it that somebody or something said."""
        if isinstance(value, dict):
            return {name: self.planted(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [self.planted(one, key) for one in value]
        if key == "arguments" and isinstance(value, str) and value.startswith("{"):
            return json.dumps(self.planted(json.loads(value)))
        return f"{value} {self.one()}" if isinstance(value, str) and value and key in SAID else value


@pytest.fixture
def secrets() -> Secrets:
    return Secrets()


@pytest.fixture
def logs(home, shop, secrets, world) -> str:
    """A log of each agent that is read, and a long session in the repository; gives that one's id."""
    named = set()
    for reader, name, records in AGENTS:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(secrets.planted(one)) + "\n" for one in records))
        named.add(reader.name)
    for agent in ASKED.keys() - named:
        (home / below_home(agent)).parent.mkdir(parents=True, exist_ok=True)
        ASKED[agent](home, f"mend the {agent} parser with {secrets.one()}")
    make_opencode(told=lambda said: said.replace("PONG", f"PONG {secrets.one()}"))
    edited = f"{shop}/config/{secrets.one()}.py"
    steps = [f"> retry the uploader, {secrets.one()}", Did("Edit", {"file_path": edited, "new_string": secrets.one()})]
    for number in range(12):
        command = {"command": f"curl -H 'Authorization: Bearer {secrets.made[-1]}' -u me:{secrets.one()}"}
        steps += [Did("Bash", command, f"failed with {secrets.one()}", failed=bool(number % 2))]
        steps += [f"step {number} used {secrets.one()}", f"> and step {number}, with {secrets.one()}"]
    return world.worked("claude", shop, *steps, "It is done.")


def opened(data: bytes, depth: int = 6) -> Iterator[bytes]:
    """What is in these bytes: packed, in a database, in JSON within JSON, in base64."""
    yield data
    if depth == 0:
        return
    inside: list[bytes] = []
    rest = data
    while rest[:2] in (b"\x1f\x8b", b"\x78\x9c", b"\x78\x01", b"\x78\xda"):
        unpacking = zlib.decompressobj(47)
        with suppress(zlib.error):
            inside.append(unpacking.decompress(rest))
        rest = unpacking.unused_data
    if data[:4] == b"\x28\xb5\x2f\xfd":
        with suppress(zstandard.ZstdError):
            inside.append(zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True).read())
    for line in data.splitlines() if data[:1] in b'{["' else ():
        with suppress(orjson.JSONDecodeError):
            inside += (one.encode() for one in texts(orjson.loads(line)) if one.encode() != data)
    if 16 <= len(data) < 1 << 16 and data.translate(None, LETTERS.encode() + b"+/=\n") == b"":
        with suppress(ValueError):
            inside.append(base64.b64decode(data, validate=True))
    for one in inside:
        yield from opened(one, depth - 1)


def texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from texts(one)


def rows(path: Path) -> Iterator[bytes]:
    """Every value in every table of a database."""
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        for (table,) in db.execute(tables).fetchall():
            for row in db.execute(f'SELECT * FROM "{table}"'):  # noqa: S608 - our own names
                yield from (value if isinstance(value, bytes) else str(value).encode() for value in row if value)


def found(secrets: Secrets, *, where: Callable[[str], bool] = lambda name: not name.startswith(UNMASKED)) -> set[str]:
    """The files of our home that have a secret, with its number."""
    there = set()
    wanted = [(number, one[:20].encode()) for number, one in enumerate(secrets.made)]
    for file in state_home().rglob("*"):
        name = str(file.relative_to(state_home()))
        if not file.is_file() or not where(name):
            continue
        data = file.read_bytes()
        values = [data, *(rows(file) if data[:6] == b"SQLite" else ())]
        all_of_it = b"\n".join(one for value in values for one in opened(value))
        there |= {f"{name}: {number}" for number, one in wanted if one in all_of_it or one.lower() in all_of_it}
    return there


def test_the_index_of_the_logs_of_all_agents_has_none_of_their_secrets(logs, secrets):
    with closing(Store(index_db())) as store:
        complete(store, READERS, None, patience=0.0)

    assert len(secrets.made) > 150
    assert set() == found(secrets)


def test_whoever_looks_into_all_that_is_packed_finds_a_secret_there(home):
    """What the other tests look with."""
    secrets = Secrets()
    state_home().mkdir(exist_ok=True)
    said = [secrets.one().encode() for _ in range(4)]
    (state_home() / "a").write_bytes(
        gzip.compress(b"1") + gzip.compress(json.dumps({"x": json.dumps([said[0].decode()])}).encode())
    )
    (state_home() / "b").write_bytes(zstandard.compress(base64.b64encode(said[1])))
    with closing(apsw.Connection(str(state_home() / "c.db"))) as db:
        db.execute("CREATE TABLE t (x BLOB)")
        db.execute("INSERT INTO t VALUES (?)", (zlib.compress(said[2]),))
    (state_home() / "d.jsonl").write_bytes(b"{}\n" + json.dumps({said[3].decode(): 1}).encode())

    assert {"a: 0", "b: 1", "c.db: 2", "d.jsonl: 3"} == found(secrets)


def test_no_command_that_writes_leaves_a_secret_in_a_file_of_ours(run, logs, secrets, scripted, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"Error: {secrets.one()} is not accepted"))
    asked = ("--in", "process")
    commands: list[tuple[str, ...]] = [
        ("index", "run"), ("find", f"uploader with {secrets.one()}"), ("list",), ("read", logs),
        ("show", logs), ("tag", logs, "fine"), ("pin", logs), ("verdict", logs, "kept", f"with {secrets.one()}"),
        ("fork", logs, f"go on with {secrets.one()}", "--dry-run"), ("fork", logs, f"go on with {secrets.one()}", *asked),
        ("new", f"begin with {secrets.one()}", *asked), ("new", f"begin with {secrets.one()}", "--agent", "codex", *asked),
        ("spawn", "--prompt", f"one with {secrets.one()}", *asked), ("branch", logs, "--title", f"by {secrets.one()}"),
        ("branch", logs, "--as", "codex"), ("excise", "list", logs), ("excise", "suggest", logs),
        ("excise", "cut", "2", "--session", logs, "--force", "--yes"), ("excise", "cut", "--secrets", "--session", logs, "--force", "--yes"),
        ("recall", "on"), ("doctor",), ("status",),  ("active",),
        ("worktrees",), ("agents",), ("compare",), ("lineage", logs), ("why", "README.md:1"), ("fix",),
    ]  # fmt: skip
    done = {words[:2]: run(*words) for words in commands}
    codes = {words: one.code for words, one in done.items()}
    assert 0 == done["excise", "cut"].code, done["excise", "cut"]
    hook = {
        "session_id": logs,
        "hook_event_name": "UserPromptSubmit",
        "prompt": f"is {secrets.one()} right?",
        "cwd": str(Path.cwd()),
    }
    subprocess.run(
        [sys.executable, "-P", "-m", "smart_fork.hooks", "claude"], input=json.dumps(hook).encode(), check=True
    )
    eventually(lambda: len(scripted.ran()) >= 4)
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "true")
    run("index", "run")

    assert [] == [
        words for words, code in codes.items() if code not in (0, 1, 3) and words[0] not in ("compare", "fix", "why")
    ], codes
    assert 0 == codes["fork", logs] == codes["index", "run"] == codes["excise", "cut"]
    assert set() == found(secrets)
    assert {"kept", "snapshots"} <= {name.partition("/")[0] for name in found(secrets, where=lambda _: True)}


def test_a_forgotten_session_is_in_no_file_of_ours(run, logs, secrets):
    run("index", "run")
    run("forget", logs, "--yes")

    assert set() == found(secrets)
