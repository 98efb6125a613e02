"""What searching needs of the database beside the tables: who sees which rows, and what goes when a session goes."""

from __future__ import annotations

from typing import Any

import psycopg

#: Who makes the index: it sees what is searched of everybody, and nobody's sessions.
INDEXER = -1
_SEARCHED = ("chunks", "vectors", "placements", "session_words", "lexemes", "offers")


def m007_reach(db: psycopg.Connection[Any]) -> None:
    """Each row of the search is of one reach, and a session that is hidden is found no more at that moment."""
    db.execute(
        """
        ALTER TABLE placements ADD COLUMN reach bigint NOT NULL;
        -- `family` is what the reader calls the session's beginning, the rest is what tells its members apart.
        ALTER TABLE session_words
            ADD COLUMN revision bigint NOT NULL, ADD COLUMN family text NOT NULL,
            ADD COLUMN title text NOT NULL, ADD COLUMN turns integer NOT NULL, ADD COLUMN prompts integer NOT NULL,
            ADD COLUMN tokens bigint NOT NULL, ADD COLUMN compactions integer NOT NULL,
            ADD COLUMN started text NOT NULL, ADD COLUMN last_activity text NOT NULL, ADD COLUMN until text NOT NULL,
            ADD COLUMN acted integer NOT NULL, ADD COLUMN outcome text NOT NULL;

        -- What only one may read tells nobody else, by its weight, that it is there. The empty one counts them all.
        DROP TABLE lexemes;
        CREATE TABLE lexemes(
            project_id bigint NOT NULL, reach bigint NOT NULL, lexeme text NOT NULL,
            chunks bigint NOT NULL DEFAULT 0, sessions bigint NOT NULL DEFAULT 0,
            PRIMARY KEY (project_id, reach, lexeme)
        ) PARTITION BY HASH (project_id);

        -- Vectors that a client has sent, until the chunks that they are of have been made.
        CREATE TABLE offers(
            project_id bigint NOT NULL, session_id uuid NOT NULL, hash bytea NOT NULL, reach bigint NOT NULL,
            space bigint NOT NULL, token_id bigint NOT NULL, e halfvec NOT NULL,
            PRIMARY KEY (project_id, session_id, hash)
        ) PARTITION BY HASH (project_id);
        """
    )
    for table in ("lexemes", "offers"):
        for number in range(16):
            db.execute(
                psycopg.sql.SQL("CREATE TABLE {} PARTITION OF {} FOR VALUES WITH (MODULUS 16, REMAINDER {})").format(
                    psycopg.sql.Identifier(f"{table}_{number}"),
                    psycopg.sql.Identifier(table),
                    psycopg.sql.Literal(number),
                )
            )
    db.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON lexemes, offers TO smartfork_app")
    for table in _SEARCHED:
        _walled(db, table)
    _functions(db)


def _walled(db: psycopg.Connection[Any], table: str) -> None:
    name = psycopg.sql.Identifier(table)
    db.execute(psycopg.sql.SQL("ALTER TABLE {} ENABLE ROW LEVEL SECURITY").format(name))
    db.execute(
        # The questions in brackets are asked once a statement, not once a row.
        psycopg.sql.SQL(
            "CREATE POLICY reached ON {} TO smartfork_app USING ((SELECT asking()) = {} OR reach = (SELECT asking())"
            " OR reach = 0 AND project_id IN (SELECT m.project_id FROM members m WHERE m.user_id = (SELECT asking())))"
        ).format(name, psycopg.sql.Literal(INDEXER))
    )


