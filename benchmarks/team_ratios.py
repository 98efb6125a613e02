"""The team's server in ratios of one run: what is stored for what is pushed, what a fork adds, what a push costs.

    python benchmarks/team_ratios.py [--logs DIR] [--only NAME …] [--run-as USER --programs DIR] [--json FILE]

Without ``--logs``, a folder with logs of Claude Code, sessions are made up: prose, code and output of programs whose
words follow Zipf's law. Each ratio stands beside its goal. Processor time is compared where both sides are one process.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psycopg
from _served import busy_machine
from team import KEY, person, push_of

from smart_fork.agents import AGENTS
from smart_fork.agents.claude.log import slug
from smart_fork.agents.forms import Becomes, HomePlace
from smart_fork.agents.readers import READERS
from smart_fork.forking.secrets import MaskedSecrets, Secrets
from smart_fork.sharing import replay
from smart_fork.sharing.canonical import decode, encode, state_after, state_of, written
from smart_fork.sharing.outgoing import Outgoing, Since, prepare
from smart_fork.team.segments import pack, unpack
from smart_fork.team.server import auth, segments, sessions
from smart_fork.team.server.cluster import Account, Programs, programs
from smart_fork.team.server.database import Database, embedded, roles_of
from smart_fork.team.server.index import index
from smart_fork.team.server.push import check_bodies, push
from smart_fork.team.server.sessions import branch
from smart_fork.team.wire import Branch, Push, SegmentBody

AGENT = "claude"
SEGMENTS = ("segments", "session_segments")
SEARCHED = ("chunks", "vectors", "placements", "session_words", "lexemes")
FORKS, PUSHERS, PUSHES = 20, 16, 320
#: The most that each may be, or the least.
GOALS: dict[str, tuple[str, float]] = {
    "segments": ("most", 0.2), "segments_and_search": ("most", 0.4), "family": ("most", 1.5),
    "push": ("most", 1.5), "nothing_new": ("most", 0.1), "pushers": ("least", 4.0), "list": ("most", 2.0),
}  # fmt: skip


@dataclass(frozen=True)
class Bench:
    """A server's database in this process, and one who pushes."""

    owner: str
    app: str
    pool: Database
    alice: auth.Person
    token: str
    logs: list[list[bytes]]

    def project(self, who: auth.Person, key: str = KEY) -> auth.Project:
        """The project, which whoever asks is a writer of."""
        with self.pool.asked_by(who.id) as db:
            auth.project_to_push(db, self.alice, key)
            if who.id != self.alice.id:
                auth.set_member(db, key, who.name, "writer")
            return auth.project(db, who, key)

    def push(self, session: str, records: list[bytes], key: str = KEY) -> None:
        """A new session, which all may read."""
        wanted = push_of(session, [], records).model_copy(update={"agent": AGENT, "visibility": "public"})
        push(self.pool, self.project(self.alice, key), self.alice, check_bodies(wanted))

    def append(self, who: auth.Person, where: auth.Project, session: str, new: list[bytes]) -> None:
        """Go on with a session as a client does, which asks for it first."""
        with self.pool.asked_by(who.id) as db:
            row = sessions.readable(db, where.key, who, session)
            info, places = sessions.told(row), sessions.places(db, where.id, session)
            bodies = segments.bodies(db, where.id, [places[-1].digest])
        last, before, position = places[-1], list[bytes](), len(places)
        if not last.full and last.end != info.base_count:
            before, position = unpack(bodies[last.digest], last.digest), position - 1
        start = last.chain_start if before else state_of(info.head_digest)
        packed = list(pack([*before, *new], info.record_count - len(before), start))
        wanted = Push(
            id=session, agent=AGENT, base_count=info.record_count, base_digest=info.head_digest,
            count=info.record_count + len(new), digest=written(state_after(new, state_of(info.head_digest))),
            position=position, segments=tuple(part.place for part in packed),
            bodies=tuple(SegmentBody(digest=one.place.digest, body=one.body) for one in packed),
        )  # fmt: skip
        push(self.pool, where, who, check_bodies(wanted))

    def index(self) -> None:
        """Do what the worker does, for all that waits."""
        with psycopg.connect(self.owner, autocommit=True) as db:
            waiting = db.execute(
                "SELECT project_id, session_id, max(revision) FROM jobs WHERE kind = 'index'"
                " GROUP BY 1, 2 ORDER BY 3, 2"
            ).fetchall()
            for one in waiting:
                with self.pool.asked_by() as asked:
                    index(asked, *one)
            db.execute("DELETE FROM jobs WHERE kind = 'index'")

    def bytes(self) -> dict[str, int]:
        """What the tables take on disk, with their indexes."""
        with psycopg.connect(self.owner, autocommit=True) as db:
            for name in (*SEGMENTS, *SEARCHED, "sessions"):
                db.execute(psycopg.sql.SQL("VACUUM (FULL) {}").format(psycopg.sql.Identifier(name)))
            found = db.execute(
                "SELECT (parse_ident(coalesce(pg_partition_root(c.oid), c.oid)::regclass::text))[1],"
                " sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE c.relkind = 'r'"
                " AND c.relnamespace = 'public'::regnamespace GROUP BY 1"
            ).fetchall()
            compressed = db.execute("SELECT coalesce(sum(octet_length(body)), 0) FROM segments").fetchone()
        return {name: int(size) for name, size in found} | {"bodies": int(compressed[0]) if compressed else 0}


