"""People with machines in one process: each has a home, a clone of the project, and access to a real server."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import uvicorn

from indexer import state_db
from smart_fork.cli.main import main
from smart_fork.team import stored_logins
from smart_fork.team.server import auth
from smart_fork.team.server.database import Database
from smart_fork.team.server.routes import ServerContext, application
from tests.smart_fork.repositories import INIT, make_repository
from tests.smart_fork.team.server.team import Team
from tests.smart_fork.world import World, add_program


@contextlib.contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an application on a local port for the time of this context. Yield its address."""
    server = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", 0, lifespan="off", log_level="critical", ws="none"))
    ready = threading.Event()
    started = server.startup

    async def startup(*given: Any, **more: Any) -> None:
        await started(*given, **more)
        ready.set()

    server.startup = startup  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def team_server(pool: Database) -> Any:
    return application(ServerContext(pool))


@dataclass
class Said:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class TeamMachine:
    """The machine of one person, with `world` for sessions, `do` for commands, and the clone `repository`."""

    def __init__(self, home: Path, folder: str, team: Team, capsys: Any) -> None:
        self.home, self._capsys, self._team = home, capsys, team
        home.mkdir(parents=True)
        self.repository = home / folder
        self.repository.mkdir(parents=True)
        make_repository(self.repository, INIT)
        with (self.repository / ".git/config").open("a") as config:  # as `git remote add` writes it
            config.write(f'[remote "origin"]\n\turl = git@{team.key.replace("/", ":", 1)}.git\n')
            config.write("\tfetch = +refs/heads/*:refs/remotes/origin/*\n")
        self.world = World(home)
        for name, says in (("claude", "  --fork-session  Fork"), ("codex", "Commands:\n  fork  Fork\n  exec  Run")):
            add_program(home / "bin", name, says)
        self.env = {
            "HOME": str(home), "SMART_FORK_HOME": str(home / ".smart-fork"), "SMART_FORK_BACKGROUND": "0",
            "PATH": f"{home / 'bin'}{os.pathsep}/usr/bin:/bin", "COLUMNS": "200",
        }  # fmt: skip

    def do(self, *words: str) -> Said:
        """Run a command as this person, in the clone."""
        with self.here(), patch("sys.argv", ["smart-fork", *words]):
            self._capsys.readouterr()
            try:
                main()
            except SystemExit as ended:
                code = int(ended.code or 0)
            said = self._capsys.readouterr()
        return Said(code, said.out, said.err)

    def team(self, *words: str) -> Any:
        """Run a team command that must succeed, and return its JSON answer."""
        said = self.do("team", *words, "--json")
        assert said.code == 0, (said.out, said.err)
        return said.json

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """Let this process use the machine's home and environment."""
        gone = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "SMART_FORK_TEAM_URL", "SMART_FORK_TEAM_TOKEN")
        before = Path.cwd()
        with patch.dict(os.environ, self.env):
            for name in gone:
                os.environ.pop(name, None)
            os.chdir(self.repository)
            try:
                yield
            finally:
                os.chdir(before)

    def invited(self, address: str, name: str) -> None:
        """Log this machine in as a member of the team."""
        full = self._team.people[name].name
        with self._team.pool.transaction() as db:
            token = auth.login(db, self.invitation(name), "machine")[1]
        with self.here():
            stored_logins.remember(stored_logins.Account(stored_logins.origin_of(address), full, token))

    def invitation(self, name: str) -> str:
        """Return an invitation for a member of the team."""
        with self._team.pool.transaction() as db:
            return auth.invite(db, self._team.people[name].name, "write")

    def state(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of this machine's state database."""
        with self.here():
            return state_db.rows(query, *values)

    def tracking(self) -> Any:
        return json.loads((self.repository / ".smart-fork/tracking.json").read_text())
