"""The sessions about ``harbor``: a chat server in TypeScript, with websockets, logins and a PostgreSQL database."""

# ruff: noqa: E501 - what people, agents and programs say is not wrapped

from __future__ import annotations

from smart_fork.demo.script import CommandRun, Delegate, FileEdit, Read, Say, Scripted, asked, rewound

REPOSITORY = "harbor"

FLAKY_LOGIN = Scripted(
    "flaky-login", "claude", REPOSITORY, "Race in token refresh behind the flaky login test", 7.0,
    asked=(
        asked(
            "auth.test.ts fails about once in twenty runs on CI, never on my machine. Find out why.",
            CommandRun("npx vitest run auth.test.ts --repeat 50", (
                "FAIL  refreshes an expired session\nAssertionError: expected 401 to be 200\n1 failed | 49 passed"
            ), 1),
            Say("It fails here too when repeated. The failing case starts two requests at once with an expired access token."),
        ),
        rewound(
            "Just let the test retry three times, we need the build green today.",
            FileEdit("vitest.config.ts", "test: {", "test: { retry: 3,"),
            Say("vitest now repeats failing tests up to three times. The cause is still there."),
        ),
        asked(
            "No, no retries in the test. Find the real race.",
            Read("src/auth/refresh.ts", (
                "export async function refresh(session: Session) {\n  const next = await issue(session.refreshToken)\n"
                "  session.refreshToken = next.refreshToken\n  return next\n}"
            )),
            Say(
                "Two requests both see the expired token and both call `refresh`. The login service rotates refresh tokens, so the second "
                "call presents one that was just revoked, and gets 401. It is not the test that is flaky: users are logged out by this."
            ),
            FileEdit(
                "src/auth/refresh.ts",
                "export async function refresh(session: Session) {",
                "const running = new Map<string, Promise<Tokens>>()\n\nexport function refresh(session: Session) {\n"
                "  return single(running, session.id, () => rotate(session))",
            ),
            Say("Single flight: whoever comes second waits for the refresh that is already running and shares its result."),
        ),
        asked(
            "Prove it with a test that fails without the fix, every time.",
            FileEdit("src/auth/refresh.test.ts", "", (
                "it('rotates once for two simultaneous requests', async () => {\n  const gate = deferred()\n"
                "  const both = Promise.all([refresh(session), refresh(session)])\n  gate.resolve()\n  await both\n"
                "  expect(service.rotations).toBe(1)\n})\n"
            )),
            CommandRun("git stash push src/auth/refresh.ts && npx vitest run refresh.test.ts", "AssertionError: expected 2 to be 1\n1 failed", 1),
            CommandRun("git stash pop && npx vitest run --repeat 200 auth", "Test Files  2 passed\nTests  800 passed"),
            Say("It fails every time on the old code, since a gate and not the clock decides the order, and never on the new."),
        ),
    ),
)  # fmt: skip

LEAK = Scripted(
    "leak", "claude", REPOSITORY, "Memory leak in the websocket server", 20.0,
    branch="fix/leak",
    asked=(
        asked(
            "The websocket server grows by 40 MB an hour and is killed at night. Find the leak.",
            Say("I'll take two heap snapshots under load and compare what is retained between them."),
            CommandRun("node --inspect scripts/load.mjs --clients 500 --minutes 10", (
                "heapUsed before 61 MB, after 143 MB\nretained: Room 12, Connection 48213, Timeout 48213"
            )),
            Say("48,213 connections are retained with 500 clients: closed ones are never let go. Each is held by a Timeout."),
        ),
        asked(
            "Which timer is it?",
            Read("src/socket/heartbeat.ts", (
                "export function heartbeat(connection: Connection) {\n  setInterval(() => connection.ping(), 30_000)\n}"
            )),
            Say("The heartbeat's interval is started for each connection and never cleared; its closure keeps the connection and its buffers."),
            FileEdit(
                "src/socket/heartbeat.ts",
                "  setInterval(() => connection.ping(), 30_000)",
                "  const timer = setInterval(() => connection.ping(), 30_000)\n"
                "  connection.once('close', () => clearInterval(timer))",
            ),
            CommandRun("npx tsc --noEmit", "src/socket/heartbeat.ts(3,14): error TS2339: Property 'once' does not exist on type 'Connection'.", 2),
            Say("`Connection` wraps the socket and does not pass events on. One timer for the whole server is simpler anyway."),
            FileEdit(
                "src/socket/heartbeat.ts",
                "export function heartbeat(connection: Connection) {",
                "export function heartbeat(connections: ReadonlySet<Connection>) {",
            ),
        ),
        asked(
            "Are there other places like it?",
            Say("I'll have the listeners and timers under src/ checked while I measure."),
            Delegate("Look for what is never removed", "src/room.ts:41 adds a listener for each member and never removes it."),
            CommandRun("node --inspect scripts/load.mjs --clients 500 --minutes 10", "heapUsed before 60 MB, after 63 MB\nretained: Connection 500"),
            Say("Flat now. One more was found: rooms kept a listener for members who had left. It is removed on leave."),
        ),
    ),
    subagent=(
        asked(
            "List every setInterval, setTimeout and .on( under src/ that is not removed when its owner is closed.",
            CommandRun("rg -n 'setInterval|setTimeout|\\.on\\(' src", "src/room.ts:41: member.on('typing', this.relay)"),
            Say("src/room.ts:41 adds a listener for each member and never removes it. The others are removed."),
        ),
    ),
)  # fmt: skip