def storage(bench: Bench) -> dict[str, Any]:
    """What is stored for so many pushed bytes."""
    before = bench.bytes()
    for records in bench.logs:
        bench.push(str(uuid.uuid4()), records)
    bench.index()
    after = bench.bytes()
    pushed = sum(sum(map(len, records)) + len(records) for records in bench.logs)
    grown = {name: after[name] - before[name] for name in after if after[name] > before[name]}
    return {
        "sessions": len(bench.logs), "pushed_bytes": pushed, "stored": grown,
        "segments": sum(grown.get(name, 0) for name in SEGMENTS) / pushed,
        "segments_and_search": sum(grown.get(name, 0) for name in (*SEGMENTS, *SEARCHED)) / pushed,
    }  # fmt: skip


def family(bench: Bench) -> dict[str, Any]:
    """A root, then twenty forks of it by others, who go on a little: half from its end, half from somewhere in it."""
    chance = random.Random(1)
    root, records = str(uuid.uuid4()), max(bench.logs, key=lambda one: -abs(sum(map(len, one)) - 1_500_000))
    others = [person(bench.pool, f"forker-{number}")[0] for number in range(4)]
    before = bench.bytes()
    key = f"{KEY}/family"
    bench.push(root, records, key)
    bench.index()
    alone = bench.bytes()
    for number in range(FORKS):
        who, fork = others[number % len(others)], str(uuid.uuid4())
        count = len(records) if number % 2 else chance.randrange(len(records) // 4, len(records))
        wanted = Branch.model_validate(
            {"verb": "fork", "id": fork, "source_id": root, "count": count}
            | ({"visibility": "public"} if number % 4 < 2 else {}),
            strict=False,
        )
        where = bench.project(who, key)
        branch(bench.pool, where, who, wanted)
        bench.append(who, where, fork, said(chance, 1))
    bench.index()
    all_ = bench.bytes()
    grown = {
        name: (alone[name] - before[name], all_[name] - alone[name]) for name in (*SEGMENTS, *SEARCHED, "sessions")
    }
    root_bytes = sum(alone[name] - before[name] for name in grown)
    return {
        "forks": FORKS, "root_records": len(records), "root_raw": sum(map(len, records)),
        "root_then_forks": {name: sizes for name, sizes in grown.items() if any(sizes)},
        "family": 1 + sum(all_[name] - alone[name] for name in grown) / root_bytes,
    }  # fmt: skip


def listed(bench: Bench) -> dict[str, Any]:
    """The first page of a list, of a hundred sessions and of ten thousand."""
    taken: dict[int, float] = {}
    (reader, _) = person(bench.pool, "reader")
    project = bench.project(reader)
    with psycopg.connect(bench.owner, autocommit=True) as db:
        db.execute("DELETE FROM session_segments"), db.execute("DELETE FROM sessions")
        for number in (100, 10_000):
            db.execute(
                "INSERT INTO sessions(project_id, id, owner_id, agent, root_id, base_count, base_digest, head_digest,"
                " record_count, visibility, title, last_activity) SELECT %s, gen_random_uuid(), %s, 'claude',"
                " gen_random_uuid(), 0, ''::bytea, sha256(n::text::bytea), 10, (n %% 2)::smallint, 'title ' || n,"
                " now() - n * interval '1 minute' FROM generate_series((SELECT count(*) FROM sessions) + 1, %s) n",
                (project.id, bench.alice.id, number),
            )
            db.execute("ANALYZE sessions")
            taken[number] = statistics.median(_page_seconds(bench, project, reader) for _ in range(40))
    return {"ms": {number: round(1000 * one, 2) for number, one in taken.items()}, "list": taken[10_000] / taken[100]}


def _page_seconds(bench: Bench, project: auth.Project, reader: auth.Person) -> float:
    began = time.perf_counter()
    with bench.pool.asked_by(reader.id) as db:
        assert len(sessions.page(db, project, reader, sessions.AskedPage(limit=50)).sessions) == 50
    return time.perf_counter() - began


def said(chance: random.Random, exchanges: int) -> list[bytes]:
    """Exchanges as an agent's log has them: prompts, answers, calls of tools and what they gave back."""
    made: list[dict[str, Any]] = []

    def add(role: str, content: object, **more: object) -> None:
        made.append(
            {
                "type": role, "uuid": str(uuid.UUID(int=chance.getrandbits(128), version=4)), "version": "2.1.0",
                "timestamp": "2026-07-01T10:00:00.000Z", "userType": "external", "isSidechain": False,
                "cwd": "\ue0f0", "gitBranch": "main", "message": {"role": role, "content": content} | more,
            }
        )  # fmt: skip

    for _ in range(exchanges):
        add("user", _prose(chance, 30))
        for _ in range(chance.randrange(1, 4)):
            call = f"toolu_{chance.getrandbits(96):024x}"
            given = {"command": f"grep -rn {_prose(chance, 2)} src/{_prose(chance, 1)}.py"}
            add("assistant", [{"type": "tool_use", "id": call, "name": "Bash", "input": given}], stop_reason="tool_use")
            add("user", [{"type": "tool_result", "tool_use_id": call, "content": _code(chance, 40)}])
        add("assistant", [{"type": "text", "text": _prose(chance, 120)}], stop_reason="end_turn")
    return [encode(record) for record in made]


def _prose(chance: random.Random, words: int) -> str:
    return " ".join(_WORDS[min(int(chance.paretovariate(0.8)), len(_WORDS) - 1)] for _ in range(words))


def _code(chance: random.Random, lines: int) -> str:
    return "\n".join(
        f"src/{_prose(chance, 1)}/{_prose(chance, 1)}.py:{chance.randrange(900)}:    {_prose(chance, 1)}_"
        f"{_prose(chance, 1)} = self.{_prose(chance, 1)}({_prose(chance, 2)}, {chance.randrange(99)})"
        for _ in range(lines)
    )


_SYLLABLES = [f"{first}{second}" for first in "bcdfghjklmnprstvw" for second in ("a", "o", "i", "ent")]
_WORDS = ["".join(random.Random(number).choices(_SYLLABLES, k=2 + number % 3)) for number in range(20_000)]


def made_up(number: int) -> list[list[bytes]]:
    """So many sessions, of which one is some megabytes long."""
    return [said(random.Random(seed), 25 + 25 * (seed % 5)) for seed in range(number)]


def real(folder: Path, most: int) -> list[list[bytes]]:
    """The records of real logs, as they are shared."""
    found, forms = [], AGENTS.forms_of(AGENT)
    for log in sorted(folder.rglob("*.jsonl"), key=lambda one: one.name):
        if not 200_000 < log.stat().st_size < 4_000_000:
            continue
        session = READERS[AGENT].read(log).session
        if session is None or session.origin == "subagent":
            continue
        place = HomePlace(session.cwd.rstrip("/") or "/nowhere", "/home/nobody")
        kept = (forms.sent(forms.outgoing(record, place)) for record in forms.records_of(session))
        found.append([encode(record) for record in kept if record])
        if len(found) == most:
            break
    return [one for one in found if one]


def client(bench: Bench) -> dict[str, Any]:
    """What a push takes of a client's processor, beside masking the same records; then one with nothing new."""
    folder = Path(os.environ["HOME"])
    root = folder / "shop"
    root.mkdir(parents=True)
    log = folder / ".claude/projects" / slug(str(root)) / f"{uuid.uuid4()}.jsonl"
    log.parent.mkdir(parents=True)
    records, size = list[bytes](), 0
    for record in (record for one in bench.logs for record in one):
        records.append(record)
        size += len(record)
        if size > 1_000_000:
            break
    write_log(log, root, records)
    masking = min(_cpu(lambda: _mask(records)) for _ in range(3))
    once = min(_cpu(lambda: _outgoing(log, root)) for _ in range(3))
    out = _outgoing(log, root)
    since = Since(out.local.count, out.local.digest)
    again = min(_cpu(lambda: _outgoing(log, root, since)) for _ in range(3))
    return {
        "bytes": out.size, "masking_seconds": masking, "push_seconds": once, "nothing_new_seconds": again,
        "push": once / masking, "nothing_new": again / once,
    }  # fmt: skip


def write_log(log: Path, root: Path, records: list[bytes]) -> None:
    """Records that are shared, as their agent's own log."""
    made = AGENTS.forms_of(AGENT).anew(map(decode, records), Becomes(log.stem, HomePlace(str(root), str(Path.home()))))
    log.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in made))


