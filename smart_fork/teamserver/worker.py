"""The process that works in the background: what it does, and when.

A room whose requests leave work adds its kinds to `KINDS`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import NoReturn

import psycopg
from psycopg_pool import PoolTimeout

from smart_fork.teamserver import near, segments
from smart_fork.teamserver.database import Connection, Database
from smart_fork.teamserver.index import index
from smart_fork.teamserver.jobs import CHANNEL, Kind, Worker

#: So long it sleeps where it is not woken: a pooler between does not pass on that there is work.
SLEEP_SECONDS = 5.0
_AGAIN_SECONDS = 1.0

log = logging.getLogger(__name__)


def sweep(db: Connection, *_: None) -> None:
    """Take away what was sent and is of no session, in every project."""
    for row in db.execute("SELECT id FROM projects ORDER BY id").fetchall():
        segments.sweep(db, row["id"])


#: What is done, by its kind.
KINDS: Mapping[str, Kind] = {
    "sweep": Kind(sweep, every=timedelta(hours=1)),
    "index": Kind(index),
}


def kinds_for(owner: str) -> Mapping[str, Kind]:
    """All kinds. One of them works as the owner of the tables, with a connection of its own."""
    return {**KINDS, near.JOB: Kind(lambda *_: near.tend(owner), every=timedelta(minutes=10))}


def work(conninfo: str, database: Database, busy: threading.Lock, kinds: Mapping[str, Kind] = KINDS) -> NoReturn:
    """Do what is to be done, woken when something is; a database that is away is waited for.

    The lock is held while something is done, so whoever takes it can end the process without breaking off anything.
    """
    worker = Worker(database, kinds)
    while True:
        try:
            with psycopg.connect(conninfo, autocommit=True) as woken:
                woken.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(CHANNEL)))
                worker.begin()
                while True:
                    with busy:
                        done = worker.once()
                    if not done:
                        seconds = worker.seconds_until_next(SLEEP_SECONDS)
                        for _ in woken.notifies(timeout=seconds, stop_after=1):
                            pass
        except (psycopg.OperationalError, PoolTimeout) as error:
            log.warning("the database does not answer", exc_info=error)
            time.sleep(_AGAIN_SECONDS)
