"""The command ``demo``: a search in made-up sessions of Claude Code and Codex, in a temporary home directory.

The folder `sessions` has the logs, `repositories` the commits that the sessions made. `write_demo_home` fills in
directories, commit ids and times.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import orjson

from indexer.lazy_compilation import dataclass
from smart_fork.agents import AGENTS
from smart_fork.cli.output import library_shown, printed_as_json, say
from smart_fork.cli.result_list import print_found
from smart_fork.errors import ProgramFailed
from smart_fork.finding.request import FindRequest
from smart_fork.system.processes import Processes

#: A function that runs git with arguments in a directory and bytes on stdin, and returns its output.
Git = Callable[[Sequence[str], Path, bytes], str]

INTENT = "let the downloader retry with backoff when the network is shaky"
ANSWER = "70f1a07f-1a59-41fc-af14-ca651da4b1a0"
REPOSITORIES = ("parcel", "harbor")
GIT_SECONDS = 30.0
_SESSIONS = Path(__file__).parent / "sessions"
#: The folder with the repositories' commits for ``git fast-import``, with times in the form of the logs.
_REPOSITORIES = Path(__file__).parent / "repositories"
#: The time that counts as now in the demo's files. All times, and ids that are times, are moved by the difference.
_WRITTEN = datetime(2026, 1, 30, 12, tzinfo=UTC)
_MOMENT = re.compile(
    rb'(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)|(?P<key>"(?:started|completed)_at":)(?P<seconds>\d+)'
    rb"|(?P<id>[0-9a-f]{8}-[0-9a-f]{4})(?=-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})"
)
#: The size of the parent's log in a fork of Codex: it depends on the length of the home's path.
_PARENT_SIZE = re.compile(rb'("thread_id":"([^"]+)","end_ordinal_exclusive":\d+,"end_byte_offset":)"{{size of it}}"')


@dataclass(frozen=True, slots=True)
class DemoHome:
    """A home directory with the demo's sessions. A search for `intent` in `project` finds `expected_session_id`."""

    home: Path
    repositories: tuple[Path, ...]
    intent: str
    expected_session_id: str
    project: Path


def run_git(arguments: Sequence[str], directory: Path, given: bytes = b"") -> str:
    """Run git with `given` on stdin, and without the person's git settings. Return its output.

    Raises:
        ProgramFailed: git failed.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = Processes().run(["git", *arguments], cwd=directory, env=environment, timeout=GIT_SECONDS, input=given)
    if not done.ok:
        raise ProgramFailed(f"git {arguments[0]} failed: {done.complaint}")
    return done.text


def write_demo_home(home: Path, *, now: datetime | None = None, git: Git = run_git) -> DemoHome:
    """Write two git repositories and the demo's sessions below `home`; the newest ends some days before `now`.

    Codex session ids contain a time, so they depend on `now`.
    """
    home, later = home.resolve(), (now or datetime.now(UTC)) - _WRITTEN
    known = {"{{home}}": _in_json(str(home)), "{{home, quoted}}": _in_json(_in_json(str(home)))}
    for name in REPOSITORIES:
        known[f"{{{{commit of {name}}}}}"] = _write_repository(home / "repos" / name, later, git)
    sizes: dict[bytes, int] = {}
    for file in sorted(_SESSIONS.rglob("*.jsonl")):  # a fork of Codex is younger than its parent
        text = file.read_bytes()
        for mark, value in known.items():
            text = text.replace(mark.encode(), value.encode())
        text = _MOMENT.sub(lambda found: _moved(found, later), text)
        text = _PARENT_SIZE.sub(lambda found: found[1] + str(sizes[found[2]]).encode(), text)
        agent, *place = file.relative_to(_SESSIONS).parts
        if agent == "claude":
            project = Path(AGENTS["claude"].reader.place_of(str(home / "repos" / place[0]))).name
            path = home.joinpath(".claude/projects", project, *place[1:])
        else:
            path = _codex_log_path(home, text)
            sizes[path.stem[-36:].encode()] = len(text)
        _save(path, text)
    repositories = tuple(home / "repos" / name for name in REPOSITORIES)
    return DemoHome(home, repositories, INTENT, ANSWER, repositories[0])


def _write_repository(folder: Path, later: timedelta, git: Git) -> str:
    """Make a git repository with the demo's commits, all times moved by `later`. Return the first commit's id."""
    folder.mkdir(parents=True, exist_ok=True)
    history = (_REPOSITORIES / f"{folder.name}.history").read_bytes()
    git(["init", "--quiet", "--template="], folder, b"")
    git(["symbolic-ref", "HEAD", "refs/heads/main"], folder, b"")
    dated = _MOMENT.sub(lambda found: b"%d +0000" % (_moment(found) + later).timestamp(), history)
    git(["fast-import", "--quiet", "--force"], folder, dated)
    git(["reset", "--quiet", "--hard"], folder, b"")
    return git(["rev-parse", ":/^Start "], folder, b"")


def _in_json(text: str) -> str:
    return orjson.dumps(text).decode()[1:-1]


def _moved(found: re.Match[bytes], later: timedelta) -> bytes:
    if found["stamp"]:
        moment = _moment(found) + later
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z".encode()
    if found["id"]:
        milliseconds = f"{int(found['id'].replace(b'-', b''), 16) + later // timedelta(milliseconds=1):012x}"
        return f"{milliseconds[:8]}-{milliseconds[8:]}".encode()
    return found["key"] + str(int(found["seconds"]) + round(later.total_seconds())).encode()


def _moment(found: re.Match[bytes]) -> datetime:
    return datetime.fromisoformat(found["stamp"].decode())


def _codex_log_path(home: Path, text: bytes) -> Path:
    """Return the path at which Codex keeps a log with this `text`. Its name has the session's start in local time."""
    about = orjson.loads(text[: text.index(b"\n")])["payload"]
    start = datetime.fromisoformat(about["timestamp"]).astimezone()
    return home / ".codex/sessions" / f"{start:%Y/%m/%d/rollout-%Y-%m-%dT%H-%M-%S}-{about['id']}.jsonl"


