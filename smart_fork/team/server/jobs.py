"""The background jobs: slow work, such as indexing a pushed session, that the background process does later.

A job brings something that is stored about a session up to date. So if several jobs do the same, only one runs. A
failed or killed job runs again, after longer and longer waits. Each job is one transaction, so a kill undoes all of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn, TypeAlias
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg_pool import PoolTimeout

from indexer.masking import mask
from smart_fork.display_text import printable
from smart_fork.team.server import segment_store
from smart_fork.team.server.database import Connection, Database
from smart_fork.team.server.search import index_session

#: The number of vectors from which on a project gets a graph index. It loses the graph below half of that number.
MIN_GRAPH_VECTORS = 50_000
#: The name of the job that creates the graphs, and the memory that it may use: a graph that does not fit takes ten
#: times as long.
GRAPH_JOB, GRAPH_MEMORY = "near", "512MB"
_GRAPH_NAME = "vectors_near"

log = logging.getLogger(__name__)


class _VectorGroup(NamedTuple):
    """The vectors of one project, made by embedding model number `space`, of passages that all members may read.

    A large group gets a graph (an index that finds near vectors).
    """

    project_id: int
    space: int

    @property
    def graph(self) -> str:
        return f"{_GRAPH_NAME}_{self.project_id}_{self.space}"


def update_graphs(conninfo: str, large: int = MIN_GRAPH_VECTORS) -> None:
    """Create a graph (an index that finds near vectors) for each project with at least `large` vectors.

    Drop unfinished graphs, and graphs of projects that have become much smaller.
    """
    with psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as db:
        # It works in one process: several share a memory that is small in a container.
        db.execute("SELECT set_config('maintenance_work_mem', %s, false)", (GRAPH_MEMORY,))
        db.execute("SET max_parallel_maintenance_workers = 0")
        there = _existing_graphs(db)
        crowds = _large_groups(db, large // 2)
        for name in there:
            if not there[name] or name not in {crowd.graph for crowd in crowds}:
                db.execute(sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(name)))
        for crowd, number in crowds.items():
            if number >= large and not there.get(crowd.graph):
                _create_graph(db, crowd)


def _existing_graphs(db: psycopg.Connection[Any]) -> dict[str, bool]:
    """Return the existing vector graphs: a map from each graph's name to True if the graph is complete."""
    rows = db.execute(
        "SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
        " WHERE c.relnamespace = 'public'::regnamespace AND c.relname ~ %s",
        (rf"^{_GRAPH_NAME}_\d+_\d+$",),
    )
    return dict(rows.fetchall())


def _large_groups(db: psycopg.Connection[Any], least: int) -> dict[_VectorGroup, int]:
    rows = db.execute(
        "SELECT project_id, space, count(*) FROM vectors WHERE reach = 0 GROUP BY project_id, space"
        " HAVING count(*) >= %s",
        (max(least, 1),),
    )
    return {_VectorGroup(project_id, space): number for project_id, space, number in rows}


def _create_graph(db: psycopg.Connection[Any], crowd: _VectorGroup) -> None:
    row = db.execute(
        "SELECT vector_dims(e) FROM vectors WHERE project_id = %s AND space = %s LIMIT 1", crowd
    ).fetchone()
    if row is None:
        return
    log.info("a graph is made of the vectors of project %d", crowd.project_id)
    db.execute(
        sql.SQL(
            "CREATE INDEX CONCURRENTLY {} ON vectors USING hnsw ((e::halfvec({})) halfvec_cosine_ops)"
            " WHERE project_id = {} AND space = {} AND reach = 0"
        ).format(sql.Identifier(crowd.graph), sql.Literal(row[0]), *map(sql.Literal, crowd))
    )


#: The PostgreSQL channel on which new jobs are announced.
CHANNEL = "smartfork_jobs"
#: The number of attempts of a job. Then it waits until an admin retries it.
MAX_ATTEMPTS = 8
#: The wait after a job's first failure, which doubles after each further one, and the longest wait.
FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=10), timedelta(hours=1)
_MAX_ERROR = 300

