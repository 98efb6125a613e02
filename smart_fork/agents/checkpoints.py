"""Sessions that a repository keeps itself: the checkpoints that Entire writes, listed once for each state of its refs.

``<SMART_FORK_HOME>/checkpoints/<digest>.json`` lists the sessions of one clone, and each is a log within that file.
Git is only asked for objects, by their ids; nothing is written into the repository, and nothing is fetched. All that
is in a checkpoint is somebody else's text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from indexer.checkout import Unproven, checkout, top_of
from indexer.files import replace_file
from indexer.masking import mask
from indexer.paths import checkpoints_dir, private_dir
from indexer.switches import is_off
from indexer.transcripts.base import LogFile
from indexer.transcripts.model import AgentName
from smart_fork.errors import SmartForkError
from smart_fork.system.processes import SystemProcesses
from smart_fork.text.snippets import printable

#: The setting that switches this off.
SWITCH = "SMART_FORK_CHECKPOINTS"
#: What a person runs in a clone that has not fetched the branch.
FETCH = "git fetch origin entire/checkpoints/v1:refs/remotes/origin/entire/checkpoints/v1"
#: As for sessions of a team's server: far more than anybody has.
_MOST_BYTES, _MOST_SESSIONS, _MOST_CHECKPOINTS = 200 << 20, 5_000, 20_000
_MOST_FACTS, _MOST_TREE, _MOST_REFS = 1 << 20, 16 << 20, 64 << 20
_SECONDS, _AT_ONCE, _NAME, _TITLE = 60.0, 500, 80, 200
#: One branch with all checkpoints, in its later form a ref of its own; and one ref for each checkpoint.
_BRANCH = re.compile(
    r"refs/(?:heads|remotes/[^/]+)/entire/checkpoints/v1|refs/entire/(?:remotes/[^/]+/)?checkpoints/v1\.1"
)
_SINGLE = re.compile(r"refs/entire/checkpoints/(..)/([0-9a-f]{12}|[0-9A-HJKMNP-TV-Z]{26})")
_PATTERNS = ("refs/heads/entire/checkpoints/", "refs/remotes/*/entire/checkpoints/v1", "refs/entire/")
_PART = re.compile(r"full\.jsonl(?:\.(\d{3,6}))?")
_DATED = re.compile(r"\d{4}-\d\d-\d\d-(?=[0-9a-f]{8}-)")
#: Names of agents there, by how they begin without spaces. The first versions knew one agent and named none.
_AGENTS = {"claude": "claude", "codex": "codex", "gemini": "gemini", "opencode": "opencode", "qwen": "qwen"} | {
    "copilot": "copilot", "githubcopilot": "copilot", "": "claude",
}  # fmt: skip
_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1", "GIT_PAGER": "cat", "LC_ALL": "C",
}  # fmt: skip


class Stored(NamedTuple):
    """The newest form of a session in a repository: its transcript in `parts`, and the `facts` about it, by their ids.

    `at` is the time of its checkpoint in nanoseconds. The author and the title are text of whoever wrote it.
    """

    agent: AgentName
    session_id: str
    author: str
    title: str
    branch: str
    at: int
    size: int
    facts: str
    parts: tuple[str, ...]


class Listed(NamedTuple):
    """The sessions of the repository `common`, for the clone in `top`. `stamp` and `refs` tell whether refs moved."""

    common: str
    top: str
    stamp: list[list[Any]]
    refs: str
    sessions: dict[str, Stored]


def is_within(location: str) -> bool:
    """Whether a log's place is that of a session in a repository."""
    return location.startswith(f"{checkpoints_dir()}/")


def note(directory: Path) -> None:
    """Look whether the clone at `directory` has checkpoints that are not listed yet. For nearly all it is a few looks
    at files.
    """
    if is_off(SWITCH) or (top := top_of(directory)) is None:
        return
    with suppress(Unproven, OSError, ValueError):
        common = str(checkout(top).common)
        known = _load(_file(common))
        if known is None and _may_have(common):
            _list(common, str(top), None)


