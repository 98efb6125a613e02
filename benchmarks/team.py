"""The team's server: what cannot be had is answered alike also in time, and of many who push at once one wins.

    python benchmarks/team.py [--tries N] [--rounds N] [--pushers N] [--run-as USER --programs DIR] [--json FILE]

A PostgreSQL of its own in a temporary folder. Root has to name a user, and a folder of PostgreSQL's programs that this
user can read. Exit code 1 where a round has not exactly one winner.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from smart_fork.errors import Conflict
from smart_fork.sharing.canonical import LIMITS, NOTHING, digest_of, encode
from smart_fork.team.records import pack
from smart_fork.team.server import auth
from smart_fork.team.server.app import application
from smart_fork.team.server.database import Database, embedded
from smart_fork.team.server.endpoints import ServerContext
from smart_fork.team.server.postgres import Programs, SystemUser, programs
from smart_fork.team.server.push import check_bodies, push
from smart_fork.team.wire import Push

KEY = "example.org/acme/shop"
KINDS = ("private", "deleted", "missing", "other project")


def push_of(session: str, old: list[bytes], new: list[bytes]) -> Push:
    """What a client sends that has these records, of which the first are there already."""
    packed = list(pack([*old, *new]))
    stays = sum(1 for one in packed if one.place.end <= len(old) and one.place.full)
    given = {
        "id": session, "agent": "agent", "base_count": len(old), "base_digest": digest_of(old) if old else NOTHING,
        "count": len(old) + len(new), "digest": digest_of([*old, *new]),
        "position": stays,
        "segments": tuple(one.place for one in packed)[stays:],
        "bodies": [{"digest": one.place.digest, "body": one.body} for one in packed[stays:]],
    }  # fmt: skip
    return Push.model_validate(given, strict=False)


def person(pool: Database, name: str) -> tuple[auth.Person, str]:
    """Somebody new, with a token."""
    with pool.asked_by() as db:
        auth.add_user(db, name)
        token = auth.login(db, auth.invite(db, name), "laptop")[1]
        return auth.known(db, token), token


def alike(pool: Database, tries: int) -> dict[str, Any]:
    """Milliseconds until each kind of what cannot be had is answered, asked for in turn."""
    (alice, _), (bob, token) = person(pool, "alice"), person(pool, "bob")
    ids: dict[str, str] = {}
    for kind in KINDS:
        ids[kind] = str(uuid.uuid4())
        if kind == "missing":
            continue
        with pool.asked_by(alice.id) as db:
            project = auth.project_to_push(db, alice, KEY if kind != "other project" else f"{KEY}/other")
        push(pool, project, alice, check_bodies(push_of(ids[kind], [], [encode({"n": 1})])))
        with pool.asked_by(alice.id) as db:
            auth.set_member(db, KEY, "bob", "writer")
            if kind == "deleted":
                db.execute(
                    "UPDATE sessions SET deleted_at = now() WHERE project_id = %s AND id = %s", (project.id, ids[kind])
                )
    object.__setattr__(LIMITS, "requests_a_minute", 10_000_000)
    app = application(ServerContext(pool))
    taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
    bodies = set()
    with TestClient(app, headers={"Authorization": f"Bearer {token}"}) as client:
        for _ in range(tries):
            for kind in random.sample(KINDS, len(KINDS)):
                path = f"/v1/sessions/{ids[kind]}?project={KEY}"
                begin = time.perf_counter()
                answer = client.get(path)
                taken[kind].append((time.perf_counter() - begin) * 1000)
                assert answer.status_code == 404, answer.text
                bodies.add(answer.content.replace(ids[kind].encode(), b"ID"))
    del bob
    figures = {
        kind: {"p50": round(statistics.median(one), 3), "p90": round(statistics.quantiles(one, n=10)[-1], 3)}
        for kind, one in taken.items()
    }
    middles = [one["p50"] for one in figures.values()]
    return {"tries": tries, "ms": figures, "largest_ratio": max(middles) / min(middles), "bodies": len(bodies)}


def pushing(conninfo: str, token: str, session: str, *, rounds: int, number: int, barrier: Any, answers: Any) -> None:
    """One who pushes on the base that all have seen, in each round at the same time as the others."""
    with Database(conninfo, 1) as pool:
        with pool.asked_by() as db:
            mine = auth.known(db, token)
            project = auth.project(db, mine, KEY)
        base = [encode({"n": -1})]
        for step in range(rounds):
            record = encode({"n": step, "of": number})
            wanted = check_bodies(push_of(session, base, [record]))
            barrier.wait(120)
            begin = time.perf_counter()
            won = False
            with suppress(Conflict):
                won = not push(pool, project, mine, wanted).up_to_date
            answers.put((step, number, won, time.perf_counter() - begin))
            barrier.wait(120)
            with pool.asked_by(mine.id) as db:
                row = db.execute(
                    "SELECT head_digest FROM sessions WHERE project_id = %s AND id = %s", (project.id, session)
                ).fetchone()
            assert row is not None
            head = f"sf1:{bytes(row['head_digest']).hex()}"
            tried = ([*base, encode({"n": step, "of": other})] for other in range(barrier.parties))
            base = next(one for one in tried if digest_of(one) == head)


def one_wins(conninfo: str, pool: Database, rounds: int, pushers: int) -> dict[str, Any]:
    """How many of those who push on one base at once win."""
    carol, token = person(pool, "carol")
    with pool.asked_by(carol.id) as db:
        auth.set_member(db, KEY, "carol", "writer")
        project = auth.project(db, carol, KEY)
    session = str(uuid.uuid4())
    push(pool, project, carol, check_bodies(push_of(session, [], [encode({"n": -1})])))
    spawned = multiprocessing.get_context("forkserver")
    barrier, answers = spawned.Barrier(pushers), spawned.Queue()
    processes = [
        spawned.Process(
            target=pushing,
            args=(conninfo, token, session),
            kwargs={"rounds": rounds, "number": number, "barrier": barrier, "answers": answers},
        )
        for number in range(pushers)
    ]
    for process in processes:
        process.start()
    told = [answers.get(timeout=300) for _ in range(rounds * pushers)]
    for process in processes:
        process.join(60)
    wins = [sum(won for step, _, won, _ in told if step == one) for one in range(rounds)]
    seconds = [took for *_, took in told]
    return {
        "rounds": rounds,
        "pushers": pushers,
        "rounds_with_one_winner": wins.count(1),
        "push_ms_p50": round(statistics.median(seconds) * 1000, 1),
    }


def main() -> int:
    """Measure, print, and say whether it is as it has to be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--pushers", type=int, default=16)
    parser.add_argument("--run-as")
    parser.add_argument("--programs", type=Path)
    parser.add_argument("--json", type=Path)
    said = parser.parse_args()
    found = Programs.at(said.programs) if said.programs else programs()
    with tempfile.TemporaryDirectory(prefix="sf-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        with (
            embedded(Path(folder) / "team", SystemUser.named(said.run_as), 64, found) as cluster,
            Database(cluster.conninfo()) as pool,
        ):
            report = {
                "alike": alike(pool, said.tries),
                "one_wins": one_wins(cluster.conninfo(), pool, said.rounds, said.pushers),
            }
    print(json.dumps(report, indent=2))
    if said.json:
        said.json.write_text(json.dumps(report), encoding="utf-8")
    fine = report["alike"]["bodies"] == 1 and report["one_wins"]["rounds_with_one_winner"] == said.rounds
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
