"""The git ref of the synchronized files. Its commit has no parent, so that removed files are not reachable.

Git runs in a separate bare repository, and touches no other. The user's own git settings apply, since they contain the
login; but hooks, prompts, and transports that could run a program are disabled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from indexer.safe_files import private_dir
from smart_fork.display_text import quoted
from smart_fork.errors import ProgramFailed, Unshareable, Usage
from smart_fork.finding.git import bare_environment
from smart_fork.sharing.sync import manifest
from smart_fork.system.processes import Completed, Processes

REF = "refs/smart-fork/sync"
#: The local name of the fetched ref.
_FETCHED = "refs/smart-fork/fetched"
#: The time limits of a request to the remote, and of a transfer.
ASK_SECONDS, MOVE_SECONDS = 60.0, 1_800.0
#: The largest size and number of files to read.
FILE_BYTES, FILES = 256 << 20, 100_000
_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.compression": "0",
    "core.alternateRefsCommand": "false",
    "core.askPass": "",
    "core.gitProxy": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "push.gpgSign": "false",
    "push.followTags": "false",
    "push.recurseSubmodules": "no",
    "fetch.recurseSubmodules": "no",
    "submodule.recurse": "false",
    "fetch.unpackLimit": "1000000",  # single objects, which can be deleted here when they are not needed any more
    "transfer.fsckObjects": "true",
}
#: The git command for a remote on this machine: it runs none of that repository's hooks.
_THERE = "git -c core.hooksPath=/dev/null -c core.alternateRefsCommand=false -c core.fsmonitor=false -c gc.auto=0"
_URL = re.compile(r"(https|ssh|file)://([^/\s]*)/\S+", re.IGNORECASE)
_SCP = re.compile(r"(?:[A-Za-z0-9_.~-]+@)?[A-Za-z0-9][A-Za-z0-9.-]+:(?!:|//)\S+")
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_AUTHOR = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "smart-fork"), ("EMAIL", "smart-fork@localhost"), ("DATE", "@0 +0000"))
}


def checked(remote: str) -> str:
    """Check the address of a git remote. Return it, or the absolute path of a remote on this machine.

    Raise `Usage` if `remote` is not the address of a git remote, names a missing directory, contains a password, or
    looks like an option of git.
    """
    said = remote.strip()
    hint = "Such as git@example.org:ann/sessions.git, https://example.org/ann/sessions.git or /mnt/stick/sessions.git"
    if found := _URL.fullmatch(said):
        user = found[2].rpartition("@")[0]
        if ":" in user:
            raise Usage("The address has a password in it.", "Keep the password in git's credential helper.")
        if not user.startswith("-") and not found[2].rpartition("@")[2].startswith("-"):
            return said
    elif _SCP.fullmatch(said) and not said.startswith("-") and not said.split(":", 1)[1].startswith("-"):
        return said
    elif said and not said.startswith("-") and "::" not in said and "://" not in said and said.isprintable():
        path = Path(said).expanduser()
        if path.is_dir():
            return str(path.resolve())
        raise Usage(f"No directory {quoted(said)}", hint)
    raise Usage(f"Not the address of a git remote: {quoted(said)}", hint)


@dataclass(frozen=True, slots=True)
class Fetched:
    """The fetched files: the remote's commit, and git's blob ids by file name. `commit` is empty if there are none."""

    commit: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ref:
    """The git ref on the remote that synchronization uses. `remote` is an address that `checked` returned."""

    remote: str
    processes: Processes = field(default_factory=Processes)

    def fetch(self) -> Fetched:
        """Fetch the remote's files into the local repository."""
        if not (self._folder / "HEAD").exists():
            private_dir(self._folder)
            self._asked("init", "--quiet", "--bare", "--template=")
        if not self._there():
            return Fetched()
        self._moved(
            "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--depth=1", *self._program("upload-pack"), "--",
            self.remote, f"+{REF}:{_FETCHED}",
        )  # fmt: skip
        commit = self._asked("rev-parse", "--verify", "--quiet", f"{_FETCHED}^{{commit}}").text
        return Fetched(commit, dict(self._listed(commit)))

    def read(self, blob: str) -> bytes:
        """Return the content of a fetched file by its blob id. Raise `Unshareable` if it is too large for a session."""
        if int(self._asked("cat-file", "-s", blob).text) > FILE_BYTES:
            raise Unshareable("A file on the remote is too large.")
        return self._asked("cat-file", "blob", blob).stdout

    def add(self, data: bytes) -> str:
        """Store a file's content in the local repository for the next push, and return its blob id."""
        return self._asked("hash-object", "-w", "--stdin", given=data).text

    def push(self, files: Mapping[str, str], before: Fetched) -> bool:
        """Replace the remote's files by `files` (blob ids by name). Return False if it has changed since `before`."""
        lines = "".join(f"100644 blob {blob}\t{name}\n" for name, blob in sorted(files.items()))
        tree = self._asked("mktree", given=lines.encode()).text
        commit = self._asked("commit-tree", tree, "-m", "smart-fork sync", env=_AUTHOR).text
        done = self._git(
            "push", "--quiet", "--no-verify", f"--force-with-lease={REF}:{before.commit}",
            *self._program("receive-pack"), "--", self.remote, f"{commit}:{REF}",
            seconds=MOVE_SECONDS,
        )  # fmt: skip
        now = commit if done.ok else self._there()
        if now == commit:
            self._asked("update-ref", _FETCHED, commit)
            self._git("prune", "--expire=now", seconds=MOVE_SECONDS)
            return True
        if now != before.commit:
            return False
        raise ProgramFailed(f"git push failed: {done.complaint}", f"May you write to {self.remote}?")

    @property
    def _folder(self) -> Path:
        return manifest.folder() / "repository.git"

    def _there(self) -> str:
        """Return the commit of the remote's ref; empty if it has no such ref."""
        said = self._moved("ls-remote", *self._program("upload-pack"), "--", self.remote, REF, seconds=ASK_SECONDS)
        for line in said.text.splitlines():
            commit, _, name = line.partition("\t")
            if name == REF and _COMMIT.fullmatch(commit):
                return commit
        return ""

    def _listed(self, commit: str) -> Sequence[tuple[str, str]]:
        found = []
        for entry in self._asked("ls-tree", "-z", commit).stdout.decode("utf-8", "replace").split("\0"):
            about, _, name = entry.partition("\t")
            kind = about.split(" ")
            if kind[:2] == ["100644", "blob"]:
                found.append((name, kind[2]))
        if len(found) > FILES:
            raise Unshareable(f"The remote has more than {FILES} files.")
        return found

    def _program(self, name: str) -> tuple[str, ...]:
        """Return git's option that makes its program `name` run no hooks of a remote on this machine; else ()."""
        here = self.remote.startswith("/") or self.remote.lower().startswith("file://")
        return (f"--{name}={_THERE} {name}",) if here else ()

    def _moved(self, *arguments: str, seconds: float = MOVE_SECONDS) -> Completed:
        done = self._git(*arguments, seconds=seconds)
        if not done.ok:
            raise ProgramFailed(f"git {arguments[0]} failed: {done.complaint}", f"Does git reach {self.remote}?")
        return done

    def _asked(self, *arguments: str, env: Mapping[str, str] | None = None, given: bytes = b"") -> Completed:
        done = self._git(*arguments, env=env, given=given)
        if not done.ok:
            raise ProgramFailed(
                f"git {arguments[0]} failed: {done.complaint}", f"Remove {self._folder}: the next sync makes it again."
            )
        return done

    def _git(
        self, *arguments: str, env: Mapping[str, str] | None = None, given: bytes = b"", seconds: float = ASK_SECONDS
    ) -> Completed:
        clean = bare_environment(self._folder, _SETTINGS) | {"GIT_ALLOW_PROTOCOL": "file:https:ssh"}
        if not self._has_ssh_command(clean):
            clean["GIT_SSH_COMMAND"] = "ssh -oBatchMode=yes"
        return self.processes.run(["git", *arguments], env=clean | dict(env or {}), timeout=seconds, input=given)

    def _has_ssh_command(self, clean: Mapping[str, str]) -> bool:
        """Return True if git must use the ssh command that the user has configured."""
        if self.remote.startswith("/") or self.remote.lower().startswith(("https:", "file:")):
            return False
        asked = ["git", "config", "--get", "core.sshCommand"]
        return self.processes.run(asked, env=clean, timeout=ASK_SECONDS).ok
