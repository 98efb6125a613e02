"""Searching what a team shares beside searching the same sessions here: quality, calibration and time, in one run.

    python benchmarks/team_search.py CORPUS [--home DIR] [--also FILE] [--sessions N] [--others N] [--copies N]
        [--json FILE]

CORPUS and ``--home`` as for ``retrieval.py``. All sessions are pushed to one project of a server of this run, by its
own code, with the vectors that the own index has of them. After a round that counts for nothing each labelled query is
asked of both sides in turn, its vector made before. `added` is what the server's answer takes beyond the own search,
while which it is asked: over HTTP, from the question to the chances of all that is found. With ``--others`` they are
asked once more when the server has so many sessions in other projects, with ``--copies`` when it has each of these so
many times more in the same one, first with every vector compared, then with the index that a large project gets: of
the time alone. Copies are made of the rows in the database, with vectors that lie beside those of the originals.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from _served import percentile
from retrieval import home_of, opened

KEY = "example.org/bench/corpus"
DEPTH, BINS = 12, 10
#: Queries of the round that counts for nothing.
WARM = 12
#: What is searched, for a copy of it.
SEARCHED = ("sessions", "chunks", "vectors", "placements", "session_words", "lexemes")
#: How long the server may take, in times of the own search, and of what it takes with fewer sessions.
GOALS = {"time_ratio": 3.0, "others_ratio": 3.0}
#: How many milliseconds a search of the team may add, with 10,000 chunks and with 100,000.
ADDED = {"pushed": 100.0, "copies": 400.0, "graph": 400.0}


class Asked(NamedTuple):
    """A query on one side: whether the best hit is right, its chance, and how long it took."""

    right: bool
    chance: float
    seconds: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--home", type=Path, help="keep the index here (SMART_FORK_HOME)")
    parser.add_argument("--also", type=Path, help="further phrasings of the queries")
    parser.add_argument("--sessions", type=int, help="push so many alone, to see that it works")
    parser.add_argument("--others", type=int, default=0, help="sessions in other projects of the server, at least")
    parser.add_argument("--copies", type=int, default=0, help="of each session in the same project")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    from smart_fork.team.server.jobs import tend

    with home_of(arguments.corpus, arguments.home) as laid_out, ExitStack() as stack:
        labelled = opened(laid_out, arguments.also)
        server = stack.enter_context(served())
        started = time.perf_counter()
        pushed = push_all(labelled, server, arguments.sessions)
        seconds = time.perf_counter() - started
        figures = compare(labelled, server, pushed) | {"sessions": len(pushed), "indexing_seconds": round(seconds, 1)}
        if arguments.others:
            copied(server, -(-arguments.others // len(pushed)), apart=True)
            figures["others"] = slower(labelled, server, pushed, figures, "others_ratio")
        if arguments.copies:
            copied(server, arguments.copies, apart=False)
            figures["copies"] = slower(labelled, server, pushed, figures, "copies_ratio")
            started = time.perf_counter()
            tend(server.owner)
            figures["graph_seconds"] = round(time.perf_counter() - started, 1)
            figures["graph"] = slower(labelled, server, pushed, figures, "graph_ratio")
    print(json.dumps(figures, indent=1))
    for where, name, value in ratios(figures):
        kept = "" if value <= GOALS[name] else "  missed"
        print(f"{where:<8}{name:<14}{value:>8.2f}   at most {GOALS[name]:g}{kept}")
    for place, most in ADDED.items():
        for way, told in figures.get(place, {"alone": figures["alone"], "also": figures.get("also")}).items():
            if told and place in {"pushed", *figures}:
                value = told["added_ms_p50"]
                kept = "" if value <= most else "  missed"
                print(
                    f"{way:<8}added, {place:<8}{value:>7.1f} ms at most {most:g}{kept} (p95 {told['added_ms_p95']:.1f})"
                )
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


class Served(NamedTuple):
    """A server of this run: its database, a client of it, and who asks."""

    database: Any
    client: Any
    person: Any
    owner: str


@contextmanager
def served() -> Iterator[Served]:
    """An empty server with one person in it, over HTTP."""
    import psycopg

    from smart_fork.sharing.canonical import LIMITS
    from smart_fork.team.client import Client
    from smart_fork.team.login import Account
    from smart_fork.team.server import auth
    from smart_fork.team.server.app import ServerContext, application
    from smart_fork.team.server.database import Database, create, make_database
    from smart_fork.team.server.postgres import APP, OWNER, Cluster, programs
    from smart_fork.team.server.postgres import SystemUser as System

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sf-", dir="/tmp")))
        folder.chmod(0o755)
        account = System.named("nobody" if os.geteuid() == 0 else None)
        embedded = stack.enter_context(Cluster(folder / "run", account, programs(), {"fsync": "off"}).running())
        make_database(embedded.conninfo(OWNER, "postgres"), "bench")
        with psycopg.connect(embedded.conninfo(OWNER, "bench"), autocommit=True) as db:
            create(db)
        database = stack.enter_context(Database(embedded.conninfo(APP, "bench")))
        with database.asked_by() as asked:
            auth.add_user(asked, "alice")
            token = auth.login(asked, auth.invite(asked, "alice"), "bench")[1]
            person = auth.known(asked, token)
        app = application(ServerContext(database))
        for limit in ("requests_a_minute", "bytes_an_hour"):
            object.__setattr__(LIMITS, limit, 10**12)
        address = stack.enter_context(_listening(app))
        client = stack.enter_context(Client(Account(address, "alice", token)))
        yield Served(database, client, person, embedded.conninfo(OWNER, "bench"))


@contextmanager
def _listening(app: Any) -> Iterator[str]:
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", 0, lifespan="off", log_level="critical", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def push_all(labelled: Any, server: Served, most: int | None) -> dict[str, str]:
    """Every session of the index that can be shared, pushed and indexed: the ids there, with those here."""
    from smart_fork.errors import SmartForkError
    from smart_fork.team.server import auth
    from smart_fork.team.server.push import check_bodies, push

    with server.database.asked_by(server.person.id) as db:
        project = auth.project_to_push(db, server.person, KEY)
    pushed: dict[str, str] = {}
    for agent, session_id, path in labelled.store.sources()[:most]:
        try:
            wanted = _push_of(agent, Path(path))
            push(server.database, project, server.person, check_bodies(wanted))
            _index(server, project.id, wanted.id)
        except SmartForkError as error:
            print(f"not pushed: {error.message}"[:100], file=sys.stderr)
            continue
        pushed[wanted.id] = session_id
        if len(pushed) % 50 == 0:
            print(f"pushed {len(pushed)}", file=sys.stderr)
    return pushed


def _push_of(agent: str, path: Path) -> Any:
    from smart_fork.agents import AGENTS
    from smart_fork.agents.forms import HomePlace
    from smart_fork.agents.readers import READERS
    from smart_fork.sharing.canonical import NOTHING, digest_of, encode
    from smart_fork.team.push import vectors_here
    from smart_fork.team.records import pack
    from smart_fork.team.wire import Push

    session = READERS[agent].read(path).session
    forms, place = AGENTS.forms_of(agent), HomePlace(session.cwd.rstrip("/") or "/nowhere", "/home/nobody")
    records = [encode(forms.outgoing(record, place)) for record in forms.records_of(session)]
    packed = list(pack(records))
    bodies = [{"digest": one.place.digest, "body": one.body} for one in packed]
    pushed = Push.model_validate(
        {
            "id": str(uuid.uuid4()), "agent": agent, "base_count": 0, "base_digest": NOTHING, "count": len(records),
            "digest": digest_of(records), "segments": tuple(one.place for one in packed), "bodies": bodies,
            "visibility": "public", "title": str(session.title)[:200],
        },
        strict=False,
    )  # fmt: skip
    return pushed.model_copy(update={"vectors": vectors_here(session, records)})


def _index(server: Served, project_id: int, session_id: str) -> None:
    from smart_fork.team.server.index import index

    with server.database.asked_by() as db:
        index(db, project_id, session_id, 1)


def compare(labelled: Any, server: Served, pushed: dict[str, str]) -> dict[str, Any]:
    """Each query, asked of both sides in turn."""
    from smart_fork.agents.readers import READERS

    figures: dict[str, Any] = {}
    for again in (False, True)[: 1 + labelled.again]:
        here, elsewhere = [], []
        scope = labelled.store.scope(None, READERS.names, automated=True)
        queries = _answered(labelled, pushed)
        for query in queries[:WARM]:
            _here(labelled, query, scope, set(), again=again)
            _there(labelled, server, query, pushed, set(), again=again)
        for query in queries:
            gold = {answer["session_id"] for answer in query["gold"]}
            kin = {row.session_id for one in gold for row in _family(labelled.store, one)}
            here.append(_here(labelled, query, scope, kin, again=again))
            elsewhere.append(_there(labelled, server, query, pushed, kin, again=again))
        figures["also" if again else "alone"] = {
            "queries": len(queries),
            **_told("sqlite", here),
            **_told("postgres", elsewhere),
            "time_ratio": round(_p50(elsewhere) / _p50(here), 2),
            **_added([b.seconds - a.seconds for a, b in zip(here, elsewhere, strict=True)]),
        }
    return figures


def _answered(labelled: Any, pushed: dict[str, str]) -> list[Any]:
    """The queries whose answer was pushed."""
    there = set(pushed.values())
    return [one for one in labelled.queries if there & {answer["session_id"] for answer in one["gold"]}]


def copied(server: Served, number: int, *, apart: bool) -> None:
    """Copy all that is searched so many times: `apart` into as many other projects, else into the same one."""
    import psycopg

    with psycopg.connect(server.owner, autocommit=True) as db:
        db.execute("SET session_replication_role = replica")  # what is copied is not indexed again
        ((project, most),) = db.execute(
            "SELECT project_id, max(id) FROM chunks GROUP BY 1 ORDER BY 1 LIMIT 1"
        ).fetchall()
        own = f"SELECT session_id FROM session_words WHERE project_id = {project}"  # noqa: S608
        db.execute(f"CREATE TEMP TABLE originals AS {own}")  # type: ignore[arg-type]
        for n in range(1, number + 1):
            to = project
            if apart:
                made = db.execute(
                    "INSERT INTO projects(key) VALUES (%s) RETURNING id", (f"example.org/{n}",)
                ).fetchone()
                to = made[0] if made else project
            for table in SEARCHED if apart else SEARCHED[:-1]:
                _copy(db, table, project, to, most, n)
            print(f"copied {n}", file=sys.stderr)
        if not apart:
            more = f"chunks = chunks * {number + 1}, sessions = sessions * {number + 1}"
            db.execute(f"UPDATE lexemes SET {more} WHERE project_id = {project}")  # type: ignore[arg-type]  # noqa: S608
        db.execute("VACUUM ANALYZE")


def _copy(db: Any, table: str, project: int, to: int, most: int, n: int) -> None:  # noqa: PLR0917
    """The `n`-th copy of the rows that were there before any."""
    named = db.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_name = %s AND is_generated = 'NEVER'", (table,)
    ).fetchall()
    changed = {"project_id": str(to), "chunk_id": f"chunk_id + {n * most}", "family": f"family || '-{n}'"}
    changed |= {name: f"md5({name} || '-{n}')::uuid" for name in ("session_id", "root_id")}
    if table == "chunks":
        changed |= {"id": f"id + {n * most}", "hash": f"sha256(hash || '{n}')"}
    if table == "vectors":  # beside the original, a quarter of the way to another one
        changed["e"] = f"e + e + e + lead(e, {37 * n}, e) OVER (ORDER BY chunk_id)"
    if table == "sessions":
        changed["id"] = f"md5(id || '-{n}')::uuid"
    key = "id" if table == "sessions" else "session_id"
    some = {"chunks": f"id <= {most}", "vectors": f"chunk_id <= {most}", "lexemes": "true"}
    only = some.get(table, f"{key} IN (TABLE originals)")
    columns = [name for (name,) in named]
    db.execute(
        f"INSERT INTO {table}({', '.join(columns)}) OVERRIDING SYSTEM VALUE"  # noqa: S608
        f" SELECT {', '.join(changed.get(name, name) for name in columns)} FROM {table}"
        f" WHERE project_id = {project} AND {only}"
    )


def slower(labelled: Any, server: Served, pushed: dict[str, str], before: dict[str, Any], name: str) -> dict[str, Any]:
    """The time of the server's answers now, and beside that of before."""
    figures: dict[str, Any] = {}
    for again in (False, True)[: 1 + labelled.again]:
        queries = _answered(labelled, pushed)
        asked = [_there(labelled, server, one, pushed, set(), again=again) for one in [*queries[:WARM], *queries]]
        way = "also" if again else "alone"
        asked = asked[min(WARM, len(queries)) :]
        seconds = _p50(asked)
        figures[way] = {
            "postgres_ms_p50": round(1000 * seconds, 1),
            **_added([one.seconds - before[way]["sqlite_ms_p50"] / 1000 for one in asked]),
            name: round(1000 * seconds / before[way]["postgres_ms_p50"], 2),
        }
    return figures


