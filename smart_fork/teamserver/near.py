"""The nearest vectors of a large project, by an index of its own.

To compare a question with each vector of a project takes as long as there are many. A graph of neighbours (HNSW) takes
as long for any number, but loses what is filtered afterwards: so each large project has one, over nothing but what all
its members may read. What only its asker may read is compared one by one, there as everywhere.

It is made and taken away while all else goes on (``CONCURRENTLY``), by who owns the tables; until it is whole, each
vector is compared.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

#: From so many vectors on a project has one; it keeps it until they are half as many.
LARGE = 50_000
#: The job that looks after them, and the memory that it may take to make one: a graph that does not fit takes ten times
#: as long.
JOB, MEMORY = "near", "512MB"
#: So many candidates are kept while the graph is walked, at least: with 40, which is usual, a quarter is missed.
CANDIDATES, MOST_CANDIDATES = 200, 1_000
_NAME = "vectors_near"

log = logging.getLogger(__name__)


class _Crowd(NamedTuple):
    """The vectors of a project, in one space, that all members may read."""

    project_id: int
    space: int

    @property
    def graph(self) -> str:
        return f"{_NAME}_{self.project_id}_{self.space}"


def tend(conninfo: str, large: int = LARGE) -> None:
    """Make what is lacking, and take away what was not finished or is not needed any more."""
    with psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as db:
        # It works in one process: several share a memory that is small in a container.
        db.execute("SELECT set_config('maintenance_work_mem', %s, false)", (MEMORY,))
        db.execute("SET max_parallel_maintenance_workers = 0")
        there = _there(db)
        crowds = _crowds(db, large // 2)
        for name in there:
            if not there[name] or name not in {crowd.graph for crowd in crowds}:
                db.execute(sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(name)))
        for crowd, number in crowds.items():
            if number >= large and not there.get(crowd.graph):
                _make(db, crowd)


def _there(db: psycopg.Connection[Any]) -> dict[str, bool]:
    """Those that there are by name, and whether each is whole."""
    rows = db.execute(
        "SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
        " WHERE c.relnamespace = 'public'::regnamespace AND c.relname ~ %s",
        (rf"^{_NAME}_\d+_\d+$",),
    )
    return dict(rows.fetchall())


def _crowds(db: psycopg.Connection[Any], least: int) -> dict[_Crowd, int]:
    rows = db.execute(
        "SELECT project_id, space, count(*) FROM vectors WHERE reach = 0 GROUP BY project_id, space"
        " HAVING count(*) >= %s",
        (max(least, 1),),
    )
    return {_Crowd(project_id, space): number for project_id, space, number in rows}


def _make(db: psycopg.Connection[Any], crowd: _Crowd) -> None:
    row = db.execute(
        "SELECT vector_dims(e) FROM vectors WHERE project_id = %s AND space = %s LIMIT 1",
        crowd,
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
