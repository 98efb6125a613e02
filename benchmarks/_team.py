"""A real server of a team with a database of its own, and people who have logged in to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

import psutil

from smart_fork.team.client import Client
from smart_fork.team.login import Account
from smart_fork.team.server import auth
from smart_fork.team.server.admin import add
from smart_fork.team.server.database import at_hand

#: Jobs after which something is found as it should be.
SEARCHED = ["index", "doubt"]
_PASSED_ON = ("PATH", "LANG", "VIRTUAL_ENV", "PYTHONPATH", "OMP_NUM_THREADS")


class TeamServer:
    """``smart-fork team serve`` in `folder`, which other users must be able to enter. Leaving the context ends it.

    What it says of itself is in `log`.
    """

    def __init__(self, folder: Path, workers: int = 1) -> None:
        self._data, self._workers, self._folder = folder / "data", workers, folder
        self.log = folder / "log"

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "smart_fork", "team", "serve", "--json", "--listen", "127.0.0.1:0"]
        command += ["--data", str(self._data), "--workers", str(self._workers)]
        if os.geteuid() == 0:
            command += ["--run-as", "nobody"]
        kept = {name: value for name, value in os.environ.items() if name in _PASSED_ON}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, stderr=log, cwd=self._folder,
                env=kept | {"HOME": str(self._folder), "HF_HUB_OFFLINE": "1"},
            )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"the server did not start: {self.log.read_text(errors='replace')[-2000:]}")
        self.url = str(json.loads(line)["url"])
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def account(self, name: str, projects: list[str]) -> Account:
        """Somebody new, a writer of all these projects, who has logged in."""
        with at_hand(self._data) as db:
            invitation = add(db, name, admin=False)["invite"]
            for project in projects:
                auth.make_project(db, project)
                auth.set_member(db, project, name, "writer")
        with Client(Account(self.url, "", "")) as client:
            logged_in = client.login(invitation, "benchmark")
        return Account(self.url, name, logged_in.token)

    @property
    def runs(self) -> bool:
        """Whether it still does."""
        return self._process.poll() is None

    def database(self) -> AbstractContextManager[Any]:
        """A connection as who owns the tables."""
        return at_hand(self._data)

    def settle(self) -> float:
        """Wait until nothing waits in the background; the seconds that it took."""
        began = time.perf_counter()
        while self._waiting():
            time.sleep(1)
        return time.perf_counter() - began

    def look(self) -> dict[str, Any]:
        """Memory and open files of all processes, those of the database, its size on disk, rows, and jobs."""
        processes = [psutil.Process(self._process.pid), *psutil.Process(self._process.pid).children(recursive=True)]
        with at_hand(self._data) as db:
            row = db.execute(
                "SELECT pg_database_size(current_database()) AS bytes,"
                " (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,"
                " (SELECT sum(n_dead_tup) FROM pg_stat_user_tables) AS dead,"
                " (SELECT sum(n_live_tup) FROM pg_stat_user_tables) AS rows,"
                " (SELECT count(*) FROM jobs WHERE kind = ANY(%s)) AS waiting",
                (SEARCHED,),
            ).fetchone()
        assert row is not None
        return {
            "megabytes": sum(_pss(one) for one in processes) / 1e6, "processes": len(processes),
            "connections": row["connections"], "database_megabytes": row["bytes"] / 1e6,
            "rows": int(row["rows"] or 0), "dead_rows": int(row["dead"] or 0), "waiting": row["waiting"],
            "files": sum(_files(one) for one in processes if "postgres" not in _name(one)),
            "database_files": sum(_files(one) for one in processes if "postgres" in _name(one)),
            "load_average": os.getloadavg()[0],
        }  # fmt: skip

    def _waiting(self) -> int:
        with at_hand(self._data) as db:
            row = db.execute("SELECT count(*) AS waiting FROM jobs WHERE kind = ANY(%s)", (SEARCHED,)).fetchone()
        return int(row["waiting"]) if row else 0


def _pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


def _files(process: psutil.Process) -> int:
    try:
        return int(process.num_fds())
    except psutil.Error:
        return 0


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""
