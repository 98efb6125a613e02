"""External databases: errors name the missing part and the command that adds it."""

from __future__ import annotations

import os
from types import SimpleNamespace

import psycopg
import pytest

from smart_fork.errors import ProgramFailed, SmartForkError, Usage
from smart_fork.team.server import ServerOptions
from smart_fork.team.server.__main__ import serve
from smart_fork.team.server.administration import carry_out
from smart_fork.team.server.database import _check_version, make_database, owner_transaction, with_tables
from smart_fork.team.server.postgres_process import OWNER
from smart_fork.team.wire import Administer


@pytest.fixture
def empty(database):
    """An empty database."""
    make_database(database.conninfo(OWNER, "postgres"), "empty")
    return database.conninfo(OWNER, "empty")


def test_a_database_without_tables_is_said_to_have_none_and_what_makes_them(empty, tmp_path):
    with pytest.raises(ProgramFailed, match="empty has no tables of the team server yet") as refused:  # noqa: SIM117
        with owner_transaction(tmp_path, empty) as db:
            carry_out(db, Administer(verb="users"))

    assert "smart-fork team serve" in refused.value.hint
    assert "relation" not in refused.value.message


def test_an_owner_who_may_not_make_the_extension_is_told_the_statement(database, base):
    postgres = database.conninfo(OWNER, "postgres")
    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute("CREATE ROLE forks LOGIN CREATEROLE")
        db.execute("CREATE DATABASE forks OWNER forks")
    with pytest.raises(ProgramFailed, match="forks has no pgvector yet") as refused:
        with_tables(database.conninfo("forks", "forks"))

    assert "CREATE EXTENSION vector" in refused.value.hint
    assert "CREATEROLE" not in refused.value.hint


class Answering:
    """A database that gives these answers about its extensions."""

    def __init__(self, row):
        self.info, self._row = SimpleNamespace(server_version=170_000, dbname="forks"), row

    def execute(self, _):
        return SimpleNamespace(fetchone=lambda: self._row)


@pytest.mark.parametrize(
    ("row", "said", "statement"),
    [
        (None, "The PostgreSQL of forks has no pgvector.", "CREATE EXTENSION vector;"),
        (("0.5.1", True), "pgvector 0.5.1 in forks is too old.", "ALTER EXTENSION vector UPDATE;"),
        (("0.5.1", False), "pgvector 0.5.1 in forks is too old.", "CREATE EXTENSION vector;"),
    ],
    ids=["none", "an old one", "an old one to install"],
)
def test_a_database_without_a_good_pgvector_is_named_with_what_to_do(row, said, statement):
    with pytest.raises(ProgramFailed) as refused:
        _check_version(Answering(row))

    assert (said, True) == (refused.value.message, statement in refused.value.hint)


def test_a_pgvector_of_two_digits_is_newer():
    _check_version(Answering(("0.10.0", True)))


def test_root_with_a_database_elsewhere_is_told_of_the_server_and_not_of_postgresql(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    with pytest.raises(Usage, match="The team server does not run as root") as refused:
        serve(ServerOptions("127.0.0.1:0", data=tmp_path, dsn="postgresql://db.internal/forks"), print)

    assert "--run-as USER" in refused.value.hint


def test_a_database_that_cannot_be_reached_is_told_how_its_address_is_written():
    with pytest.raises(SmartForkError, match="cannot be reached") as refused:
        with_tables("postgresql://127.0.0.1:1/forks")

    assert "postgresql://USER@HOST/DATABASE" in refused.value.hint


def test_what_is_no_address_of_a_database_is_said_to_be_none(tmp_path):
    with (
        pytest.raises(ProgramFailed, match="That is not a database address"),
        owner_transaction(tmp_path, "nonsense dsn"),
    ):
        pass
