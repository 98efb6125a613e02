"""What the database knows of what was withdrawn: from which session, and where a record stands beside that."""

from __future__ import annotations

from typing import Any

import psycopg


def m011_apart(db: psycopg.Connection[Any]) -> None:
    """A tombstone names the session from which its record was withdrawn; functions that no statement uses are gone."""
    db.execute(
        """
        DROP FUNCTION chunks_with, sessions_with, sessions_having;

        -- Of those that are there it is not known any more.
        ALTER TABLE tombstones ADD COLUMN session_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
            DROP CONSTRAINT tombstones_pkey, ADD PRIMARY KEY (project_id, digest, session_id);

        -- Sessions of the asker's own, and those that he may read and has a copy of, which are none of these and were
        -- not made of one of them: those are changed as they are.
        CREATE FUNCTION stands_apart(project bigint, these uuid[]) RETURNS SETOF uuid
        LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
            WITH RECURSIVE below AS (
                SELECT unnest(these) AS id
                UNION SELECT c.id FROM below b JOIN sessions c ON c.project_id = project AND c.parent_id = b.id
            )
            SELECT s.id FROM sessions s WHERE s.project_id = project AND s.id NOT IN (SELECT b.id FROM below b)
                AND (s.owner_id = asking() OR may_read(s, asking()) AND EXISTS (SELECT FROM pulls c
                    WHERE c.project_id = project AND c.session_id = s.id AND c.user_id = asking()))
        $$;
        REVOKE EXECUTE ON FUNCTION stands_apart FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION stands_apart TO smartfork_app;
        """
    )