def _cpu(act: Callable[[], object]) -> float:
    began = time.process_time()
    act()
    return time.process_time() - began


def _mask(records: list[bytes]) -> None:
    secrets, found, forms = Secrets(), MaskedSecrets(), AGENTS.forms_of(AGENT)
    for record in map(orjson.loads, records):
        secrets.record(record, forms, found)


def _outgoing(log: Path, root: Path, since: Since | None = None) -> Outgoing:
    """All that a push does before it sends, and packing."""
    session = READERS[AGENT].read(log).session
    out = prepare(log, AGENT, root, since=since, read=session)
    replay.check(out)
    list(pack(out.records))
    return out


def pushing(conninfo: str, token: str, number: int, times: int, barrier: Any) -> None:
    """One who makes a session after the other."""
    chance = random.Random(number)
    with Database(conninfo, 1) as pool:
        with pool.asked_by() as db:
            mine = auth.known(db, token)
            project = auth.project(db, mine, KEY)
        barrier.wait(120)
        for _ in range(times):
            new = [encode({"n": number, "text": chance.randbytes(25_000).hex()})]
            push(pool, project, mine, check_bodies(push_of(str(uuid.uuid4()), [], new)))
    barrier.wait(300)


def pushers(bench: Bench) -> dict[str, Any]:
    """Pushes of 50 kB a second by sixteen processes, and by one."""
    carol, token = person(bench.pool, "carol")
    bench.project(carol)
    spawned, rates = multiprocessing.get_context("forkserver"), dict[int, float]()
    for number in (1, PUSHERS):
        times = PUSHES // number
        barrier = spawned.Barrier(number + 1)
        processes = [
            spawned.Process(target=pushing, args=(bench.app, token, one, times, barrier)) for one in range(number)
        ]
        for process in processes:
            process.start()
        barrier.wait(120)
        began = time.perf_counter()
        barrier.wait(300)
        rates[number] = number * times / (time.perf_counter() - began)
        for process in processes:
            process.join(60)
    return {"a_second": {name: round(one, 1) for name, one in rates.items()}, "pushers": rates[PUSHERS] / rates[1]}


