"""The tables, and the rules that the database itself enforces."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import psycopg
import pytest

import smart_fork.team.server
from smart_fork.team.server.database import _TABLES, FORM, create, make_database
from smart_fork.team.server.postgres_process import OWNER

#: What belongs to a project.
PARTITIONS = 16
BY_PROJECT = (
    "sessions",
    "session_segments",
    "segments",
    "uploads",
    "chunks",
    "vectors",
    "placements",
    "session_words",
    "lexemes",
    "rewrites",
    "tombstones",
    "pulls",
    "offers",
)
ROOM = Path(smart_fork.team.server.__file__).parent
STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|MERGE|COPY|LOCK|TRUNCATE)\b")
NAMED = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE|COPY|TABLE|USING)\s+({'|'.join(BY_PROJECT)})\b", re.IGNORECASE)


def statements(module: str):
    """Yield the SQL texts of a module. Texts in several parts are joined."""
    tree = ast.parse(module)
    parts = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and node not in parts else None
        if isinstance(node, ast.JoinedStr):
            text = "".join(part.value if isinstance(part, ast.Constant) else " … " for part in node.values)
        if isinstance(text, str) and STATEMENT.match(text):
            yield text


def without_a_project(module: str):
    return [text for text in statements(module) if NAMED.search(text) and "project_id" not in text]


def test_every_statement_on_what_belongs_to_a_project_names_its_project():
    modules = {path.name: path.read_text() for path in ROOM.glob("*.py")}

    assert {} == {name: found for name, text in modules.items() if (found := without_a_project(text))}
    assert any(NAMED.search(text) for module in modules.values() for text in statements(module))


def test_a_statement_without_its_project_is_seen():
    assert ["SELECT 1 FROM sessions WHERE id = 1"] == without_a_project('x = "SELECT 1 FROM sessions WHERE id = 1"')
    assert 1 == len(without_a_project('x = f"DELETE FROM segments WHERE {y}"'))
    assert 1 == len(without_a_project('x = "SELECT 1 FROM users u JOIN pulls p ON p.user_id = u.id"'))
    assert [] == without_a_project('x = "SELECT 1 FROM users"\ny = "SELECT 1 FROM sessions WHERE project_id = 1"')


def test_what_is_found_by_its_words_is_partitioned_by_its_project(owned):
    """One word index for all projects was ten times as slow."""
    children = owned.execute("SELECT inhparent::regclass::text, count(*) FROM pg_inherits GROUP BY 1").fetchall()
    assert {"chunks": PARTITIONS, "session_words": PARTITIONS} == {
        name: count for name, count in children if name in BY_PROJECT
    }


def test_keys_begin_with_the_project(owned):
    keys = owned.execute(
        "SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'p'"
    ).fetchall()

    assert all(definition.startswith("PRIMARY KEY (project_id") for name, definition in keys if name in BY_PROJECT)


def test_the_servers_role_owns_nothing_and_goes_around_no_rule(owned):
    owns = "SELECT count(*) FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner WHERE r.rolname = 'smartfork_app'"
    role = "SELECT rolsuper, rolbypassrls, rolcreaterole, rolcreatedb FROM pg_roles WHERE rolname = 'smartfork_app'"

    assert (0,) == owned.execute(owns).fetchone()
    assert (False, False, False, False) == owned.execute(role).fetchone()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM audit",
        "UPDATE audit SET verb = 'x'",
        "DELETE FROM audit",
        "TRUNCATE audit",
        "DELETE FROM sessions",
        "ALTER TABLE sessions DISABLE ROW LEVEL SECURITY",
        "CREATE TABLE mine(x int)",
        "DROP TABLE users",
        "DELETE FROM users",
        "UPDATE form SET number = 0",
        "SELECT * FROM chunks_3",
        "COPY users TO PROGRAM 'id'",
        "SELECT pg_read_file('/etc/passwd')",
        "SET ROLE smartfork",
    ],
)
def test_the_servers_role_may_not(app, statement):
    with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.InvalidParameterValue)):
        app.execute(statement)


def test_tables_are_made_once(owned):
    create(owned)
    assert [(FORM,)] == owned.execute("SELECT number FROM form").fetchall()


def test_tables_that_could_not_all_be_made_are_made_from_the_beginning(database, monkeypatch, tmp_path):
    make_database(database.conninfo(OWNER, "postgres"), "half")
    broken = tmp_path / "schema.sql"
    broken.write_bytes(_TABLES.read_bytes() + b"\nSELECT 1 / 0;")
    with psycopg.connect(database.conninfo(OWNER, "half"), autocommit=True) as db:
        monkeypatch.setattr("smart_fork.team.server.database._TABLES", broken)
        with pytest.raises(psycopg.errors.DivisionByZero):
            create(db)
        assert (None,) == db.execute("SELECT to_regclass('form')").fetchone()
        monkeypatch.undo()
        create(db)
        assert [(FORM,)] == db.execute("SELECT number FROM form").fetchall()


def test_a_database_is_made_once(database, base):
    make_database(database.conninfo(OWNER, "postgres"), base)


@pytest.fixture
def two(owned, app):
    """A private, a public and a deleted session of Alice. Bob is a member, Carol is not."""
    names = ("alice", "bob", "carol")
    with owned.transaction(force_rollback=True):
        people = [
            owned.execute(
                "INSERT INTO users(name, role) VALUES (%s, 'member') RETURNING id", (f"s-{name}",)
            ).fetchone()[0]
            for name in names
        ]
        project = owned.execute("INSERT INTO projects(key) VALUES ('s.example/two') RETURNING id").fetchone()[0]
        owned.execute("INSERT INTO members VALUES (%s, %s, 'reader')", (project, people[1]))
        for number, (visibility, deleted) in enumerate([(0, False), (1, False), (1, True)]):
            owned.execute(
                "INSERT INTO sessions(project_id, id, owner_id, agent, root_id, base_count, base_digest, head_digest, record_count,"
                " visibility, deleted_at) VALUES (%s, %s, %s, 'a', %s, 0, '', '', 1, %s, CASE WHEN %s THEN now() END)",
                (
                    project,
                    number * "0" + f"{number}".rjust(32 - number, "0"),
                    people[0],
                    f"{number}".rjust(32, "0"),
                    visibility,
                    deleted,
                ),
            )
        yield owned, people, project


def seen_by(db, user, project):
    db.execute("SET LOCAL ROLE smartfork_app")
    db.execute("SELECT set_config('smartfork.user', %s, true)", (str(user),))
    count = db.execute("SELECT count(*) FROM sessions WHERE project_id = %s", (project,)).fetchone()[0]
    readable = db.execute(
        "SELECT count(*) FROM sessions s WHERE project_id = %s AND may_read(s, %s)", (project, user)
    ).fetchone()[0]
    db.execute("RESET ROLE")
    return count, readable


def test_rows_of_sessions_that_somebody_may_not_read_are_none_to_him(two):
    db, (alice, bob, carol), project = two

    assert (3, 2) == seen_by(db, alice, project)  # her deleted one is hers, and not to be read
    assert (1, 1) == seen_by(db, bob, project)
    assert (0, 0) == seen_by(db, carol, project)
    assert (0, 0) == seen_by(db, 0, project)


def test_somebody_elses_session_is_not_changed_even_by_a_wrong_statement(two):
    db, (_, bob, _), project = two
    db.execute("SET LOCAL ROLE smartfork_app")
    db.execute("SELECT set_config('smartfork.user', %s, true)", (str(bob),))

    assert (
        0 == db.execute("UPDATE sessions SET visibility = 1, title = 'mine' WHERE project_id = %s", (project,)).rowcount
    )


def test_who_has_not_said_who_he_is_sees_nothing(app):
    assert (0,) == app.execute("SELECT count(*) FROM sessions").fetchone()