def logs(agent: AgentName) -> list[LogFile]:
    """The sessions of an agent in all repositories that are known to have some."""
    return [_log(file, known, one) for file, known in _all() for one in known.sessions.values() if one.agent == agent]


def log_at(location: str) -> LogFile | None:
    """The session at this place; `None` where no repository has it any more."""
    found = find(location)
    return _log(Path(location).parent, *found) if found else None


def find(location: str) -> tuple[Listed, Stored] | None:
    """The session at this place as its repository has it."""
    file, _, session_id = location.rpartition("/")
    known = _load(Path(file)) if is_within(location) and not is_off(SWITCH) else None
    one = known.sessions.get(session_id) if known else None
    return (known, one) if known and one else None


def author_of(location: str) -> str:
    """Who wrote the session at this place; empty for a log of this machine."""
    found = find(location)
    return found[1].author if found else ""


def transcript(known: Listed, one: Stored) -> bytes:
    """The transcript of a session, its parts joined.

    Raises:
        OSError: the repository does not have it any more, or not all of it.
    """
    parts = [data for kind, data in _read(known.common, one.parts, _MOST_BYTES) if kind == "blob"]
    if len(parts) != len(one.parts):
        raise FileNotFoundError(f"{known.top} has no transcript of this session any more")
    return b"\n".join(parts) if len(parts) > 1 else parts[0]


def files_touched(known: Listed, one: Stored) -> frozenset[str]:
    """The files that the checkpoint says were changed, below the project's root."""
    said = next((_json(data).get("files_touched") for _, data in _read(known.common, [one.facts], _MOST_FACTS)), None)
    return frozenset(name for name in said if isinstance(name, str)) if isinstance(said, list) else frozenset()


def _file(common: str) -> Path:
    return checkpoints_dir() / f"{sha256(os.fsencode(common)).hexdigest()[:16]}.json"


def _log(file: Path, known: Listed, one: Stored) -> LogFile:
    version = sha256("\n".join((known.top, one.facts, *one.parts)).encode("utf-8", "replace")).hexdigest()
    return LogFile(one.agent, f"{file}/{one.session_id}", one.size, one.at, int(version[:12], 16), str(file))


def _all() -> Iterator[tuple[Path, Listed]]:
    """All lists, each as its repository is now."""
    if is_off(SWITCH):
        return
    try:
        files = sorted(Path(entry.path) for entry in os.scandir(checkpoints_dir()) if entry.name.endswith(".json"))
    except OSError:
        return
    for file in files:
        known = _load(file)
        if known is not None and (known := _now(file, known)) is not None:
            yield file, known


def _now(file: Path, known: Listed) -> Listed | None:
    """The list brought up to date where a ref has moved; nothing where the clone is gone."""
    if not (os.path.isdir(known.common) and os.path.isdir(known.top)):  # noqa: PTH112 - as text
        with suppress(OSError):
            file.unlink(missing_ok=True)
        return None
    if _stamp(known.common) == known.stamp:
        return known
    try:
        return _list(known.common, known.top, known)
    except OSError:  # git is late, or gone: what was known stands
        return known


def _load(file: Path) -> Listed | None:
    try:
        info = file.stat()
        return _loaded(file, info.st_mtime_ns, info.st_size, info.st_ino)
    except OSError:
        return None


@lru_cache(maxsize=16)
def _loaded(file: Path, *_state: int) -> Listed | None:
    try:
        said = orjson.loads(file.read_bytes())
        stored = [dict(zip(Stored._fields, one, strict=True)) for one in said["sessions"]]
        sessions = {one["session_id"]: Stored(**one | {"parts": tuple(one["parts"])}) for one in stored}
        return Listed(said["common"], said["top"], said["stamp"], said["refs"], sessions)
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def _save(known: Listed) -> None:
    private_dir(checkpoints_dir())
    said = known._asdict() | {"sessions": [list(one) for one in known.sessions.values()]}
    replace_file(_file(known.common), [orjson.dumps(said)])