MEASURED: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "storage": storage, "family": family, "client": client, "pushers": pushers, "listed": listed,
}  # fmt: skip


@contextmanager
def opened(said: argparse.Namespace) -> Iterator[Bench]:
    """An empty server's database."""
    found = Programs.at(said.programs) if said.programs else programs()
    account = Account.named(said.run_as or ("nobody" if os.geteuid() == 0 else None))
    logs = real(said.logs, said.sessions) if said.logs else made_up(said.sessions)
    with tempfile.TemporaryDirectory(prefix="sf-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        os.environ["HOME"] = str(Path(folder) / "home")
        with embedded(Path(folder) / "team", account, 64, found) as cluster:
            roles = roles_of(cluster)
            with Database(roles.app) as pool:
                alice, token = person(pool, "alice")
                yield Bench(roles.owner, roles.app, pool, alice, token, logs)


def main() -> int:
    """Measure, print each ratio beside its goal, and say whether all are as they have to be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=Path)
    parser.add_argument("--sessions", type=int, default=12)
    parser.add_argument("--only", nargs="*", choices=MEASURED, default=list(MEASURED))
    parser.add_argument("--run-as")
    parser.add_argument("--programs", type=Path)
    parser.add_argument("--json", type=Path)
    said = parser.parse_args()
    report: dict[str, Any] = {}
    with opened(said) as bench:
        for name in said.only:
            report[name] = MEASURED[name](bench)
    print(json.dumps(report, indent=1), file=sys.stderr)
    fine = True
    for one in report.values():
        for name, (which, goal) in GOALS.items():
            if name in one:
                kept = one[name] <= goal if which == "most" else one[name] >= goal
                fine &= kept
                print(f"{name:<22}{one[name]:>8.2f}   at {which} {goal:<5}{'' if kept else '  missed'}")
    print(f"{busy_machine()}, {os.cpu_count()} cores")
    if said.json:
        said.json.write_text(json.dumps(report), encoding="utf-8")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