def ratios(figures: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Those that have a goal, each with where it was measured."""
    for way in ("alone", "also"):
        for where in (figures.get(way, {}), figures.get("others", {}).get(way, {})):
            yield from ((way, name, where[name]) for name in GOALS if name in where)


def _family(store: Any, session_id: str) -> list[Any]:
    found = next((row for row in store.find_sessions(session_id) if row.session_id == session_id), None)
    return store.family(found.root_id) if found else []


def _here(labelled: Any, query: Any, scope: Any, kin: set[str], *, again: bool) -> Asked:
    from smart_fork.finding import search
    from smart_fork.finding.query import Query
    from smart_fork.finding.search import SecondLook

    asked = Query(query["query"], scope, DEPTH, everywhere=True, also=query["also"] if again else ())
    started = time.perf_counter()
    hits = search._search(labelled.store, asked, labelled.embed, "hybrid", SecondLook(None)).hits  # noqa: SLF001
    seconds = time.perf_counter() - started
    return Asked(bool(hits) and hits[0].session.session_id in kin, hits[0].score if hits else 0.0, seconds)


def _there(labelled: Any, server: Served, query: Any, pushed: dict[str, str], kin: set[str], *, again: bool) -> Asked:
    import numpy as np

    from indexer.store.base import Scope
    from smart_fork.finding.query import Query
    from smart_fork.finding.ranking import Parts, share, shares_of_phrasings, strongest, weigh_one
    from smart_fork.team.server.index import own_space
    from smart_fork.team.wire import Search

    also = query["also"] if again else ()
    meanings = Query(query["query"], Scope(), DEPTH, also=also).meanings
    vectors = [np.frombuffer(one, np.float32).astype(np.float16).tobytes() for one in labelled.embed(meanings)]
    wanted = Search(question=query["query"], also=also, space=own_space(), e=tuple(vectors), limit=DEPTH)
    started = time.perf_counter()
    found = server.client.search(KEY, wanted)
    shares = shares_of_phrasings(1 + len(also), len(vectors))
    weighed = {
        n: weigh_one([Parts(**one.model_dump()) for one in hit.speaking], shares, similar=hit.similar, words=True)
        for n, hit in enumerate(found.hits)
    }
    families = {n: hit.family for n, hit in enumerate(found.hits)}
    leads: dict[str, float] = {}
    for n, one in weighed.items():
        leads[families[n]] = max(one.lead, leads.get(families[n], one.lead))
    scores = share(weighed, families, strongest(leads))
    seconds = time.perf_counter() - started
    best = max(scores, key=lambda n: scores[n].chance, default=None)
    if best is None:
        return Asked(right=False, chance=0.0, seconds=seconds)
    # Of a copy it is not asked what it is one of.
    return Asked(pushed.get(found.hits[best].session.id) in kin, scores[best].chance, seconds)


def _told(side: str, asked: Sequence[Asked]) -> dict[str, float]:
    return {
        f"{side}_hit@1": round(sum(one.right for one in asked) / len(asked), 3),
        f"{side}_calibration_error": round(_calibration_error(asked), 3),
        f"{side}_ms_p50": round(1000 * _p50(asked), 1),
    }


def _calibration_error(asked: Sequence[Asked]) -> float:
    """How far the chances are from what came true, in the mean over tenths."""
    error = 0.0
    for number in range(BINS):
        some = [one for one in asked if min(int(one.chance * BINS), BINS - 1) == number]
        if some:
            apart = sum(one.chance for one in some) - sum(one.right for one in some)
            error += abs(apart) / len(asked)
    return error


def _added(seconds: Sequence[float]) -> dict[str, float]:
    """What the server takes longer, in milliseconds."""
    longer = [max(0.0, 1000 * one) for one in seconds]
    return {"added_ms_p50": round(percentile(longer, 0.5), 1), "added_ms_p95": round(percentile(longer, 0.95), 1)}


def _p50(asked: Sequence[Asked]) -> float:
    return statistics.median(one.seconds for one in asked)


if __name__ == "__main__":
    main()