def _save(path: Path, text: bytes) -> None:
    """Write a log file that only its owner can read, with the time of its last record as modification time."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600)
    path.write_bytes(text)
    last = max(_moment(found) for found in _MOMENT.finditer(text) if found["stamp"])
    os.utime(path, (last.timestamp(), last.timestamp()))


def _shell_command(home: Path, env: Mapping[str, str]) -> str:
    """Return a command for a shell in the demo's repository, with `home` as its home directory.

    It unsets variables in `env` that would make smart-fork or an agent use another home.
    """
    names = ("SMART_FORK_HOME", *AGENTS.home_variables())
    unset = [word for name in names if name in env for word in ("-u", name)]
    place, variable = home / "repos" / REPOSITORIES[0], shlex.quote(f"HOME={home}")
    return f'cd {shlex.quote(str(place))} && {shlex.join(["env", *unset])} {variable} "$SHELL"'


def demo(keep: Annotated[bool, "Keep the temporary home and print its path."] = False) -> None:
    """Show the main job on a few made-up sessions in a temporary home."""
    before = dict(os.environ)
    folder = Path(tempfile.mkdtemp(prefix="smart-fork-demo-"))
    try:
        made = write_demo_home(folder)
        os.environ.update(
            HOME=str(made.home), SMART_FORK_HOME=str(made.home / ".smart-fork"), SMART_FORK_BACKGROUND="0",
            SMART_FORK_INDEXING="true", **{home.variable: str(made.home / home.default) for home in AGENTS.homes()},
        )  # fmt: skip
        say(f"These are {len(made.repositories)} made-up repositories with made-up sessions of coding agents.")
        say(f'Which of them already knows how to "{made.intent}"?')
        say("")
        with library_shown(str(made.project)) as known:
            answer = known.find(FindRequest(made.intent, agent_type="all", limit=3))
        if printed_as_json(answer):
            return
        print_found(answer)
        say("")
        if not keep:
            say("The example sessions are deleted. Try your own, in a repository where an agent has worked:")
            say('  smart-fork find "what you want to do next"')
            say("  smart-fork setup       connects it to your agents")
    finally:
        os.environ.clear()
        os.environ.update(before)
        if keep:
            say(f"Kept: {folder} - go there, and `exit` to leave it:")
            say(f"  {_shell_command(folder, before)}")
            say("  smart-fork why parcel/retry.py:12")
        else:
            shutil.rmtree(folder, ignore_errors=True)