#: The function of a job. It gets the transaction, the project, the session, and the session's revision when the job was
#: queued. These three are `None` for a job for the whole server.
Work: TypeAlias = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Job:
    """A background job that this process has taken from the queue to run it."""

    id: int
    kind: str
    project_id: int | None
    session_id: UUID | None
    revision: int | None
    attempts: int


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of background job, with its function `work`.

    With `every`, the job is not about one session: it runs for the whole server at that interval.
    """

    work: Work
    every: timedelta | None = None


def failed_jobs(db: Connection) -> list[dict[str, Any]]:
    """Return the background jobs that failed too often. They wait until an admin retries them."""
    rows = db.execute(
        "SELECT j.id, j.kind, p.key AS project, j.session_id::text AS session_id, j.attempts, coalesce(j.error, '') AS"
        " error FROM jobs j LEFT JOIN projects p ON p.id = j.project_id WHERE j.run_after = 'infinity' ORDER BY j.id"
    )
    return list(rows)


def retry(db: Connection) -> int:
    """Let all background jobs that failed too often run again. Return their number."""
    done = db.execute("UPDATE jobs SET run_after = now(), attempts = 0 WHERE run_after = 'infinity'").rowcount
    db.execute("SELECT pg_notify(%s, '')", (CHANNEL,))
    return done


class JobWorker:
    """A worker that takes background jobs of the given kinds from the queue and runs them, one after the other."""

    def __init__(self, database: Database, kinds: Mapping[str, Kind]) -> None:
        self._database, self._kinds = database, kinds

    def queue_regular_jobs(self) -> None:
        """Put a job into the queue for each kind that runs at an interval, unless the queue has one."""
        with self._database.transaction() as db:
            if failed := len(failed_jobs(db)):
                log.warning("%d jobs were given up: smart-fork team jobs shows them, --retry tries them again", failed)
            for name, kind in self._kinds.items():
                if kind.every is not None:
                    db.execute(
                        "INSERT INTO jobs(kind) VALUES (%s) ON CONFLICT (kind) WHERE project_id IS NULL DO NOTHING",
                        (name,),
                    )

    def run_next(self) -> bool:
        """Run the next job that is due. Return False if no job is due."""
        job = self._taken()
        if job is None:
            return False
        try:
            self._run(job)
        except Exception as error:  # whatever it is, the next job can be done
            log.warning("a job has failed: %s", job, exc_info=error)
            self._failed(job, error)
        return True

    def seconds_until_next(self, most: float) -> float:
        """Return the seconds until the next waiting job is due, but at most `most`."""
        with self._database.transaction() as db:
            row = db.execute(
                "SELECT extract(epoch FROM min(run_after) - now())::float AS wait FROM jobs WHERE kind = ANY(%s)"
                " AND run_after < 'infinity'",
                (list(self._kinds),),
            ).fetchone()
        wait = row["wait"] if row else None
        return most if wait is None else max(0.0, min(most, wait))

    def _taken(self) -> Job | None:
        """Take the next due job from the queue; return `None` if no job is due.

        The attempt is counted before the job runs, so that a job that always kills its process is not tried forever.
        """
        with self._database.transaction() as db:
            row = db.execute(
                "UPDATE jobs SET attempts = attempts + 1,"
                " run_after = now() + least(%s * power(2, least(attempts, 30)), %s)"
                " WHERE id = (SELECT id FROM jobs WHERE run_after <= now() AND kind = ANY(%s)"
                " ORDER BY run_after, id LIMIT 1 FOR UPDATE SKIP LOCKED)"
                " RETURNING id, kind, project_id, session_id, revision, attempts",
                (FIRST_WAIT, LONGEST_WAIT, list(self._kinds)),
            ).fetchone()
        return None if row is None else Job(**row)

    def _run(self, job: Job) -> None:
        kind = self._kinds[job.kind]
        with self._database.transaction() as db:
            # Held for as long as it runs, so that nobody begins it a second time when that is long. Who is too late for
            # that waits here, and finds it done.
            if db.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", (job.id,)).fetchone() is None:
                return
            same = self._equal_jobs(db, job)
            kind.work(db, job.project_id, job.session_id, job.revision)
            if kind.every is not None:
                db.execute(
                    "UPDATE jobs SET attempts = 0, error = NULL, run_after = now() + %s WHERE id = %s",
                    (kind.every, job.id),
                )
            else:
                db.execute("DELETE FROM jobs WHERE id = ANY(%s)", ([job.id, *same],))

    def _equal_jobs(self, db: Connection, job: Job) -> list[int]:
        """Return the ids of waiting jobs that do the same work as `job`. They are done when `job` is done."""
        rows = db.execute(
            "SELECT id FROM jobs WHERE project_id = %s AND kind = %s AND session_id = %s AND id <> %s"
            " FOR UPDATE SKIP LOCKED",
            (job.project_id, job.kind, job.session_id, job.id),
        )
        return [row["id"] for row in rows]

    def _failed(self, job: Job, error: Exception) -> None:
        said = mask(printable(f"{type(error).__name__}: {error}"))[:_MAX_ERROR]
        gives_up = job.attempts >= MAX_ATTEMPTS and self._kinds[job.kind].every is None
        with self._database.transaction() as db:
            db.execute(
                "UPDATE jobs SET error = %s, run_after = CASE WHEN %s THEN 'infinity' ELSE run_after END WHERE id = %s",
                (said, gives_up, job.id),
            )


#: Seconds between two looks for jobs. A connection pooler may not pass on that there is a new job.
SLEEP_SECONDS = 5.0
_RECONNECT_SECONDS = 1.0


def sweep(db: Connection, *_: None) -> None:
    """Delete segments (blocks of records) that were uploaded and that no session uses, in every project."""
    for row in db.execute("SELECT id FROM projects ORDER BY id").fetchall():
        segment_store.delete_old_unused(db, row["id"])


#: The kinds of background jobs, by name.
KINDS: Mapping[str, Kind] = {"sweep": Kind(sweep, every=timedelta(hours=1)), "index": Kind(index_session)}


def kinds_for(owner: str) -> Mapping[str, Kind]:
    """Return all kinds of background jobs by name. The one that makes vector graphs connects with `owner`."""
    return {**KINDS, GRAPH_JOB: Kind(lambda *_: update_graphs(owner), every=timedelta(minutes=10))}


def work(conninfo: str, database: Database, busy: threading.Lock, kinds: Mapping[str, Kind] = KINDS) -> NoReturn:
    """Run background jobs until the process ends. If the database does not answer, wait for it.

    The lock `busy` is held while a job runs. So a thread that holds the lock can end the process without interrupting a
    job.
    """
    worker = JobWorker(database, kinds)
    while True:
        try:
            with psycopg.connect(conninfo, autocommit=True) as woken:
                woken.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(CHANNEL)))
                worker.queue_regular_jobs()
                while True:
                    with busy:
                        done = worker.run_next()
                    if not done:
                        seconds = worker.seconds_until_next(SLEEP_SECONDS)
                        for _ in woken.notifies(timeout=seconds, stop_after=1):
                            pass
        except (psycopg.OperationalError, PoolTimeout) as error:
            log.warning("the database does not answer", exc_info=error)
            time.sleep(_RECONNECT_SECONDS)
