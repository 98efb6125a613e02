-- The tables of a team's server. `schema.py` runs this file in one transaction.
--
-- All that belongs to a project begins its key with `project_id`, so that several machines could share the projects one
-- day: a test refuses a statement on such a table that does not name `project_id`.

-- The form of these tables; see `schema.py`. It comes first: who may make no table is told so.
CREATE TABLE form(number integer PRIMARY KEY, oldest integer NOT NULL, at timestamptz NOT NULL DEFAULT now());
CREATE EXTENSION IF NOT EXISTS vector;
DO $$
DECLARE role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['smartfork_app', 'smartfork_jobs'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
                EXECUTE format('CREATE ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS', role);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;  -- another database's server was first
        END;
    END LOOP;
END $$;

-- Users with their tokens and invitations, projects with their members.

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

-- Sessions, their segments, and who may see them.

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
);
CREATE INDEX ON sessions(project_id, root_id);
CREATE INDEX ON sessions(project_id, parent_id);
CREATE INDEX ON sessions(project_id, visibility, last_activity, id);
CREATE INDEX ON sessions(project_id, owner_id, last_activity, id);
-- A list is read from an index, however many sessions there are.
CREATE INDEX ON sessions(project_id, last_activity DESC, id DESC) WHERE visibility = 1 AND deleted_at IS NULL;
CREATE INDEX ON sessions(project_id, owner_id, last_activity DESC, id DESC) WHERE deleted_at IS NULL;

CREATE TABLE session_segments(
    project_id bigint NOT NULL, session_id uuid NOT NULL, position integer NOT NULL,
    digest bytea NOT NULL, first_record bigint NOT NULL, records integer NOT NULL,
    raw_bytes bigint NOT NULL, chain_start bytea NOT NULL,
    PRIMARY KEY (project_id, session_id, position)
);
CREATE INDEX ON session_segments(project_id, digest);

CREATE TABLE segments(
    project_id bigint NOT NULL, digest bytea NOT NULL,
    records integer NOT NULL, raw_bytes bigint NOT NULL,
    body bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project_id, digest)
);
ALTER TABLE segments ALTER body SET STORAGE EXTERNAL;  -- it is compressed already

-- Who has sent a segment: to know its digest is no right to it.
CREATE TABLE uploads(
    project_id bigint NOT NULL, user_id bigint NOT NULL, digest bytea NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project_id, user_id, digest)
);
CREATE INDEX ON uploads(project_id, at);

CREATE TABLE rewrites(
    project_id bigint NOT NULL, session_id uuid NOT NULL, seq bigint NOT NULL,
    kind text NOT NULL, edits jsonb NOT NULL, revision bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project_id, session_id, seq)
);
CREATE TABLE pulls(
    project_id bigint NOT NULL, session_id uuid NOT NULL, seq bigint GENERATED ALWAYS AS IDENTITY,
    user_id bigint NOT NULL, token_id bigint NOT NULL, revision bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project_id, session_id, seq)
);
CREATE INDEX ON pulls(project_id, user_id);
CREATE INDEX ON pulls(user_id, project_id, session_id);

-- In which order it was withdrawn.
CREATE SEQUENCE rewrite_numbers;
CREATE INDEX ON rewrites(project_id, seq);
-- What must not come back: of a record that was withdrawn its digest alone is kept, and from which session it was.
CREATE TABLE tombstones(
    project_id bigint NOT NULL, digest bytea NOT NULL CHECK (length(digest) = 32),
    at timestamptz NOT NULL DEFAULT now(),
    session_id uuid NOT NULL,
    PRIMARY KEY (project_id, digest, session_id)
);

-- Chunks of what was said, their vectors and their words.

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
);
CREATE INDEX ON vectors(project_id, space, reach);

CREATE TABLE placements(
    project_id bigint NOT NULL, session_id uuid NOT NULL, position integer NOT NULL,
    chunk_id bigint NOT NULL, turn integer NOT NULL, message_id text NOT NULL, role text NOT NULL,
    exchange integer NOT NULL, ends integer, tokens bigint NOT NULL, reach bigint NOT NULL,
    PRIMARY KEY (project_id, session_id, position)
);
CREATE INDEX ON placements(project_id, chunk_id);

