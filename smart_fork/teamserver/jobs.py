"""Work that is put off: what a request leaves to be done, taken by one of the processes that work in the background.

A job says that something of a session has to be brought up to date, not how it was: of several that wait, of one kind
and one session, one is run. It is run again, later and later, when it has failed or whoever ran it was killed; what it
had done by then is undone, since a job is one transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID

from indexer.masking import mask
from smart_fork.teamserver.database import Connection, Database
from smart_fork.text.snippets import printable

#: On this channel it is said that there is work.
CHANNEL = "smartfork_jobs"
#: So often a job is tried; then it waits for somebody who has read its error.
ATTEMPTS = 8
#: After a failure it waits so long, then twice as long, and so on.
FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=10), timedelta(hours=1)
_ERROR = 300

#: What is run, with the transaction, the project, the session, and its revision when the job was put. What is done for
#: the whole server is given None for these three.
Work: TypeAlias = Callable[..., None]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """Work that was taken."""

    id: int
    kind: str
    project_id: int | None
    session_id: UUID | None
    revision: int | None
    attempts: int


@dataclass(frozen=True, slots=True)
class Kind:
    """What is done for the jobs of a kind. Where `every` is given, it is done for the whole server so often."""

    work: Work
    every: timedelta | None = None


def given_up(db: Connection) -> list[dict[str, Any]]:
    """What was tried so often that it waits for somebody who has read its error."""
    rows = db.execute(
        "SELECT j.id, j.kind, p.key AS project, j.session_id::text AS session_id, j.attempts, coalesce(j.error, '') AS"
        " error FROM jobs j LEFT JOIN projects p ON p.id = j.project_id WHERE j.run_after = 'infinity' ORDER BY j.id"
    )
    return list(rows)


def retry(db: Connection) -> int:
    """Let all that was given up be tried again, as if it had never been; how many these are."""
    done = db.execute("UPDATE jobs SET run_after = now(), attempts = 0 WHERE run_after = 'infinity'").rowcount
    db.execute("SELECT pg_notify(%s, '')", (CHANNEL,))
    return done


class Worker:
    """Takes jobs of the kinds that it knows, one after the other."""

    def __init__(self, database: Database, kinds: Mapping[str, Kind]) -> None:
        self._database, self._kinds = database, kinds

    def begin(self) -> None:
        """See that what is done from time to time has its job."""
        with self._database.asked_by() as db:
            if failed := len(given_up(db)):
                log.warning("%d jobs were given up: smart-fork team jobs shows them, --retry tries them again", failed)
            for name, kind in self._kinds.items():
                if kind.every is not None:
                    db.execute(
                        "INSERT INTO jobs(kind) VALUES (%s) ON CONFLICT (kind) WHERE project_id IS NULL DO NOTHING",
                        (name,),
                    )

    def once(self) -> bool:
        """Take a job whose time has come and run it; whether there was one."""
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
        """How long there is nothing to do, as far as is known now."""
        with self._database.asked_by() as db:
            row = db.execute(
                "SELECT extract(epoch FROM min(run_after) - now())::float AS wait FROM jobs WHERE kind = ANY(%s)"
                " AND run_after < 'infinity'",
                (list(self._kinds),),
            ).fetchone()
        wait = row["wait"] if row else None
        return most if wait is None else max(0.0, min(most, wait))

    def _taken(self) -> Job | None:
        """The next job. It is counted as tried before it is: one that ends its process is not tried for ever."""
        with self._database.asked_by() as db:
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
        with self._database.asked_by() as db:
            # Held for as long as it runs, so that nobody begins it a second time when that is long. Who is too late for
            # that waits here, and finds it done.
            if db.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", (job.id,)).fetchone() is None:
                return
            same = self._same(db, job)
            kind.work(db, job.project_id, job.session_id, job.revision)
            if kind.every is not None:
                db.execute(
                    "UPDATE jobs SET attempts = 0, error = NULL, run_after = now() + %s WHERE id = %s",
                    (kind.every, job.id),
                )
            else:
                db.execute("DELETE FROM jobs WHERE id = ANY(%s)", ([job.id, *same],))

    def _same(self, db: Connection, job: Job) -> list[int]:
        """Jobs that are done with this one: they wait for the same, and were put before it begins."""
        rows = db.execute(
            "SELECT id FROM jobs WHERE project_id = %s AND kind = %s AND session_id = %s AND id <> %s"
            " FOR UPDATE SKIP LOCKED",
            (job.project_id, job.kind, job.session_id, job.id),
        )
        return [row["id"] for row in rows]

    def _failed(self, job: Job, error: Exception) -> None:
        """Say why. Who is asked next is not kept waiting by one that fails for ever."""
        said = mask(printable(f"{type(error).__name__}: {error}"))[:_ERROR]
        gives_up = job.attempts >= ATTEMPTS and self._kinds[job.kind].every is None
        with self._database.asked_by() as db:
            db.execute(
                "UPDATE jobs SET error = %s, run_after = CASE WHEN %s THEN 'infinity' ELSE run_after END WHERE id = %s",
                (said, gives_up, job.id),
            )
