"""Two machines of one person in one process: each has a home and a clone, and both use one bare repository."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from smart_fork.cli.main import main
from smart_fork.sharing.sync.ref import REF
from tests.smart_fork.world import World, add_program, git

URL = "git@example.org:people/shop.git"


@dataclass
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, (self.out, self.err)
        return json.loads(self.out)


class Machine:
    """One of the two machines. `world` makes sessions on it, and `do` runs a command in its clone."""

    def __init__(self, home: Path, source: Path | None, capsys: Any) -> None:
        self.home, self._capsys = home, capsys
        self.repository = home / "code" / "shop"
        self.repository.mkdir(parents=True)
        if source is None:
            git(self.repository, "init", "-q", "-b", "main")
            git(self.repository, "commit", "-q", "--allow-empty", "-m", "First")
        else:
            subprocess.run(["git", "clone", "-q", str(source), str(self.repository)], check=True, capture_output=True)
            git(self.repository, "remote", "remove", "origin")
        git(self.repository, "remote", "add", "origin", URL)
        self.world = World(home)
        for name, says in (("claude", "  --fork-session  Fork"), ("codex", "Commands:\n  fork  Fork\n  exec  Run")):
            add_program(home / "bin", name, says)
        self.env = {
            "HOME": str(home), "SMART_FORK_HOME": str(home / ".smart-fork"), "SMART_FORK_BACKGROUND": "0",
            "PATH": f"{home / 'bin'}{os.pathsep}/usr/bin:/bin", "COLUMNS": "200",
        }  # fmt: skip

    def do(self, *words: str, given: str = "") -> Said:
        """Run a command in the clone, and return its output."""
        with self.here(), patch("sys.argv", ["smart-fork", *words]), patch("sys.stdin", io.StringIO(given)):
            self._capsys.readouterr()
            try:
                main()
            except SystemExit as ended:
                code = int(ended.code or 0)
            said = self._capsys.readouterr()
        return Said(code, said.out, said.err)

    def sync(self, *words: str) -> Any:
        """Run `sync`, check that it succeeds, and return its answer."""
        return self.do("sync", *words, "--json").json

    def ids(self) -> set[str]:
        """Return the ids of the listed sessions of the project."""
        return {one["session_id"] for one in self.do("list", "--json").json["sessions"]}

    def logs(self) -> str:
        """Return the text of all agents' logs on this machine."""
        return "".join(path.read_text() for path in sorted(self.home.rglob("*.jsonl")))

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """Let this process act as the machine inside the block."""
        before = Path.cwd()
        with patch.dict(os.environ, self.env):
            for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
                os.environ.pop(name, None)
            os.chdir(self.repository)
            try:
                yield
            finally:
                os.chdir(before)


class Machines:
    """The two machines and their remote."""

    def __init__(self, home: Path, capsys: Any) -> None:
        self.remote = home / "remote.git"
        subprocess.run(["git", "init", "-q", "--bare", str(self.remote)], check=True)
        self.laptop = Machine(home / "laptop", None, capsys)
        self.desktop = Machine(home / "desktop", self.laptop.repository, capsys)

    def set_up(self) -> None:
        assert self.laptop.do("sync", "setup", self.remote.as_uri()).code == 0
        key = self.laptop.do("sync", "key").out
        said = self.desktop.do("sync", "setup", "--key", self.remote.as_uri(), given=key)
        assert said.code == 0, said.err

    def git(self, *words: str) -> str:
        """Run git in the remote."""
        return subprocess.run(
            ["git", "-C", str(self.remote), *words], check=True, capture_output=True, text=True, errors="replace"
        ).stdout

    def files(self) -> dict[str, str]:
        """Return the blobs of the remote's files by name."""
        lines = (line.split(None, 3) for line in self.git("ls-tree", REF).splitlines())
        return {name: blob for _, _, blob, name in lines}


@pytest.fixture
def machines(home, capsys) -> Machines:
    return Machines(home, capsys)