CREATE TABLE session_words(
    project_id bigint NOT NULL, session_id uuid NOT NULL, reach bigint NOT NULL,
    words tsvector NOT NULL, length integer NOT NULL,
    -- `family` is what the reader calls the session's beginning, the rest is what tells its members apart.
    revision bigint NOT NULL, family text NOT NULL, title text NOT NULL, turns integer NOT NULL,
    prompts integer NOT NULL, tokens bigint NOT NULL, compactions integer NOT NULL, started text NOT NULL,
    last_activity text NOT NULL, until text NOT NULL, acted integer NOT NULL, outcome text NOT NULL,
    inherited bigint NOT NULL DEFAULT 0,  -- so many of its first records are left to its parent
    -- The words of a whole session are long, and kept apart: to look at its title takes none of that.
    titles tsvector GENERATED ALWAYS AS (ts_filter(words, '{a}')) STORED,
    -- How many passages it has, and how many of them a vector, of `space`; that is 0 where it has none.
    passages integer NOT NULL DEFAULT 0, space bigint NOT NULL DEFAULT 0, embedded integer NOT NULL DEFAULT 0,
    work tsvector NOT NULL DEFAULT '',  -- the files that it edited and the names of code in what it wrote
    PRIMARY KEY (project_id, session_id)
) PARTITION BY HASH (project_id);
CREATE INDEX ON session_words(project_id, reach, space) WHERE passages > 0;
CREATE INDEX ON session_words USING gin(words);

-- What only one may read tells nobody else, by its weight, that it is there. The empty one counts them all.
CREATE TABLE lexemes(
    project_id bigint NOT NULL, reach bigint NOT NULL, lexeme text NOT NULL,
    chunks bigint NOT NULL DEFAULT 0, sessions bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (project_id, reach, lexeme)
);

-- Vectors that a client has sent, until the chunks that they are of have been made.
CREATE TABLE offers(
    project_id bigint NOT NULL, session_id uuid NOT NULL, hash bytea NOT NULL, reach bigint NOT NULL,
    space bigint NOT NULL, token_id bigint NOT NULL, e halfvec NOT NULL,
    PRIMARY KEY (project_id, session_id, hash)
);

-- What is still to be done, and what was done by whom.

CREATE TABLE jobs(
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project_id bigint, kind text NOT NULL, session_id uuid, revision bigint,
    run_after timestamptz NOT NULL DEFAULT now(), attempts integer NOT NULL DEFAULT 0, error text
);
CREATE INDEX jobs_waiting ON jobs(run_after);
CREATE UNIQUE INDEX jobs_of_the_server ON jobs(kind) WHERE project_id IS NULL;
CREATE INDEX jobs_of_a_session ON jobs(project_id, kind, session_id);
CREATE TABLE audit(
    id bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL DEFAULT now(),
    actor bigint, token bigint, verb text NOT NULL, project_id bigint, session_id uuid,
    details jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (id)
);
CREATE INDEX ON audit(session_id, id);
CREATE INDEX ON audit(actor, id);

-- An index of words finds those of all projects in it. In 16 of them a search looks at a sixteenth.
DO $$
BEGIN
    FOR number IN 0..15 LOOP
        EXECUTE format('CREATE TABLE chunks_%s PARTITION OF chunks FOR VALUES WITH (MODULUS 16, REMAINDER %s);'
            'CREATE TABLE session_words_%s PARTITION OF session_words FOR VALUES WITH (MODULUS 16, REMAINDER %s)',
            number, number, number, number);
    END LOOP;
END $$;

CREATE FUNCTION asking() RETURNS bigint LANGUAGE sql STABLE
RETURN nullif(current_setting('smartfork.user', true), '')::bigint;

