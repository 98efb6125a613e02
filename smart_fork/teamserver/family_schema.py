"""What the members of a family share: records are stored once, and what a parent is found by is not stored again."""

from __future__ import annotations

from typing import Any

import psycopg


def m009_families(db: psycopg.Connection[Any]) -> None:
    """The first records of a segment take no bytes of their own; what a parent is found by is left to it; a list is
    read from an index, however many sessions there are.
    """
    _parts(db)
    _inherited(db)
    db.execute(
        """
        CREATE INDEX ON sessions(project_id, last_activity DESC, id DESC) WHERE visibility = 1 AND deleted_at IS NULL;
        CREATE INDEX ON sessions(project_id, owner_id, last_activity DESC, id DESC) WHERE deleted_at IS NULL;
        """
    )


def _parts(db: psycopg.Connection[Any]) -> None:
    """A segment may be the beginning of another one, which then cannot go before it."""
    db.execute(
        """
        ALTER TABLE segments ADD COLUMN part_of bytea, DROP CONSTRAINT segments_check,
            ADD CONSTRAINT segments_content CHECK (num_nonnulls(body, object, part_of) = 1),
            ADD FOREIGN KEY (project_id, part_of) REFERENCES segments(project_id, digest);
        CREATE INDEX ON segments(project_id, part_of) WHERE part_of IS NOT NULL;
        """
    )


def _inherited(db: psycopg.Connection[Any]) -> None:
    """Who finds a branch or a fork finds its parent, too, unless that is hidden from him."""
    db.execute(
        """
        -- So many of its first records are left to its parent.
        ALTER TABLE session_words ADD COLUMN inherited bigint NOT NULL DEFAULT 0;

        CREATE FUNCTION inherited(project bigint, session uuid) RETURNS bigint
        LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
        RETURN coalesce((SELECT s.base_count FROM sessions s
            JOIN sessions p ON p.project_id = s.project_id AND p.id = s.parent_id
            WHERE asking() = -1 AND s.project_id = project AND s.id = session AND p.deleted_at IS NULL
                AND (p.visibility = 1 OR s.visibility = 0 AND p.owner_id = s.owner_id)), 0);

        CREATE OR REPLACE FUNCTION session_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = public, pg_temp AS $$
        BEGIN
            IF TG_OP = 'UPDATE' THEN
                IF OLD.visibility <> NEW.visibility OR NEW.deleted_at IS NOT NULL AND OLD.deleted_at IS NULL THEN
                    PERFORM unindex(NEW.project_id, NEW.id);
                    INSERT INTO jobs(project_id, kind, session_id, revision)
                    SELECT c.project_id, 'index', c.id, c.revision FROM sessions c
                    WHERE c.project_id = NEW.project_id AND c.parent_id = NEW.id AND c.deleted_at IS NULL;
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
        """
    )
