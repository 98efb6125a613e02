"""The tables of a team's server, as numbered steps, each run and recorded in one transaction.

A released step never changes.

All that belongs to a project begins its key with `project_id` and is partitioned by it, so that several machines could
share the projects one day: a statement on such a table that does not name `project_id` is refused by a test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import psycopg

from smart_fork.errors import SmartForkError
from smart_fork.teamserver.family_schema import m009_families
from smart_fork.teamserver.search_schema import m007_reach
from smart_fork.teamserver.trust import m012_trust
from smart_fork.teamserver.withdrawn_schema import m011_apart
from smart_fork.teamserver.words_schema import m010_soon, m013_worked_on

Connection: TypeAlias = psycopg.Connection[Any]

PARTITIONS = 16
#: What is partitioned by project.
PARTITIONED = (
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
#: Whoever changes the schema holds this lock, of which there is one in a database.
_LOCK = 0x5F0_4B5


def m001_people(db: Connection) -> None:
    """Users with their tokens and invitations, projects with their members."""
    db.execute(
        """
        CREATE TABLE users(
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            name text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9-]{1,32}$'),
            role text NOT NULL CHECK (role IN ('admin', 'member')),
            bytes bigint NOT NULL DEFAULT 0,
            created_at timestamptz NOT NULL DEFAULT now(),
            disabled_at timestamptz
        );
        -- Of a token the hash alone is kept: who reads the database can be nobody.
        CREATE TABLE tokens(
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            user_id bigint NOT NULL REFERENCES users(id),
            hash bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
            machine text NOT NULL,
            scope text NOT NULL CHECK (scope IN ('read', 'write', 'admin')),
            created_at timestamptz NOT NULL DEFAULT now(),
            expires_at timestamptz, used_at timestamptz, revoked_at timestamptz
        );
        CREATE INDEX tokens_user ON tokens(user_id);
        CREATE TABLE invites(LIKE tokens INCLUDING ALL);
        ALTER TABLE invites ADD FOREIGN KEY (user_id) REFERENCES users(id), ALTER expires_at SET NOT NULL;
        CREATE TABLE projects(
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            key text NOT NULL UNIQUE CHECK (length(key) BETWEEN 1 AND 200),
            policy jsonb NOT NULL DEFAULT '{}',
            bytes bigint NOT NULL DEFAULT 0
        );
        CREATE TABLE members(
            project_id bigint NOT NULL REFERENCES projects(id),
            user_id bigint NOT NULL REFERENCES users(id),
            role text NOT NULL CHECK (role IN ('reader', 'writer', 'maintainer')),
            PRIMARY KEY (project_id, user_id)
        );
        CREATE INDEX members_user ON members(user_id);
        CREATE TABLE spaces(
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            fingerprint text NOT NULL UNIQUE  -- of model, dimensions, chunker and masking
        );
        """
    )


def m002_sessions(db: Connection) -> None:
    """Sessions, their segments, and who may see them."""
    db.execute(
        """
        CREATE TABLE sessions(
            project_id bigint NOT NULL REFERENCES projects(id), id uuid NOT NULL,
            owner_id bigint NOT NULL REFERENCES users(id),
            agent text NOT NULL,
            root_id uuid NOT NULL, parent_id uuid,
            base_count bigint NOT NULL, base_digest bytea NOT NULL,
            head_digest bytea NOT NULL, record_count bigint NOT NULL,
            revision bigint NOT NULL DEFAULT 1,
            visibility smallint NOT NULL DEFAULT 0 CHECK (visibility IN (0, 1)),
            title text NOT NULL DEFAULT '', tags text[] NOT NULL DEFAULT '{}', summary text NOT NULL DEFAULT '',
            meta jsonb NOT NULL DEFAULT '{}',
            bytes bigint NOT NULL DEFAULT 0,
            created_at timestamptz NOT NULL DEFAULT now(),
            last_activity timestamptz NOT NULL DEFAULT now(),
            deleted_at timestamptz,
            PRIMARY KEY (project_id, id)
        ) PARTITION BY HASH (project_id);
        CREATE INDEX ON sessions(project_id, root_id);
        CREATE INDEX ON sessions(project_id, parent_id);
        CREATE INDEX ON sessions(project_id, visibility, last_activity, id);
        CREATE INDEX ON sessions(project_id, owner_id, last_activity, id);

        CREATE TABLE session_segments(
            project_id bigint NOT NULL, session_id uuid NOT NULL, position integer NOT NULL,
            digest bytea NOT NULL, first_record bigint NOT NULL, records integer NOT NULL,
            raw_bytes bigint NOT NULL, chain_start bytea NOT NULL,
            PRIMARY KEY (project_id, session_id, position)
        ) PARTITION BY HASH (project_id);
        CREATE INDEX ON session_segments(project_id, digest);

        CREATE TABLE segments(
            project_id bigint NOT NULL, digest bytea NOT NULL,
            records integer NOT NULL, raw_bytes bigint NOT NULL,
            body bytea STORAGE EXTERNAL, object text,
            created_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (project_id, digest),
            CHECK ((body IS NULL) <> (object IS NULL))
        ) PARTITION BY HASH (project_id);

        -- Who has sent a segment: to know its digest is no right to it.
        CREATE TABLE uploads(
            project_id bigint NOT NULL, user_id bigint NOT NULL, digest bytea NOT NULL,
            at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (project_id, user_id, digest)
        ) PARTITION BY HASH (project_id);
        CREATE INDEX ON uploads(project_id, at);

        CREATE TABLE rewrites(
            project_id bigint NOT NULL, session_id uuid NOT NULL, seq bigint NOT NULL,
            kind text NOT NULL, edits jsonb NOT NULL, revision bigint NOT NULL,
            at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (project_id, session_id, seq)
        ) PARTITION BY HASH (project_id);
        CREATE TABLE pulls(
            project_id bigint NOT NULL, session_id uuid NOT NULL, seq bigint GENERATED ALWAYS AS IDENTITY,
            user_id bigint NOT NULL, token_id bigint NOT NULL, revision bigint NOT NULL,
            at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (project_id, session_id, seq)
        ) PARTITION BY HASH (project_id);
        CREATE INDEX ON pulls(project_id, user_id);
        """
    )
    for table in ("sessions", "session_segments", "segments", "uploads", "rewrites", "pulls"):
        _hashed(db, table)
    db.execute(
        """
        CREATE FUNCTION asking() RETURNS bigint LANGUAGE sql STABLE
        RETURN nullif(current_setting('smartfork.user', true), '')::bigint;

        CREATE FUNCTION may_read(session sessions, reader bigint) RETURNS boolean LANGUAGE sql STABLE
        RETURN session.deleted_at IS NULL AND (
            session.owner_id = reader OR session.visibility = 1 AND EXISTS (
                SELECT FROM members m WHERE m.project_id = session.project_id AND m.user_id = reader));

        ALTER TABLE sessions ENABLE ROW LEVEL SECURITY;
        """
    )


def m003_search(db: Connection) -> None:
    """Chunks of what was said, their vectors and their words."""
    db.execute(
        """
        CREATE EXTENSION IF NOT EXISTS vector;

        -- `reach` is 0 for what all members may read, and else the id of the only one who may.
        CREATE TABLE chunks(
            project_id bigint NOT NULL, id bigint GENERATED ALWAYS AS IDENTITY, reach bigint NOT NULL,
            hash bytea NOT NULL, text text NOT NULL, length integer NOT NULL, words tsvector NOT NULL,
            PRIMARY KEY (project_id, id), UNIQUE (project_id, reach, hash)
        ) PARTITION BY HASH (project_id);
        CREATE INDEX ON chunks USING gin(words);

        CREATE TABLE vectors(
            project_id bigint NOT NULL, space bigint NOT NULL, chunk_id bigint NOT NULL, reach bigint NOT NULL,
            e halfvec NOT NULL,
            PRIMARY KEY (project_id, space, chunk_id)
        ) PARTITION BY LIST (project_id);
        CREATE INDEX ON vectors(project_id, space, reach);
        CREATE TABLE vectors_rest PARTITION OF vectors DEFAULT PARTITION BY HASH (project_id);

        CREATE TABLE placements(
            project_id bigint NOT NULL, session_id uuid NOT NULL, position integer NOT NULL,
            chunk_id bigint NOT NULL, turn integer NOT NULL, message_id text NOT NULL, role text NOT NULL,
            exchange integer NOT NULL, ends integer, tokens bigint NOT NULL,
            PRIMARY KEY (project_id, session_id, position)
        ) PARTITION BY HASH (project_id);
        CREATE INDEX ON placements(project_id, chunk_id);

        CREATE TABLE session_words(
            project_id bigint NOT NULL, session_id uuid NOT NULL, reach bigint NOT NULL,
            words tsvector NOT NULL, length integer NOT NULL,
            PRIMARY KEY (project_id, session_id)
        ) PARTITION BY HASH (project_id);
        CREATE INDEX ON session_words USING gin(words);

        CREATE TABLE lexemes(
            project_id bigint NOT NULL, lexeme text NOT NULL, chunks bigint NOT NULL, sessions bigint NOT NULL,
            PRIMARY KEY (project_id, lexeme)
        ) PARTITION BY HASH (project_id);
        """
    )
    for table in ("chunks", "vectors_rest", "placements", "session_words", "lexemes"):
        _hashed(db, table)


def m004_jobs_and_audit(db: Connection) -> None:
    """What is still to be done, and what was done by whom."""
    db.execute(
        """
        CREATE TABLE jobs(
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            project_id bigint NOT NULL, kind text NOT NULL, session_id uuid, revision bigint,
            run_after timestamptz NOT NULL DEFAULT now(), attempts integer NOT NULL DEFAULT 0, error text
        );
        CREATE INDEX jobs_waiting ON jobs(run_after);
        CREATE TABLE audit(
            id bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL DEFAULT now(),
            actor bigint, token bigint, verb text NOT NULL, project_id bigint, session_id uuid,
            details jsonb NOT NULL DEFAULT '{}',
            PRIMARY KEY (id, at)
        ) PARTITION BY RANGE (at);
        CREATE TABLE audit_rest PARTITION OF audit DEFAULT;
        """
    )


def m005_rights(db: Connection) -> None:
    """The role of the server, which owns no table: rows of sessions that its user may not read are none to it."""
    db.execute(
        """
        DO $$ BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'smartfork_app') THEN
                CREATE ROLE smartfork_app LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS;
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
        END $$;
        REVOKE ALL ON SCHEMA public FROM PUBLIC;
        GRANT USAGE ON SCHEMA public TO smartfork_app;
        GRANT SELECT, INSERT, UPDATE ON users, tokens, invites, projects, members, spaces, sessions TO smartfork_app;
        GRANT DELETE ON members TO smartfork_app;
        GRANT SELECT, INSERT, UPDATE, DELETE ON session_segments, segments, uploads, rewrites, pulls,
            chunks, vectors, placements, session_words, lexemes, jobs TO smartfork_app;
        GRANT INSERT ON audit TO smartfork_app;
        GRANT SELECT ON migrations TO smartfork_app;

        -- Its owner also sees what he has deleted: else he could not delete it.
        CREATE POLICY seen ON sessions FOR SELECT TO smartfork_app
            USING (owner_id = asking() OR may_read(sessions, asking()));
        CREATE POLICY made ON sessions FOR INSERT TO smartfork_app WITH CHECK (owner_id = asking());
        CREATE POLICY changed ON sessions FOR UPDATE TO smartfork_app
            USING (owner_id = asking()) WITH CHECK (owner_id = asking());
        """
    )


def m006_withdrawals(db: Connection) -> None:
    """What must not come back, in which order it was withdrawn, and who is told; who sees what of the audit."""
    db.execute(
        """
        CREATE SEQUENCE rewrite_numbers;
        CREATE INDEX ON rewrites(project_id, seq);
        -- Of a record that was withdrawn its digest alone is kept.
        CREATE TABLE tombstones(
            project_id bigint NOT NULL, digest bytea NOT NULL CHECK (length(digest) = 32),
            at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (project_id, digest)
        ) PARTITION BY HASH (project_id);
        """
    )
    _hashed(db, "tombstones")
    db.execute(
        """
        GRANT USAGE ON rewrite_numbers TO smartfork_app;
        GRANT SELECT, INSERT ON tombstones TO smartfork_app;

        -- Who withdraws a session reaches all that was made of it, also what he may not read. `protected` is how many
        -- of the first records are none of that session's own, and stay.
        CREATE FUNCTION family_below(project bigint, session uuid)
        RETURNS TABLE(id uuid, owner_id bigint, protected bigint)
        LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
            WITH RECURSIVE below AS (
                SELECT s.id, s.owner_id, s.base_count AS protected, 0 AS depth FROM sessions s
                WHERE s.project_id = project AND s.id = session AND (s.owner_id = asking() OR EXISTS (
                    SELECT FROM members m
                    WHERE m.project_id = project AND m.user_id = asking() AND m.role = 'maintainer'))
                UNION ALL
                SELECT c.id, c.owner_id, least(b.protected, c.base_count), b.depth + 1
                FROM below b JOIN sessions c ON c.project_id = project AND c.parent_id = b.id
            )
            SELECT id, owner_id, protected FROM below ORDER BY depth, id
        $$;

        CREATE INDEX ON audit(session_id, id);
        CREATE INDEX ON audit(actor, id);
        -- The server's role reads no line by itself: one sees what he did, what was done with his sessions, all of a
        -- project whose maintainer he is; an admin, if he asks for it, everything.
        CREATE FUNCTION audit_seen(everything boolean) RETURNS SETOF audit
        LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
            SELECT a.* FROM audit a WHERE a.actor = asking()
                OR EXISTS (SELECT FROM sessions s
                    WHERE s.project_id = a.project_id AND s.id = a.session_id AND s.owner_id = asking())
                OR EXISTS (SELECT FROM members m
                    WHERE m.project_id = a.project_id AND m.user_id = asking() AND m.role = 'maintainer')
                OR everything AND EXISTS (SELECT FROM users u WHERE u.id = asking() AND u.role = 'admin')
        $$;
        REVOKE EXECUTE ON FUNCTION family_below, audit_seen FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION family_below, audit_seen TO smartfork_app;
        """
    )


def m008_work(db: Connection) -> None:
    """The role of what works in the background, to which all sessions are there; the audit by months."""
    db.execute(
        """
        DO $$ BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'smartfork_jobs') THEN
                CREATE ROLE smartfork_jobs LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS;
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
        END $$;
        GRANT smartfork_app TO smartfork_jobs;
        -- Who has made the tables serves as these two where there is no other account.
        GRANT smartfork_app, smartfork_jobs TO CURRENT_USER;
        CREATE POLICY worked_on ON sessions TO smartfork_jobs USING (true) WITH CHECK (true);

        ALTER TABLE jobs ALTER project_id DROP NOT NULL;
        CREATE UNIQUE INDEX jobs_of_the_server ON jobs(kind) WHERE project_id IS NULL;
        CREATE INDEX jobs_of_a_session ON jobs(project_id, kind, session_id);

        CREATE INDEX ON pulls(user_id, project_id, session_id);

        CREATE FUNCTION job_put() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_notify('smartfork_jobs', '');
            RETURN NULL;
        END $$;
        CREATE TRIGGER job_put AFTER INSERT ON jobs FOR EACH STATEMENT EXECUTE FUNCTION job_put();

        CREATE FUNCTION audit_months() RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = public, pg_temp SET timezone = 'UTC' AS $$
        DECLARE
            begins timestamptz; ends timestamptz; partition text; made integer := 0;
        BEGIN
            FOR ahead IN 0..1 LOOP
                begins := date_trunc('month', now()) + make_interval(months => ahead);
                ends := begins + interval '1 month';
                partition := 'audit_' || to_char(begins, 'YYYY_MM');
                CONTINUE WHEN to_regclass(partition) IS NOT NULL;
                LOCK TABLE audit IN ACCESS EXCLUSIVE MODE;  -- who writes now shall find the new month
                CONTINUE WHEN to_regclass(partition) IS NOT NULL;
                EXECUTE format('CREATE TABLE %I (LIKE audit INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', partition);
                EXECUTE format('WITH moved AS (DELETE FROM audit_rest WHERE at >= %L AND at < %L RETURNING *)'
                    ' INSERT INTO %I SELECT * FROM moved', begins, ends, partition);
                EXECUTE format('ALTER TABLE audit ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                    partition, begins, ends);
                made := made + 1;
            END LOOP;
            RETURN made;
        END $$;
        REVOKE ALL ON FUNCTION audit_months() FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION audit_months() TO smartfork_jobs;
        """
    )


MIGRATIONS: Sequence[Callable[[Connection], None]] = (
    m001_people,
    m002_sessions,
    m003_search,
    m004_jobs_and_audit,
    m005_rights,
    m006_withdrawals,
    m007_reach,
    m008_work,
    m009_families,
    m010_soon,
    m011_apart,
    m012_trust,
    m013_worked_on,
)


def migrate(db: Connection, steps: Sequence[Callable[[Connection], None]] = MIGRATIONS) -> list[str]:
    """Bring the schema up to date, and say which steps were run. Others who do the same wait.

    Raises:
        SmartForkError: A newer version has made it.
    """
    db.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
    try:
        if _there(db) is None:  # who may serve need not be who may make tables
            db.execute(
                "CREATE TABLE migrations("
                "number integer PRIMARY KEY, name text NOT NULL, at timestamptz NOT NULL DEFAULT now())"
            )
        row = db.execute("SELECT coalesce(max(number), 0) FROM migrations").fetchone()
        done = int(row[0]) if row else 0
        if done > len(steps):
            raise SmartForkError(
                "A newer version of smart-fork has made this database "
                f"(its schema is {done}, and this knows {len(steps)}).",
                "Install that version",
            )
        for number, step in enumerate(steps[done:], done + 1):
            with db.transaction():
                step(db)
                db.execute("INSERT INTO migrations(number, name) VALUES (%s, %s)", (number, step.__name__))
        return [step.__name__ for step in steps[done:]]
    finally:
        db.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


def _there(db: Connection) -> Any:
    row = db.execute("SELECT to_regclass('migrations')").fetchone()
    return row[0] if row else None


def make_database(owner_conninfo: str, name: str) -> None:
    """Make the database of the server in a PostgreSQL that is new."""
    with psycopg.connect(owner_conninfo, autocommit=True) as db:
        if db.execute("SELECT FROM pg_database WHERE datname = %s", (name,)).fetchone() is None:
            db.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))


def _hashed(db: Connection, table: str) -> None:
    for number in range(PARTITIONS):
        db.execute(
            psycopg.sql.SQL("CREATE TABLE {} PARTITION OF {} FOR VALUES WITH (MODULUS {}, REMAINDER {})").format(
                psycopg.sql.Identifier(f"{table}_{number}"),
                psycopg.sql.Identifier(table),
                psycopg.sql.Literal(PARTITIONS),
                psycopg.sql.Literal(number),
            )
        )
