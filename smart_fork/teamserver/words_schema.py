"""What a question needs of the database to be answered soon: which rows to look at, and what is counted of them."""

from __future__ import annotations

from typing import Any

import psycopg


def m010_soon(db: psycopg.Connection[Any]) -> None:
    """Titles by themselves, how many passages a session has and how many of them a vector, and who has rare words."""
    db.execute(
        """
        -- The words of a whole session are long, and kept apart: to look at its title takes none of that. `space` is
        -- that of the vectors, 0 where it has none.
        ALTER TABLE session_words
            ADD COLUMN titles tsvector GENERATED ALWAYS AS (ts_filter(words, '{a}')) STORED,
            ADD COLUMN passages integer NOT NULL DEFAULT 0,
            ADD COLUMN space bigint NOT NULL DEFAULT 0, ADD COLUMN embedded integer NOT NULL DEFAULT 0;
        UPDATE session_words s SET passages = p.number FROM (
            SELECT project_id, session_id, count(*) AS number FROM placements GROUP BY 1, 2) p
        WHERE s.project_id = p.project_id AND s.session_id = p.session_id;
        UPDATE session_words s SET space = v.space, embedded = v.number FROM (
            SELECT DISTINCT ON (p.project_id, p.session_id) p.project_id, p.session_id, v.space, count(*) AS number
            FROM placements p JOIN vectors v ON v.project_id = p.project_id AND v.chunk_id = p.chunk_id
            GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 DESC) v
        WHERE s.project_id = v.project_id AND s.session_id = v.session_id;
        CREATE INDEX ON session_words(project_id, reach, space) WHERE passages > 0;

        -- Those that have most of these words, by how rare these are. Each word is looked up in the index: to look at
        -- the words of every row takes a hundred times as long, which the planner does not know: neither may it read
        -- the rows one by one, nor join them with the words (`OFFSET 0`).
        CREATE FUNCTION rarest_chunks(project bigint, wanted tsquery[], idf float8[], most integer)
        RETURNS SETOF bigint LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
        SET enable_seqscan = off SET enable_indexscan = off AS $$
            SELECT h.id FROM unnest(wanted, idf) AS u(q, weight), LATERAL (
                SELECT c.id FROM chunks c WHERE c.project_id = project
                AND c.reach = ANY((SELECT reaches(project))::bigint[]) AND c.words @@ u.q OFFSET 0) h
            GROUP BY h.id ORDER BY sum(u.weight) DESC, h.id LIMIT most
        $$;
        CREATE FUNCTION rarest_sessions(project bigint, wanted tsquery[], idf float8[], most integer)
        RETURNS SETOF uuid LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
        SET enable_seqscan = off SET enable_indexscan = off AS $$
            SELECT h.session_id FROM unnest(wanted, idf) AS u(q, weight), LATERAL (
                SELECT s.session_id FROM session_words s WHERE s.project_id = project
                AND s.reach = ANY((SELECT reaches(project))::bigint[]) AND s.words @@ u.q OFFSET 0) h
            GROUP BY h.session_id ORDER BY sum(u.weight) DESC, h.session_id LIMIT most
        $$;
        CREATE FUNCTION sessions_having_each(project bigint, wanted tsquery[])
        RETURNS TABLE(n bigint, sessions bigint)
        LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
        SET enable_seqscan = off SET enable_indexscan = off AS $$
            SELECT u.n, h.number FROM unnest(wanted) WITH ORDINALITY AS u(q, n), LATERAL (
                SELECT count(*) AS number FROM session_words s WHERE s.project_id = project
                AND s.reach = ANY((SELECT reaches(project))::bigint[]) AND s.words @@ u.q OFFSET 0) h
        $$;
        """
    )


def m013_worked_on(db: psycopg.Connection[Any]) -> None:
    """Sessions by the files that they edited and the names of code in what they wrote."""
    db.execute("ALTER TABLE session_words ADD COLUMN work tsvector NOT NULL DEFAULT ''")
