"""Write and restore backups of the server's database.

A restore fills a new database, and repeats the withdrawals (records removed by their owners) that the old one has. Then
the databases exchange their names in one transaction. So a killed restore leaves the old database in use.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row

from indexer.masking import beginning, mask
from indexer.safe_files import remove
from smart_fork.errors import NotFound, ProgramFailed, Usage
from smart_fork.team.server import withdrawal, withdrawal_log
from smart_fork.team.server.auth import MemberProject
from smart_fork.team.server.database import create, owner_conninfo, owner_transaction
from smart_fork.team.server.postgres_process import APP, OWNER, Cluster, Programs, SystemUser, programs
from smart_fork.team.server.withdrawal import Withdrawal

DEFAULT_DAYS = 30
_NAME = "smart-fork-{made:%Y%m%dT%H%M%SZ}-until-{until:%Y%m%d}.dump"
_UNTIL = re.compile(r"smart-fork-\d{8}T\d{6}Z-until-(\d{8})\.dump")
#: Seconds for which PostgreSQL may still list a killed client.
_DISCONNECT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Backup:
    """A written backup file. The next backup after `until` deletes it. `removed` are files that this one deleted."""

    path: Path
    until: datetime
    size: int
    removed: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class BackupSource:
    """A database with the PostgreSQL programs to back it up. `conninfo` connects as the owner of its tables."""

    conninfo: str
    programs: Programs

    def other(self, name: str) -> str:
        """Return the connection string of another database in the same PostgreSQL."""
        return make_conninfo(self.conninfo, dbname=name)

    @property
    def name(self) -> str:
        """The name of the database in PostgreSQL."""
        return str(conninfo_to_dict(self.conninfo)["dbname"])


@contextmanager
def opened(
    folder: Path, dsn: str | None, *, run_as: str | None = None, stopped: bool = False
) -> Iterator[BackupSource]:
    """Yield the database `dsn`, or the one of the team server in `folder`, with its PostgreSQL programs.

    With `stopped`, the server must not run: its own PostgreSQL is started for this context. Else the database must
    answer.
    """
    if dsn is not None or not stopped:
        if not stopped:
            with owner_transaction(folder, dsn):
                pass  # whoever does not answer says so here
        yield BackupSource(dsn or owner_conninfo(folder), programs())
        return
    with Cluster(folder, SystemUser.named(run_as), programs()).running() as running:
        yield BackupSource(running.conninfo(OWNER), programs())


def backup(place: BackupSource, folder: Path, *, now: datetime, days: int = DEFAULT_DAYS) -> Backup:
    """Write a backup of the database into a folder, and delete expired backups there.

    Raises:
        Usage: the folder cannot be written, or `days` is less than 1.
        ProgramFailed: PostgreSQL could not write the backup.
    """
    if days < 1:
        raise Usage("A backup is kept for at least one day.")
    until = now + timedelta(days=days)
    path = folder / _NAME.format(made=now.astimezone(UTC), until=until.astimezone(UTC))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        hint = "Name a folder in which you may write, on a disk with room: smart-fork team backup DIR"
        raise Usage(f"{path} cannot be written: {error.strerror}", hint) from error
    try:
        with os.fdopen(file, "wb") as target:
            _run(place, ["pg_dump", "--format=custom", "--no-password"], stdout=target.fileno())
            os.fsync(target.fileno())
    except BaseException:
        remove(path)
        raise
    return Backup(path, until, path.stat().st_size, tuple(_expired(folder, now)))


def _expired(folder: Path, now: datetime) -> list[Path]:
    gone = []
    for path in sorted(folder.glob("smart-fork-*.dump")):
        said = _UNTIL.fullmatch(path.name)
        if said and said[1] < f"{now.astimezone(UTC):%Y%m%d}":
            path.unlink()
            gone.append(path)
    return gone


def restore(place: BackupSource, file: Path) -> int:
    """Replace the database by the content of a backup, without the records that owners withdrew after it.

    Return the number of sessions from which such records were removed.

    Raises:
        NotFound: the file does not exist.
        ProgramFailed: the file is not a backup, or could not be read.
        Usage: the server still runs.
    """
    if not file.is_file():
        raise NotFound(f"No such backup: {file}", "smart-fork team backup DIR prints the files that it wrote.")
    with psycopg.connect(place.other("postgres"), autocommit=True) as db:
        if _in_use(db, place.name):
            raise _server_runs()
        _delete_leftovers(db, place.name)
        known = _withdrawals(place.conninfo) if _is_there(db, place.name) else []
        new = f"{place.name}_new_{secrets.token_hex(4)}"
        db.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(new)))
        try:
            _fill(place, new, file)
            done = _repeat_withdrawals(place.other(new), known)
            _exchange(db, place.name, new)
        except BaseException:
            _drop(db, new)
            raise
        _delete_leftovers(db, place.name)
    return done


def _fill(place: BackupSource, new: str, file: Path) -> None:
    with psycopg.connect(place.other(new), autocommit=True) as db:
        if db.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (APP,)).fetchone() is None:
            create(db)  # for the roles, which no backup has: they are the cluster's
            db.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    with file.open("rb") as source:
        inside = BackupSource(place.other(new), place.programs)
        options = ["--exit-on-error", "--single-transaction", "--no-owner", "--no-password"]
        _run(inside, ["pg_restore", *options], stdin=source.fileno())


def _withdrawals(conninfo: str) -> list[Withdrawal]:
    """Return the withdrawn records that the database lists; none if it has no tables yet.

    Raise `ProgramFailed` if the list cannot be read: without it, a restore would bring withdrawn text back.
    """
    try:
        with psycopg.connect(conninfo, row_factory=dict_row) as db:
            made = db.execute("SELECT FROM pg_tables WHERE schemaname = 'public' AND tablename = 'form'").fetchone()
            return withdrawal.withdrawals(db) if made is not None else []
    except psycopg.Error as error:
        name, said = conninfo_to_dict(conninfo)["dbname"], beginning(mask(str(error).strip()), 200)
        raise ProgramFailed(
            f"The withdrawals in {name} cannot be read: {said}",
            "Withdrawn text would come back. To restore nevertheless, drop that database first.",
        ) from error


def _repeat_withdrawals(conninfo: str, known: list[Withdrawal]) -> int:
    """Repeat the `known` withdrawals in a restored database. Return the number of sessions that had the records."""
    done = 0
    with psycopg.connect(conninfo, autocommit=True) as db:
        create(db)  # refuses the tables of another version
    with psycopg.connect(conninfo, autocommit=True, row_factory=dict_row) as db:
        # Clients ask for what is newer than the last number that they have seen, which may be of after the backup.
        db.execute(
            "SELECT setval('rewrite_numbers', greatest(extract(epoch FROM now())::bigint, last_value + 1))"
            " FROM rewrite_numbers"
        )
        here = {(one.project, one.session_id): one.edits.keys() for one in withdrawal.withdrawals(db)}
        for one in known:
            if one.edits.keys() <= here.get((one.project, one.session_id), set()):
                continue
            done += 1
            row = db.execute(
                "SELECT p.id, s.owner_id FROM projects p JOIN sessions s ON s.project_id = p.id"
                " WHERE p.key = %s AND s.id = %s",
                (one.project, one.session_id),
            ).fetchone()
            if row is not None:
                where = MemberProject(row["id"], one.project, "maintainer")
                withdrawal.repeat_withdrawal(db, row["owner_id"], one, where)
                continue
            project = db.execute("SELECT id FROM projects WHERE key = %s", (one.project,)).fetchone()
            if project is not None:  # not there yet: it must not be pushed as it was
                withdrawal_log.add_tombstones(db, project["id"], one.session_id, one.edits)
    return done


def _in_use(db: psycopg.Connection[tuple[object, ...]], name: str) -> bool:
    """Return True if clients stay connected to a database for more than a moment.

    PostgreSQL drops the connection of a killed client only a little later. Its own background workers are no clients.
    """
    clients = "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
    until = time.monotonic() + _DISCONNECT_SECONDS
    while db.execute(clients, (name,)).fetchone():
        if time.monotonic() > until:
            return True
        time.sleep(0.05)
    return False


def _is_there(db: psycopg.Connection[tuple[object, ...]], name: str) -> bool:
    return db.execute("SELECT FROM pg_database WHERE datname = %s", (name,)).fetchone() is not None


def _exchange(db: psycopg.Connection[tuple[object, ...]], name: str, new: str) -> None:
    """Exchange the names of the old and the new database in one transaction, so that the server uses the new one."""
    before = f"{name}_old_{secrets.token_hex(4)}"
    try:
        with db.transaction():
            if _is_there(db, name):
                _rename(db, name, before)
            _rename(db, new, name)
    except psycopg.errors.ObjectInUse as error:
        raise _server_runs() from error


def _server_runs() -> Usage:
    return Usage("The server still runs: its database has a connection.", "Stop it first")


def _rename(db: psycopg.Connection[tuple[object, ...]], old: str, new: str) -> None:
    db.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(old), sql.Identifier(new)))


def _delete_leftovers(db: psycopg.Connection[tuple[object, ...]], name: str) -> None:
    """Delete the databases that earlier restores left behind: replaced ones, and incomplete new ones."""
    pattern = re.compile(rf"{re.escape(name)}_(old|new)_[0-9a-f]{{8}}")
    for (other,) in db.execute("SELECT datname FROM pg_database").fetchall():
        if pattern.fullmatch(str(other)):
            _drop(db, str(other))


def _drop(db: psycopg.Connection[tuple[object, ...]], name: str) -> None:
    db.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def _run(
    place: BackupSource, argv: list[str], *, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.DEVNULL
) -> None:
    """Run one of PostgreSQL's programs on the database. `argv` is its command line.

    A password is passed in the environment, since other users could read it in the command line.
    """
    values: dict[str, Any] = conninfo_to_dict(place.conninfo)
    secret = {"PGPASSWORD": str(values.pop("password"))} if "password" in values else {}
    if "sslpassword" in values:
        raise Usage("A backup cannot be made with sslpassword in the address of the database.")
    try:
        done = subprocess.run(
            [place.programs[argv[0]], *argv[1:], f"--dbname={make_conninfo(**values)}"],
            env={**os.environ, "LC_ALL": "C", "TZ": "UTC", **secret},  # libpq's own settings, as the server has them
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            check=False,
        )
    except OSError as error:
        raise ProgramFailed(
            f"{argv[0]} cannot be run ({error.strerror}).", f"Look into {place.programs.folder}"
        ) from error
    if done.returncode:
        said = beginning(mask(done.stderr.decode("utf-8", "replace").strip()), 500)
        raise ProgramFailed(f"{argv[0]} has failed.", said)