def _list(common: str, top: str, before: Listed | None) -> Listed | None:
    """List a repository's sessions, and keep the list.

    Raises:
        OSError: git, or the list, cannot be read or written.
    """
    stamp = _stamp(common)
    refs = _refs(common)
    digest = sha256(b"\n".join(ref.encode() + at.encode() for at, ref, _ in refs)).hexdigest()
    if before is not None and before.refs == digest:
        known = before._replace(stamp=stamp)
    elif refs:
        known = Listed(common, top, stamp, digest, _sessions(common, refs))
    else:
        _file(common).unlink(missing_ok=True)
        return None
    _save(known)
    return known


# Where refs are, by looking at files.


def _stamp(common: str) -> list[list[Any]]:
    """What changes when one of these refs moves: loose refs and their folders, and where packed ones are."""
    found = [_seen(f"{common}/{name}") for name in ("packed-refs", "reftable/tables.list")]
    found += [_seen(path) for path in _loose(common)]
    return found


def _loose(common: str) -> Iterator[str]:
    yield f"{common}/refs/heads/entire/checkpoints/v1"
    for name in _names(f"{common}/refs/remotes"):
        yield f"{common}/refs/remotes/{name}/entire/checkpoints/v1"
    for name in _names(f"{common}/refs/entire/remotes"):
        yield f"{common}/refs/entire/remotes/{name}/checkpoints/v1.1"
    own = f"{common}/refs/entire/checkpoints"
    yield from (own, f"{own}/v1.1")
    yield from (f"{own}/{name}" for name in _names(own) if len(name) == 2)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))[:_AT_ONCE]  # noqa: PTH208 - as text
    except OSError:
        return []


def _seen(path: str) -> list[Any]:
    try:
        info = os.stat(path)  # noqa: PTH116 - as text
    except OSError:
        return []
    return [path, info.st_mtime_ns, info.st_size, info.st_ino]


def _may_have(common: str) -> bool:
    if os.path.lexists(f"{common}/reftable") or any(map(os.path.lexists, _loose(common))):
        return True
    try:
        with open(f"{common}/packed-refs", "rb") as file:  # noqa: PTH123 - as text
            return b"entire/" in file.read(_MOST_REFS)
    except OSError:
        return False


# What git is asked for.


def _git(common: str, *words: str, given: bytes = b"") -> bytes:
    """Return git's answer.

    Raises:
        OSError: it refuses, is not installed, or is late.
    """
    clean = {name: said for name, said in os.environ.items() if not name.startswith("GIT_")}
    argv = ("git", "-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never", f"--git-dir={common}", *words)
    try:
        done = SystemProcesses().run(argv, env=clean | _ENVIRONMENT, timeout=_SECONDS, input=given)
    except SmartForkError as error:
        raise OSError(error.message) from error
    if not done.ok:
        raise OSError(f"git {words[0]} failed: {done.complaint}")
    return done.stdout


def _refs(common: str) -> list[tuple[str, str, str]]:
    """The commit, the name and the commit's author of each ref that has checkpoints."""
    said = _git(common, "for-each-ref", "--format=%(objectname)%00%(refname)%00%(authorname)", *_PATTERNS)
    refs = (line.split("\0") for line in said.decode("utf-8", "replace").splitlines())
    found = [(ref[0], ref[1], ref[2]) for ref in refs if len(ref) == 3 and _is_ours(ref[1])]
    return found[:_MOST_CHECKPOINTS]


def _is_ours(name: str) -> bool:
    single = _SINGLE.fullmatch(name)
    return bool(_BRANCH.fullmatch(name)) or bool(single and single[2].endswith(single[1]))


