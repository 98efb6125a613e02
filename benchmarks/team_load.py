"""A team's server in mixed use: many sessions of many people, and what each verb takes while all of them work.

    python benchmarks/team_load.py [--sessions 10000] [--people 20] [--projects 50] [--minutes 60] [--patterns 100]
                                   [--pause 0.5] [--json FILE]

The server is a real ``smart-fork team serve`` with a database of its own in a folder that is removed afterwards. First
all sessions are pushed. Then every person does one thing after the other, with a pause between them: lists, searches,
appends to a session, reads one with all its records, makes a branch. Meanwhile memory (PSS of all processes), open
files, processes and connections of the database, and what waits to be indexed are looked at: of an hour's use none may
grow with the hour; rows and bytes on disk grow by what is pushed. Sessions have words that follow Zipf's law; each says
what one of so many patterns says, and goes on with what another one says, whose vectors are made before and sent with
the push. Questions come without a vector, which the server makes. `PAUSE` is in seconds, in the mean.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import psutil
from _served import busy_machine, percentile
from _team import TeamServer
from rich.console import Console
from rich.table import Table

from smart_fork.errors import SmartForkError
from smart_fork.sharing.canonical import NOTHING, digest_of, encode
from smart_fork.team import wire
from smart_fork.team.client import Client
from smart_fork.team.login import Account
from smart_fork.team.records import hash_of, pack, searched, space_of

EXCHANGES, WORDS, VOCABULARY = 27, 60, 30_000
LOOK_SECONDS = 10.0
#: How often which verb is used.
MIX = {"list": 25, "search": 25, "append": 25, "read": 20, "branch": 5}


@dataclass(slots=True)
class Kept:
    """A session that was pushed: its project and its records."""

    id: str
    project: str
    records: list[bytes]


@dataclass(frozen=True)
class Pattern:
    """What a session says, and the vectors of its passages, which are one for each exchange."""

    said: tuple[str, ...]
    vectors: wire.Vectors

    def exchange(self, chance: random.Random) -> tuple[tuple[str, ...], wire.Vectors]:
        """One of its exchanges."""
        n = chance.randrange(EXCHANGES)
        vectors = self.vectors.model_copy(update={"vectors": self.vectors.vectors[n : n + 1]})
        return self.said[2 * n : 2 * n + 2], vectors

    @classmethod
    def made(cls, number: int) -> Self:
        """One of them."""
        from indexer.arrays import np
        from indexer.embedding import LightEmbedder

        chance, model = random.Random(-1 - number), LightEmbedder()
        said = tuple(words(chance, WORDS) for _ in range(2 * EXCHANGES))
        found = searched(records_of(said, chance), "claude", str(uuid.UUID(int=1)), str(uuid.UUID(int=1)))
        assert found is not None
        texts = list(dict.fromkeys(chunk.text for chunk in found.document.chunks))
        assert len(texts) == EXCHANGES
        vectors = (np.asarray(one, np.float16).tobytes() for one in model.embed(texts))
        named = [{"chunk": hash_of(text).hex(), "e": e} for text, e in zip(texts, vectors, strict=True)]
        space = space_of(model.model, model.dimensions)
        return cls(said, wire.Vectors.model_validate({"space": space, "vectors": named}, strict=False))


def words(chance: random.Random, number: int) -> str:
    """Words as people use them: few of them often."""
    return " ".join(f"w{min(int(chance.paretovariate(0.9)), VOCABULARY)}" for _ in range(number))


def records_of(said: Sequence[str], chance: random.Random) -> list[bytes]:
    """A conversation, each time with other ids."""
    made = []
    for number, text in enumerate(said):
        message: dict[str, Any] = {"role": "user", "content": text}
        if number % 2:
            content = [{"type": "text", "text": text}]
            message = {"role": "assistant", "content": content, "stop_reason": "end_turn"}
        identity = str(uuid.UUID(int=chance.getrandbits(128)))
        record = {
            "type": message["role"],
            "uuid": identity,
            "timestamp": "2026-07-01T10:00:00.000Z",
            "message": message,
        }
        made.append(encode(record))
    return made


@dataclass
class Person:
    """One who works: a client of their own, and the sessions that are theirs."""

    name: str
    client: Client
    projects: list[str]
    patterns: list[Pattern]
    chance: random.Random
    pause: float
    appended: int = 0
    mine: list[Kept] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: list[str] = field(default_factory=list)

    def do(self, verb: str, act: Callable[[], object]) -> None:
        """Do it, and note how long it took."""
        began = time.perf_counter()
        try:
            act()
        except SmartForkError as error:
            self.errors.append(f"{verb}: {error.message}")
        self.seconds[verb].append(time.perf_counter() - began)

    def create(self) -> None:
        """A new session, which all members of its project may read."""
        one = Kept(str(uuid.uuid4()), self.chance.choice(self.projects), [])
        pattern = self.chance.choice(self.patterns)
        records, title = records_of(pattern.said, self.chance), words(self.chance, 6)
        self.push(one, records, visibility="public", title=title, vectors=pattern.vectors)
        self.mine.append(one)

    def push(self, one: Kept, new: list[bytes], **options: object) -> None:
        """Append these records."""
        after = [*one.records, *new]
        packed = list(pack(after))
        stays = sum(1 for part in packed if part.place.end <= len(one.records) and part.place.full)
        self.client.push(
            one.project,
            wire.Push.model_validate(
                {
                    "id": one.id, "agent": "claude", "base_count": len(one.records),
                    "base_digest": digest_of(one.records) if one.records else NOTHING, "count": len(after),
                    "digest": digest_of(after),
                    "position": stays,
                    "segments": tuple(part.place for part in packed)[stays:],
                    "bodies": [{"digest": part.place.digest, "body": part.body} for part in packed[stays:]],
                    **options,
                },
                strict=False,
            ),
        )  # fmt: skip
        one.records = after

    def work(self, until: float) -> None:
        """One thing after the other."""
        acts: dict[str, Callable[[], object]] = {
            "list": lambda: self.client.page(self.chance.choice(self.projects)),
            "search": self._search,
            "append": self._append,
            "read": self._read,
            "branch": self._branch,
        }
        while time.monotonic() < until:
            verb = self.chance.choices([*MIX], [*MIX.values()])[0]
            self.do(verb, acts[verb])
            time.sleep(self.chance.expovariate(1 / self.pause))

    def _append(self) -> None:
        said, vectors = self.chance.choice(self.patterns).exchange(self.chance)
        self.push(self.chance.choice(self.mine), records_of(said, self.chance), vectors=vectors)
        self.appended += 1

    def _search(self) -> None:
        project = quote(self.chance.choice(self.projects), safe="/")
        self.client.ask(
            wire.SearchAnswer, "POST", f"projects/{project}/search", wire.Search(question=words(self.chance, 7))
        )

    def _read(self) -> None:
        one = self.chance.choice(self.mine)
        for part in self.client.session(one.project, one.id).segments:
            self.client.segment(one.project, part.digest)

    def _branch(self) -> None:
        one = self.chance.choice(self.mine)
        wanted = wire.Branch(verb="branch", id=str(uuid.uuid4()), source_id=one.id, count=len(one.records) // 2)
        self.client.branch(one.project, wanted)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--people", type=int, default=20)
    parser.add_argument("--projects", type=int, default=50)
    parser.add_argument("--patterns", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--pause", type=float, default=0.5, help="of a person, between two things")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sf-load-"))
    folder.chmod(0o755)  # the database may run as another user
    try:
        with TeamServer(folder) as server:
            figures = measure(server, arguments)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def measure(server: TeamServer, arguments: argparse.Namespace) -> dict[str, Any]:
    """Push everything, then work."""
    projects = [f"example.org/load/p{number:02}" for number in range(arguments.projects)]
    patterns = [Pattern.made(number) for number in range(arguments.patterns)]
    people = [_person(server, number, projects, patterns, arguments.pause) for number in range(arguments.people)]
    began = time.perf_counter()
    with ThreadPoolExecutor(len(people)) as pool:
        shares = [arguments.sessions // len(people)] * len(people)
        list(pool.map(lambda one, share: [one.do("create", one.create) for _ in range(share)], people, shares))
    filled = time.perf_counter() - began
    waited = server.settle()
    print(f"pushed in {filled:.0f} s, indexed {waited:.0f} s later", file=sys.stderr, flush=True)
    looks: list[dict[str, float]] = []
    until = time.monotonic() + arguments.minutes * 60
    workers = [threading.Thread(target=one.work, args=(until,)) for one in people]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        looks.append(server.look())
        print(json.dumps(looks[-1]), file=sys.stderr, flush=True)
        workers[0].join(LOOK_SECONDS)
    left = server.settle()
    looks.append(server.look())
    with server.database() as db:
        dropped = db.execute("SELECT count(*) AS number FROM audit WHERE verb = 'vectors_dropped'").fetchone()
    took: dict[str, list[float]] = defaultdict(list)
    for one in people:
        for verb, seconds in one.seconds.items():
            took[verb] += seconds
    errors = [error for one in people for error in one.errors]
    return {
        "sessions": sum(len(one.mine) for one in people), "people": len(people), "projects": len(projects),
        "minutes": arguments.minutes, "pause": arguments.pause, "fill_seconds": filled, "index_seconds": waited,
        "index_seconds_after": left, "vectors_dropped": dropped["number"],
        "appended": sum(one.appended for one in people),
        "verbs": {
            verb: {"times": len(all_), "p50": percentile(all_, 0.5), "p95": percentile(all_, 0.95), "max": max(all_)}
            for verb, all_ in took.items()
        },
        "errors": len(errors), "first_errors": errors[:5], "looks": looks, "machine": busy_machine(),
        "cores": psutil.cpu_count(),
    }  # fmt: skip


def _person(server: TeamServer, number: int, projects: list[str], patterns: list[Pattern], pause: float) -> Person:
    name = f"person-{number:02}"
    chance = random.Random(number)
    account: Account = server.account(name, projects)
    return Person(name, Client(account), projects, patterns, chance, pause)


def show(figures: dict[str, Any]) -> None:
    """The figures as tables."""
    console = Console()
    table = Table("verb", "times", "p50 ms", "p95 ms", "longest ms", title=f"{figures['sessions']} sessions")
    for verb, one in figures["verbs"].items():
        table.add_row(verb, str(one["times"]), *(f"{one[key] * 1000:.0f}" for key in ("p50", "p95", "max")))
    console.print(table)
    console.print(
        f"pushed in {figures['fill_seconds']:.0f} s, in the search {figures['index_seconds']:.0f} s later, "
        f"after the use {figures['index_seconds_after']:.0f} s; vectors dropped {figures['vectors_dropped']} times; "
        f"{figures['errors']} errors {figures['first_errors']}; {figures['machine']}, {figures['cores']} cores"
    )
    looks = figures["looks"]
    for key in looks[0]:
        quarter = max(1, len(looks) // 4)
        first, last = (sum(one[key] for one in part) / quarter for part in (looks[:quarter], looks[-quarter:]))
        console.print(f"{key}: {first:.1f} in the first quarter, {last:.1f} in the last ({last / max(first, 1):.2f})")


if __name__ == "__main__":
    main()