CI_CACHE = Scripted(
    "ci-cache", "codex", REPOSITORY, "", 14.0,
    asked=(
        asked(
            "CI takes 14 minutes, most of it npm ci and the Docker build. Make it cache properly.",
            CommandRun("sed -n 1,60p .github/workflows/ci.yml", "- uses: actions/cache\n  with:\n    path: node_modules\n    key: modules-${{ github.sha }}"),
            Say(
                "The cache key holds the commit, so it never hits. It should be a hash of package-lock.json and the Node version, and it should "
                "store npm's download cache, not node_modules, which `npm ci` deletes first."
            ),
            FileEdit(".github/workflows/ci.yml", "key: modules-${{ github.sha }}", "key: npm-${{ matrix.node }}-${{ hashFiles('package-lock.json') }}"),
        ),
        asked(
            "And the Docker image?",
            CommandRun("docker build --progress=plain .", "#9 [5/6] COPY . .\n#10 [6/6] RUN npm ci\n#10 ERROR: failed to compute cache key", 1),
            Say("`COPY . .` stands before `npm ci`, so any change to any file installs everything again. The lock file must be copied first."),
            FileEdit("Dockerfile", "COPY . .\nRUN npm ci", "COPY package.json package-lock.json ./\nRUN --mount=type=cache,target=/var/cache/npm npm ci\nCOPY . ."),
            CommandRun("docker build --progress=plain .", "#8 CACHED\n#11 DONE 6.2s"),
        ),
        asked(
            "How much does it save?",
            CommandRun("gh run list --workflow ci.yml --limit 2 --json conclusion,updatedAt,startedAt", "4m02s after, 14m11s before"),
            Say("Four minutes instead of fourteen, when the lock file has not changed."),
        ),
    ),
)  # fmt: skip

MIGRATION = Scripted(
    "migration", "codex", REPOSITORY, "", 3.0,
    branch="search-index",
    asked=(
        asked(
            "We need an index on messages(room_id, sent_at) in production. The table has 80 million rows and must stay writable.",
            Say(
                "A plain CREATE INDEX blocks writes for as long as it runs. CREATE INDEX CONCURRENTLY does not, but it cannot run inside a "
                "transaction, and our migration runner wraps every file in one."
            ),
            CommandRun("npm run migrate -- --dry-run", "ERROR: CREATE INDEX CONCURRENTLY cannot run inside a transaction block", 1),
            FileEdit("db/migrate.ts", "await client.query('BEGIN')", "if (!migration.outsideTransaction) await client.query('BEGIN')"),
            FileEdit("db/migrations/0042_messages_index.sql", "", (
                "-- outside-transaction\nSET lock_timeout = '5s';\n"
                "CREATE INDEX CONCURRENTLY IF NOT EXISTS messages_room_time ON messages (room_id, sent_at);\n"
            )),
        ),
        asked(
            "What if it is interrupted half way?",
            Say(
                "It leaves an invalid index that slows down writes and is never used. IF NOT EXISTS would then skip it silently, so the "
                "migration first drops the index where pg_index says indisvalid = false."
            ),
            FileEdit("db/migrations/0042_messages_index.sql", "SET lock_timeout", "SELECT drop_if_invalid('messages_room_time');\nSET lock_timeout"),
            CommandRun("npm test -- db", "Tests  18 passed"),
        ),
        asked(
            "Does the query use it?",
            CommandRun("psql -c 'EXPLAIN SELECT * FROM messages WHERE room_id = 7 ORDER BY sent_at DESC LIMIT 50'", (
                "Limit  (cost=0.57..61.20)\n  ->  Index Scan Backward using messages_room_time on messages"
            )),
            Say("Yes, backwards and without sorting."),
        ),
    ),
)  # fmt: skip

SESSIONS = (FLAKY_LOGIN, LEAK, CI_CACHE, MIGRATION)