def _authors(common: str, commit: str) -> Iterator[tuple[str, str, str]]:
    """The checkpoint, the session and the author that each commit of a branch names, the newest first."""
    form = "%an%x00%s%x00%(trailers:key=Entire-Session,valueonly,separator=%x20)%x00"
    said = _git(common, "rev-list", f"--max-count={_MOST_CHECKPOINTS}", f"--format={form}", commit)
    fields = said.decode("utf-8", "replace").split("\0")
    for author, subject, session in zip(fields[::3], fields[1::3], fields[2::3], strict=False):
        yield subject.removeprefix("Checkpoint: ").strip(), session.strip(), author.rpartition("\n")[2]


def _read(common: str, ids: Sequence[str], most: int) -> Iterator[tuple[str, bytes]]:
    """The kind and the content of each of these objects, in their order; empty for one that is missing or too large."""
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[start : start + _AT_ONCE]
        fits = [kind and size <= most for kind, size in _sizes(common, some)]
        asked = [one for one, is_wanted in zip(some, fits, strict=True) if is_wanted]
        said, at = _git(common, "cat-file", "--batch", given=_lines(asked)) if asked else b"", 0
        for is_wanted in fits:
            if not is_wanted:
                yield "", b""
                continue
            end = said.index(b"\n", at)
            _, kind, size = said[at:end].decode().split(" ")
            yield kind, said[end + 1 : end + 1 + int(size)]
            at = end + 2 + int(size)


def _sizes(common: str, ids: Sequence[str]) -> list[tuple[str, int]]:
    """The kind and the size of each of these objects; an empty kind for one that is missing."""
    said = _git(common, "cat-file", "--batch-check", given=_lines(ids)).decode().splitlines() if ids else []
    told = [line.split(" ") for line in said]
    return [(one[1], int(one[2])) if len(one) == 3 else ("", 0) for one in told]


def _lines(ids: Iterable[str]) -> bytes:
    return "".join(f"{one}\n" for one in ids).encode()


# What is in a checkpoint.


class _Entry(NamedTuple):
    mode: bytes
    name: str
    id: str


class _Place(NamedTuple):
    """A checkpoint: its id, the tree that has its sessions, and its author where its ref says that."""

    id: str
    tree: str
    author: str = ""


def _sessions(common: str, refs: Sequence[tuple[str, str, str]]) -> dict[str, Stored]:
    """The newest form of each session in these refs, the newest sessions first."""
    places, authors = [], dict[tuple[str, str], str]()
    for commit, name, author in refs:
        if single := _SINGLE.fullmatch(name):
            places.append(_Place(single[2], f"{commit}^{{tree}}", author))
            continue
        places += _of_branch(common, f"{commit}^{{tree}}")
        for checkpoint, session, whose in _authors(common, commit):
            authors.setdefault((checkpoint, session), whose)
            authors.setdefault((checkpoint, ""), whose)
        authors.setdefault(("", ""), author)
    found: dict[str, Stored] = {}
    for one in _told(common, places[:_MOST_CHECKPOINTS], authors):
        known = found.get(one.session_id)
        if known is None or (one.at, one.size) > (known.at, known.size):
            found[one.session_id] = one
    newest = sorted(found.values(), key=lambda one: -one.at)[:_MOST_SESSIONS]
    return {one.session_id: one for one in newest}


def _of_branch(common: str, tree: str) -> list[_Place]:
    """The checkpoints of a branch: ``<2 characters>/<the rest of the id>``."""
    folders = [one for one in _trees(common, [tree])[0] if one.mode == b"40000" and len(one.name) == 2]
    below = _trees(common, [one.id for one in folders])
    return [
        _Place(folder.name + one.name, one.id)
        for folder, entries in zip(folders, below, strict=True)
        for one in entries
        if one.mode == b"40000"
    ]