def _functions(db: psycopg.Connection[Any]) -> None:
    """Those that look for words see past the wall, behind which no index of words can be used: they keep to the same
    reaches themselves.
    """
    db.execute(
        """
        CREATE FUNCTION reaches(project bigint) RETURNS bigint[] LANGUAGE sql STABLE SECURITY DEFINER
        SET search_path = public, pg_temp
        RETURN ARRAY(SELECT asking() WHERE asking() > 0 UNION ALL
            SELECT 0 FROM members m WHERE m.project_id = project AND m.user_id = asking());

        CREATE FUNCTION chunks_with(project bigint, any_of tsquery, wanted tsquery[], idf float8[], most integer)
        RETURNS TABLE(id bigint, length integer, ranks real[])
        LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
            SELECT c.id, c.length, r.ranks FROM chunks c, LATERAL (
                SELECT array_agg(u.rank ORDER BY u.n) AS ranks, sum(u.rank * u.idf) AS score FROM (
                    SELECT n, weight AS idf, CASE WHEN c.words @@ q
                        THEN ts_rank('{1,1,1,1}', c.words, q) ELSE 0 END AS rank
                    FROM unnest(wanted, idf) WITH ORDINALITY AS w(q, weight, n)) u) r
            WHERE c.project_id = project AND c.reach = ANY((SELECT reaches(project))::bigint[]) AND c.words @@ any_of
            ORDER BY r.score DESC, c.id LIMIT most
        $$;

        CREATE FUNCTION sessions_with(project bigint, any_of tsquery, wanted tsquery[], idf float8[], most integer)
        RETURNS TABLE(id uuid, length integer, ranks real[])
        LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
            SELECT s.session_id, s.length, r.ranks FROM session_words s, LATERAL (
                SELECT array_agg(u.rank ORDER BY u.n) AS ranks, sum(u.rank * u.idf) AS score FROM (
                    SELECT n, weight AS idf, CASE WHEN s.words @@ q
                        THEN ts_rank('{0.3,0.5,0.75,1}', s.words, q) ELSE 0 END AS rank
                    FROM unnest(wanted, idf) WITH ORDINALITY AS w(q, weight, n)) u) r
            WHERE s.project_id = project AND s.reach = ANY((SELECT reaches(project))::bigint[]) AND s.words @@ any_of
            ORDER BY r.score DESC, s.session_id LIMIT most
        $$;

        CREATE FUNCTION sessions_having(project bigint, wanted tsquery) RETURNS bigint
        LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
        RETURN (SELECT count(*) FROM session_words s
            WHERE s.project_id = project AND s.reach = ANY((SELECT reaches(project))::bigint[]) AND s.words @@ wanted);

        -- What the indexer is told of a session whose row it does not see.
        CREATE FUNCTION to_index(project bigint, session uuid)
        RETURNS TABLE(agent text, root_id uuid, revision bigint, title text, reach bigint)
        LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
            SELECT s.agent, s.root_id, s.revision, s.title, CASE s.visibility WHEN 1 THEN 0 ELSE s.owner_id END
            FROM sessions s WHERE asking() = -1 AND s.project_id = project AND s.id = session AND s.deleted_at IS NULL
        $$;

        -- One who changes what is searched in a project at a time.
        CREATE FUNCTION lock_search(project bigint) RETURNS void LANGUAGE sql
        RETURN pg_advisory_xact_lock(23012, (project % 2147483647)::integer);

        -- Take away those of these chunks that no session has any more.
        CREATE FUNCTION drop_unplaced(project bigint, these bigint[]) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = public, pg_temp AS $$
        DECLARE gone bigint[];
        BEGIN
            SELECT array_agg(c.id) INTO gone FROM chunks c WHERE c.project_id = project AND c.id = ANY(these)
                AND NOT EXISTS (SELECT FROM placements p WHERE p.project_id = project AND p.chunk_id = c.id);
            IF gone IS NULL THEN RETURN; END IF;
            DELETE FROM vectors v WHERE v.project_id = project AND v.chunk_id = ANY(gone);
            UPDATE lexemes l SET chunks = l.chunks - u.number FROM (
                SELECT c.reach, w AS lexeme, count(*) AS number
                FROM chunks c, unnest(tsvector_to_array(c.words) || ARRAY['']) w
                WHERE c.project_id = project AND c.id = ANY(gone) GROUP BY 1, 2) u
            WHERE l.project_id = project AND l.reach = u.reach AND l.lexeme = u.lexeme;
            DELETE FROM chunks c WHERE c.project_id = project AND c.id = ANY(gone);
        END $$;

        CREATE FUNCTION drop_session_words(project bigint, session uuid) RETURNS void LANGUAGE sql SECURITY DEFINER
        SET search_path = public, pg_temp AS $$
            WITH gone AS (DELETE FROM session_words s WHERE s.project_id = project AND s.session_id = session
                RETURNING s.reach, s.words)
            UPDATE lexemes l SET sessions = l.sessions - 1 FROM (
                SELECT g.reach, w AS lexeme FROM gone g, unnest(tsvector_to_array(g.words) || ARRAY['']) w) u
            WHERE l.project_id = project AND l.reach = u.reach AND l.lexeme = u.lexeme
        $$;

        -- Nobody finds a session from now on, until it is indexed again.
        CREATE FUNCTION unindex(project bigint, session uuid) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = public, pg_temp AS $$
        DECLARE had bigint[];
        BEGIN
            PERFORM lock_search(project);
            WITH gone AS (DELETE FROM placements p WHERE p.project_id = project AND p.session_id = session
                RETURNING p.chunk_id)
            SELECT array_agg(DISTINCT g.chunk_id) INTO had FROM gone g;
            PERFORM drop_unplaced(project, had);
            PERFORM drop_session_words(project, session);
            DELETE FROM offers o WHERE o.project_id = project AND o.session_id = session;
            DELETE FROM lexemes l WHERE l.project_id = project AND l.chunks <= 0 AND l.sessions <= 0;
        END $$;

        CREATE FUNCTION session_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = public, pg_temp AS $$
        BEGIN
            IF TG_OP = 'UPDATE' THEN
                IF OLD.visibility <> NEW.visibility OR NEW.deleted_at IS NOT NULL AND OLD.deleted_at IS NULL THEN
                    PERFORM unindex(NEW.project_id, NEW.id);
                ELSIF OLD.head_digest = NEW.head_digest AND OLD.title = NEW.title
                    AND (OLD.deleted_at IS NULL) = (NEW.deleted_at IS NULL) THEN
                    RETURN NULL;
                END IF;
            END IF;
            IF NEW.deleted_at IS NULL THEN
                INSERT INTO jobs(project_id, kind, session_id, revision)
                VALUES (NEW.project_id, 'index', NEW.id, NEW.revision);
                PERFORM pg_notify('smartfork_jobs', '');
            END IF;
            RETURN NULL;
        END $$;
        CREATE TRIGGER session_changed AFTER INSERT OR UPDATE OF head_digest, visibility, deleted_at, title
        ON sessions FOR EACH ROW EXECUTE FUNCTION session_changed();
        """
    )