CREATE FUNCTION may_read(session sessions, reader bigint) RETURNS boolean LANGUAGE sql STABLE
RETURN session.deleted_at IS NULL AND (
    session.owner_id = reader OR session.visibility = 1 AND EXISTS (
        SELECT FROM members m WHERE m.project_id = session.project_id AND m.user_id = reader));

ALTER TABLE sessions ENABLE ROW LEVEL SECURITY;

-- Rights. The server's role owns no table: rows of sessions that its user may not read are none to it.

REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO smartfork_app;
GRANT SELECT, INSERT, UPDATE ON users, tokens, invites, projects, members, spaces, sessions TO smartfork_app;
GRANT DELETE ON members TO smartfork_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON session_segments, segments, uploads, rewrites, pulls,
    chunks, vectors, placements, session_words, lexemes, offers, jobs TO smartfork_app;
GRANT INSERT ON audit TO smartfork_app;
GRANT SELECT ON form TO smartfork_app;
GRANT USAGE ON rewrite_numbers TO smartfork_app;
GRANT SELECT, INSERT ON tombstones TO smartfork_app;

-- Its owner also sees what he has deleted: else he could not delete it.
CREATE POLICY seen ON sessions FOR SELECT TO smartfork_app
    USING (owner_id = asking() OR may_read(sessions, asking()));
CREATE POLICY made ON sessions FOR INSERT TO smartfork_app WITH CHECK (owner_id = asking());
CREATE POLICY changed ON sessions FOR UPDATE TO smartfork_app
    USING (owner_id = asking()) WITH CHECK (owner_id = asking());

-- What works in the background sees all sessions.
GRANT smartfork_app TO smartfork_jobs;
-- Who has made the tables serves as these two where there is no other account.
GRANT smartfork_app, smartfork_jobs TO CURRENT_USER;
CREATE POLICY worked_on ON sessions TO smartfork_jobs USING (true) WITH CHECK (true);

-- Each row of the search is of one reach. The indexer (-1) sees what is searched of everybody, and nobody's sessions.
-- The questions in brackets are asked once a statement, not once a row.
DO $$
DECLARE searched text;
BEGIN
    FOREACH searched IN ARRAY ARRAY['chunks', 'vectors', 'placements', 'session_words', 'lexemes', 'offers'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', searched);
        EXECUTE format('CREATE POLICY reached ON %I TO smartfork_app USING ((SELECT asking()) = -1'
            ' OR reach = (SELECT asking()) OR reach = 0 AND project_id IN'
            ' (SELECT m.project_id FROM members m WHERE m.user_id = (SELECT asking())))', searched);
    END LOOP;
END $$;

-- Withdrawing.

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

-- Searching. These functions see past the wall, behind which no index of words can be used: they keep to the same
-- reaches themselves.

CREATE FUNCTION reaches(project bigint) RETURNS bigint[] LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = public, pg_temp
RETURN ARRAY(SELECT asking() WHERE asking() > 0 UNION ALL
    SELECT 0 FROM members m WHERE m.project_id = project AND m.user_id = asking());

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
CREATE TRIGGER session_changed AFTER INSERT OR UPDATE OF head_digest, visibility, deleted_at, title
ON sessions FOR EACH ROW EXECUTE FUNCTION session_changed();

-- Who finds a branch or a fork finds its parent, too, unless that is hidden from him.
CREATE FUNCTION inherited(project bigint, session uuid) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
RETURN coalesce((SELECT s.base_count FROM sessions s
    JOIN sessions p ON p.project_id = s.project_id AND p.id = s.parent_id
    WHERE asking() = -1 AND s.project_id = project AND s.id = session AND p.deleted_at IS NULL
        AND (p.visibility = 1 OR s.visibility = 0 AND p.owner_id = s.owner_id)), 0);

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

-- Jobs.

CREATE FUNCTION job_put() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('smartfork_jobs', '');
    RETURN NULL;
END $$;
CREATE TRIGGER job_put AFTER INSERT ON jobs FOR EACH STATEMENT EXECUTE FUNCTION job_put();