def _told(common: str, places: Sequence[_Place], authors: dict[tuple[str, str], str]) -> Iterator[Stored]:
    """Each session of these checkpoints that has a transcript and says whose it is."""
    numbered = [
        (place, one.id)
        for place, entries in zip(places, _trees(common, [place.tree for place in places]), strict=True)
        for one in entries
        if one.mode == b"40000" and one.name.isdigit()
    ]
    folders = []
    for (place, _), entries in zip(numbered, _trees(common, [one for _, one in numbered]), strict=True):
        files = {one.name: one.id for one in entries if one.mode in (b"100644", b"100755")}
        found = sorted((int(part[1] or 0), one) for name, one in files.items() if (part := _PART.fullmatch(name)))
        if found and [number for number, _ in found] == list(range(len(found))) and "metadata.json" in files:
            folders.append((place, files, tuple(one for _, one in found)))
    facts = _read(common, [files["metadata.json"] for _, files, _ in folders], _MOST_FACTS)
    prompts = _read(common, [files.get("prompt.txt", files["metadata.json"]) for _, files, _ in folders], _MOST_FACTS)
    sizes = iter(_sizes(common, [one for _, _, parts in folders for one in parts]))
    for (place, files, parts), (_, said), (_, asked) in zip(folders, facts, prompts, strict=True):
        held = [next(sizes) for _ in parts]
        size = sum(number for _, number in held)
        told = _json(said)
        agent = _agent(told.get("agent"))
        session_id = _DATED.sub("", _text(told.get("session_id")))
        if not agent or not _is_id(session_id) or not all(kind for kind, _ in held) or not 0 < size <= _MOST_BYTES:
            continue
        named = _text(told.get("session_id"))
        author = place.author or authors.get((place.id, named)) or authors.get((place.id, "")) or authors.get(("", ""))
        title = asked.decode("utf-8", "replace").strip().partition("\n")[0] if "prompt.txt" in files else ""
        yield Stored(
            agent, session_id, _plain(author or "", _NAME) or "unknown", _plain(title, _TITLE),
            _plain(_text(told.get("branch")), _TITLE), _time(told.get("created_at")), size, files["metadata.json"],
            parts,
        )  # fmt: skip


def _trees(common: str, ids: Sequence[str]) -> list[list[_Entry]]:
    """The entries of each of these trees; none of what is no tree."""
    return [list(_entries(data)) if kind == "tree" else [] for kind, data in _read(common, ids, _MOST_TREE)]


def _entries(data: bytes) -> Iterator[_Entry]:
    at, width = 0, 0
    while at < len(data):
        end = data.index(b"\0", at)
        mode, _, name = data[at:end].partition(b" ")
        width = width or _width(data, end)
        yield _Entry(mode, name.decode("utf-8", "replace"), data[end + 1 : end + 1 + width].hex())
        at = end + 1 + width


def _width(data: bytes, end: int) -> int:
    """How long ids are in a tree: whichever length leads to another entry, or to the end."""
    for width in (20, 32):
        if end + 1 + width == len(data) or re.match(rb"\d{5,6} ", data[end + 1 + width :][:7]):
            return width
    raise ValueError("no tree that git writes")


def _json(data: bytes) -> dict[str, Any]:
    try:
        said = orjson.loads(data)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _text(said: object) -> str:
    return said if isinstance(said, str) else ""


def _agent(said: object) -> AgentName | None:
    name = re.sub(r"[^a-z]", "", _text(said).lower())
    return _AGENTS.get(name) or next((ours for one, ours in _AGENTS.items() if one and name.startswith(one)), None)


def _is_id(text: str) -> bool:
    """Whether this can be a session's id of any agent: nothing that is a path or an option."""
    return re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z_-]{7,99}", text) is not None


def _plain(text: str, most: int) -> str:
    return printable(mask(" ".join(text[: most * 4].split())))[:most].strip()


def _time(said: object) -> int:
    """A time in nanoseconds; 0 for what is none, and never later than now: the newest form of a session counts."""
    try:
        at = datetime.fromisoformat(_text(said)).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0
    return max(0, min(int(at * 1e9), int(datetime.now().timestamp() * 1e9)))  # noqa: DTZ005 - a number of seconds
