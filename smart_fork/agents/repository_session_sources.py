"""Sessions in repositories: Entire's checkpoints, read from git objects, and SpecStory's histories in Markdown.

All of their text is untrusted. Git is only asked for objects by id. A Markdown history
(``.specstory/history/<time>-<words>.md``) has no log that an agent could load. Only regular files are read, and a
heading counts only outside of code blocks.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from uuid import NAMESPACE_URL, uuid5

from indexer.handover_action_lines import HandedOverAction, render_handover
from indexer.json_values import dict_in, json_in, list_in, seconds_in, text_in
from indexer.masking import mask
from indexer.safe_files import open_regular
from indexer.transcripts.model import AgentName
from indexer.transcripts.reader_state import utc
from smart_fork.agents.portable_records import Utterance
from smart_fork.display_text import printable
from smart_fork.errors import SmartForkError
from smart_fork.system.processes import Processes

#: Limits far above any real repository: bytes of a transcript, sessions, and checkpoints.
_MAX_BYTES, _MAX_SESSIONS, _MAX_CHECKPOINTS = 64 << 20, 5_000, 20_000
#: Limits in bytes: of the facts about a session, of a git tree, and of all objects read by one call.
_MAX_FACTS, _MAX_TREE, _MAX_READ = 1 << 20, 1 << 20, 256 << 20
#: The limit of one git command in seconds; objects and bytes that are read by one; characters of a name and a title.
_SECONDS, _BATCH_OBJECTS, _BATCH_BYTES, _NAME_CHARACTERS, _TITLE_CHARACTERS = 60.0, 500, 32 << 20, 80, 200
#: The branch with all checkpoints, or the ref that replaced it; and the ref of a single checkpoint.
_BRANCH = re.compile(
    r"refs/(?:heads|remotes/[^/]+)/entire/checkpoints/v1|refs/entire/(?:remotes/[^/]+/)?checkpoints/v1\.1"
)
_SINGLE = re.compile(r"refs/entire/checkpoints/(..)/([0-9a-f]{12}|[0-9A-HJKMNP-TV-Z]{26})")
_PATTERNS = ("refs/heads/entire/checkpoints/", "refs/remotes/*/entire/checkpoints/v1", "refs/entire/")
_HEX, _NUMBER = re.compile(r"[0-9a-f]{12}"), re.compile(r"[0-9]{1,6}")
_COMMIT = re.compile(r"tree (?P<tree>[0-9a-f]{40,64})\n(?:parent [0-9a-f]+\n)*author (?P<author>[^<\n]*)")
_PART = re.compile(r"full\.jsonl(?:\.(\d{3,6}))?")
_DATED = re.compile(r"\d{4}-\d\d-\d\d-(?=[0-9a-f]{8}-)")
#: Agents by the beginning of their names in checkpoints, without spaces. The first versions named no agent.
_AGENTS = {"claude": "claude", "codex": "codex", "gemini": "gemini", "opencode": "opencode", "qwen": "qwen"} | {
    "copilot": "copilot", "githubcopilot": "copilot", "vscode": "copilot", "cursor": "cursor", "droid": "droid",
    "factory": "droid", "": "claude",
}  # fmt: skip
_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1", "GIT_PAGER": "cat", "LC_ALL": "C",
}  # fmt: skip


class StoredSession(NamedTuple):
    """A session in a repository. `parts` are ids of git objects with its transcript, `facts` the id of its metadata.

    For a Markdown history, `parts` has the file's name, and `facts` the file's version. `at` is the time of the
    checkpoint (saved state) in nanoseconds. The author and the title are untrusted text.
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

    @property
    def is_history(self) -> bool:
        """True if the session is a Markdown history, which its agent cannot load."""
        return self.facts.startswith(_FACTS)


# What git is asked for.


def _git(common: str, *words: str, given: bytes = b"") -> bytes:
    """Run git in the git directory `common` with `given` on stdin, and return its output.

    Raises:
        OSError: Git fails, is not installed, or takes too long.
    """
    clean = {name: said for name, said in os.environ.items() if not name.startswith("GIT_")}
    argv = ("git", "-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never", f"--git-dir={common}", *words)
    try:
        done = Processes().run(argv, env=clean | _ENVIRONMENT, timeout=_SECONDS, input=given)
    except SmartForkError as error:
        raise OSError(error.message) from error
    if not done.ok:
        raise OSError(f"git {words[0]} failed: {done.complaint}")
    return done.stdout


def refs_of(common: str) -> list[tuple[str, str]]:
    """Return the commit and the name of each git ref with checkpoints (sessions saved by Entire)."""
    said = _git(common, "for-each-ref", "--format=%(objectname) %(refname)", *_PATTERNS)
    refs = (line.partition(" ") for line in said.decode("utf-8", "replace").splitlines())
    return [(commit, name) for commit, _, name in refs if _is_ours(name)][:_MAX_CHECKPOINTS]


def _is_ours(name: str) -> bool:
    single = _SINGLE.fullmatch(name)
    return bool(_BRANCH.fullmatch(name)) or bool(single and single[2].endswith(single[1]))


def _authors(common: str, commit: str) -> Iterator[tuple[str, str, str]]:
    """Yield (checkpoint id, session id, author) for each commit of a checkpoint's branch, newest first."""
    form = "%an%x00%s%x00%(trailers:key=Entire-Session,valueonly,separator=%x20)%x00"
    try:
        said = _git(common, "rev-list", f"--max-count={_MAX_CHECKPOINTS}", f"--format={form}", commit)
    except OSError:  # a shallow or broken history: its last author stands for all
        return
    fields = said.decode("utf-8", "replace").split("\0")
    for author, subject, session in zip(fields[::3], fields[1::3], fields[2::3], strict=False):
        yield subject.removeprefix("Checkpoint: ").strip(), session.strip(), author.rpartition("\n")[2]


def _read(common: str, ids: Sequence[str], most: int) -> Iterator[tuple[str, bytes]]:
    """Yield (type, content) of each git object; both empty if it is missing or has more than `most` bytes.

    Both are also empty for an object that would exceed the limit for the size of all objects together.
    """
    read, size_of, waiting = 0, 0, list[str]()
    for one, (kind, size) in zip(ids, _sizes(common, ids), strict=True):
        fits = bool(kind) and size <= most and read + size <= _MAX_READ
        read, size_of = read + size * fits, size_of + size * fits
        waiting.append(one if fits else "")
        if len(waiting) >= _BATCH_OBJECTS or size_of >= _BATCH_BYTES:
            yield from _content(common, waiting)
            size_of, waiting = 0, []
    yield from _content(common, waiting)


def _content(common: str, ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield (type, content) of each git object; both empty if the id is empty or the object is missing."""
    asked = [one for one in ids if one]
    said, at = _git(common, "cat-file", "--batch", given=_lines(asked)) if asked else b"", 0
    for one in ids:
        if not one:
            yield "", b""
            continue
        end = said.index(b"\n", at)
        _, kind, *size = said[at:end].decode().split(" ")
        length = int(size[0]) if size else -1
        yield (kind, said[end + 1 : end + 1 + length]) if size else ("", b"")
        at = end + 2 + length


def transcript(common: str, one: StoredSession) -> tuple[bytes, frozenset[str]]:
    """Return the transcript of a stored session, its parts joined, and the paths of files that the session changed.

    Raises:
        OSError: Git fails, or the repository no longer has all parts.
    """
    (_, facts), *parts = _content(common, (one.facts, *one.parts))
    if any(kind != "blob" for kind, _ in parts):
        raise FileNotFoundError(f"{common} no longer has the transcript of this session")
    touched = list_in(dict_in(json_in(facts)).get("files_touched"))
    return b"\n".join(data for _, data in parts), frozenset(name for name in touched if isinstance(name, str))


def _sizes(common: str, ids: Sequence[str]) -> list[tuple[str, int]]:
    """Return (type, size) of each git object; for a missing object, ("", 0)."""
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
    """A checkpoint (saved state): its id, the git tree with its sessions, and its author if it has a ref of its own."""

    id: str
    tree: str
    author: str = ""


def sessions_in(common: str, refs: Sequence[tuple[str, str]]) -> dict[str, StoredSession]:
    """Return the newest saved state of each session in these refs, by session id, newest sessions first."""
    places, authors = [], dict[tuple[str, str], str]()
    commits = _read(common, [commit for commit, _ in refs], _MAX_FACTS)
    for (commit, name), (kind, data) in zip(refs, commits, strict=True):
        said = _COMMIT.match(data.decode("utf-8", "replace")) if kind == "commit" else None
        if said is None:
            continue
        if single := _SINGLE.fullmatch(name):
            places.append(_Place(single[2], said["tree"], said["author"]))
            continue
        places += _of_branch(common, said["tree"])
        for checkpoint, session, whose in _authors(common, commit):
            authors.setdefault((checkpoint, session), whose)
            authors.setdefault((checkpoint, ""), whose)
        authors.setdefault(("", ""), said["author"])
    found: dict[str, StoredSession] = {}
    for one in _told(common, places[:_MAX_CHECKPOINTS], authors):
        known = found.get(one.session_id)
        if known is None or (one.at, one.size) > (known.at, known.size):
            found[one.session_id] = one
    newest = sorted(found.values(), key=lambda one: -one.at)[:_MAX_SESSIONS]
    return {one.session_id: one for one in newest}


def _of_branch(common: str, tree: str) -> list[_Place]:
    """Return the checkpoints in a branch's tree. The path of each is its id, with a "/" after two characters."""
    folders = [one for one in _trees(common, [tree])[0] if one.mode == b"40000" and len(one.name) == 2]
    below = _trees(common, [one.id for one in folders])
    return [
        _Place(folder.name + one.name, one.id)
        for folder, entries in zip(folders, below, strict=True)
        for one in entries
        if one.mode == b"40000" and _HEX.fullmatch(folder.name + one.name)
    ]


def _told(common: str, places: Sequence[_Place], authors: dict[tuple[str, str], str]) -> Iterator[StoredSession]:
    """Yield each session in these checkpoints that has a transcript, an id, and an agent that smart-fork reads."""
    numbered = [
        (place, one.id)
        for place, entries in zip(places, _trees(common, [place.tree for place in places]), strict=True)
        for one in entries
        if one.mode == b"40000" and _NUMBER.fullmatch(one.name)
    ][:_MAX_CHECKPOINTS]
    folders = []
    for (place, _), entries in zip(numbered, _trees(common, [one for _, one in numbered]), strict=True):
        files = {one.name: one.id for one in entries if one.mode in (b"100644", b"100755")}
        found = sorted((int(part[1] or 0), one) for name, one in files.items() if (part := _PART.fullmatch(name)))
        if found and [number for number, _ in found] == list(range(len(found))) and "metadata.json" in files:
            folders.append((place, files, tuple(one for _, one in found)))
    facts = _read(common, [files["metadata.json"] for _, files, _ in folders], _MAX_FACTS)
    prompts = _read(common, [files.get("prompt.txt", files["metadata.json"]) for _, files, _ in folders], _MAX_FACTS)
    sizes = iter(_sizes(common, [one for _, _, parts in folders for one in parts]))
    for (place, files, parts), (_, said), (_, asked) in zip(folders, facts, prompts, strict=True):
        held = [next(sizes) for _ in parts]
        size = sum(number for _, number in held)
        told = dict_in(json_in(said))
        agent = agent_named(told.get("agent", ""))
        named = text_in(told.get("session_id"))
        session_id = _DATED.sub("", named)
        is_whole = all(kind for kind, _ in held) and 0 < size <= _MAX_BYTES
        if not (agent and is_session_id(session_id) and is_whole):
            continue
        author = place.author or authors.get((place.id, named)) or authors.get((place.id, "")) or authors.get(("", ""))
        title = asked.decode("utf-8", "replace").strip().partition("\n")[0] if "prompt.txt" in files else ""
        yield StoredSession(
            agent, session_id,
            plain_text(author or "", _NAME_CHARACTERS) or "unknown",
            plain_text(title, _TITLE_CHARACTERS),
            plain_text(text_in(told.get("branch")), _TITLE_CHARACTERS), time_of(told.get("created_at")), size,
            files["metadata.json"], parts,
        )  # fmt: skip


def _trees(common: str, ids: Sequence[str]) -> list[list[_Entry]]:
    return [_listed(data) if kind == "tree" else [] for kind, data in _read(common, ids, _MAX_TREE)]


def _listed(data: bytes) -> list[_Entry]:
    try:
        return list(_entries(data))
    except ValueError:  # none that git writes
        return []


def _entries(data: bytes) -> Iterator[_Entry]:
    at, width = 0, 0
    while at < len(data):
        end = data.index(b"\0", at)
        mode, _, name = data[at:end].partition(b" ")
        width = width or _width(data, end)
        yield _Entry(mode, name.decode("utf-8", "replace"), data[end + 1 : end + 1 + width].hex())
        at = end + 1 + width


def _width(data: bytes, end: int) -> int:
    """Return the length of object ids in a git tree, 20 or 32 bytes: the one after which an entry or the end comes."""
    for width in (20, 32):
        if end + 1 + width == len(data) or re.match(rb"\d{5,6} ", data[end + 1 + width :][:7]):
            return width
    raise ValueError("no tree that git writes")


def agent_named(said: object) -> AgentName | None:
    """Return the agent that a checkpoint or history calls `said`; `None` if smart-fork does not read it there."""
    if not isinstance(said, str):
        return None
    name = re.sub(r"[^a-z]", "", said.lower())
    return _AGENTS.get(name) or next((ours for one, ours in _AGENTS.items() if one and name.startswith(one)), None)


def is_session_id(text: str) -> bool:
    """Return True if the text can be a session id of some agent, and neither a path nor an option."""
    return re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z_-]{7,99}", text) is not None


def plain_text(text: str, most: int) -> str:
    """Return a text on one line, masked, with at most `most` characters."""
    return printable(mask(" ".join(text[: most * 4].split())))[:most].strip()


def time_of(said: object) -> int:
    """Return a time in nanoseconds since the epoch; 0 if `said` is not a time.

    A future time becomes the present: its session would otherwise always be the newest.
    """
    at = seconds_in(text_in(said)) or 0
    return max(0, min(int(at * 1e9), int(datetime.now().timestamp() * 1e9)))  # noqa: DTZ005 - a number of seconds


#: The prefix of a history's `facts`, before the stamp of its file.
_FACTS = "markdown "
#: Limits: files of a repository, bytes of a file, and characters of an action.
_MAX_FILES, _MAX_HISTORY_BYTES, _ACTION_CHARACTERS = 1_000, 16 << 20, 240
#: Characters that are searched at the beginning of a file, and of a tool's input.
_HEAD_CHARACTERS = _INSIDE = 4_000
_SESSION_COMMENT = re.compile(r"<!-- ([\w .-]{1,40}?) Session ([\w-]{8,100}) \([^)\n]{0,40}\) -->")
_GENERATED = "<!-- Generated by SpecStory"
_SPEAKS = re.compile(r"_\*\*(User|Agent|Assistant)( - sidechain)?(?: \(([^\n]{0,200})\))?\*\*_\s*")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d)?) ?(Z|[+-]\d\d:?\d\d)?")
_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")
_ASIDE = re.compile(r"<think>.*?(?:</think>|\Z)|<!-- message-id: [^\n]*? -->", re.DOTALL)
_TOOL = re.compile(
    r'<tool-use data-tool-type="(\w*)" data-tool-name="([^"\n]{0,80})">(.*?)(?:</tool-use>|\Z)', re.DOTALL
)
#: A tool call in the format of older versions, up to the next separator.
_OLD_TOOL = re.compile(r"^Tool use: \*\*([\w.-]{1,80})\*\*\n(.*?)(?=^---$|\Z)", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"```(?:bash|sh|zsh|shell)\n(.*?)\n```|^`([^`\n]+)`$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(
    r"The file (/[^\n]{1,400}?) has been updated"
    r"|(?:File created successfully at|Edit file|Read file|Update File): ([^\n<]{1,400})"
    r"|^ ?`([^`\n]{1,400})`$",
    re.MULTILINE,
)  # fmt: skip
_SEPARATOR = re.compile(r"^---$", re.MULTILINE)


class _Message(NamedTuple):
    user: bool
    moment: str
    lines: list[str]


def stamps(folder: str) -> Iterator[tuple[str, int, int, int]]:
    """Yield (name, time, size, inode) of each Markdown history in a folder; of very many, only of the newest."""
    try:
        if os.path.realpath(folder) != folder:  # what a link leads to is not the repository's
            return
        entries = [one for one in os.scandir(folder) if one.name.endswith(".md") and one.is_file(follow_symlinks=False)]
    except (OSError, ValueError):
        return
    for entry in sorted(entries, key=lambda one: one.name)[-_MAX_FILES:]:
        info = entry.stat(follow_symlinks=False)
        if 0 < info.st_size <= _MAX_HISTORY_BYTES and entry.name.isprintable():
            yield entry.name, info.st_mtime_ns, info.st_size, info.st_ino


def listed(folder: str, before: Mapping[str, StoredSession]) -> dict[str, StoredSession]:
    """Return the sessions in a folder's Markdown histories by id. Unchanged ones are taken from `before`, not read."""
    known = {(one.parts[0], one.facts): one for one in before.values() if one.is_history}
    found: dict[str, StoredSession] = {}
    for name, *stamp in stamps(folder):
        facts = f"{_FACTS}{' '.join(map(str, stamp))}"
        one = known.get((name, facts)) or _stored(folder, name, facts, stamp[1])
        if one is not None and (one.session_id not in found or one.size > found[one.session_id].size):
            found[one.session_id] = one
    return found


def said_in(folder: str, one: StoredSession) -> list[Utterance]:
    """Return the messages in a Markdown history."""
    return _utterances(_text(folder, one.parts[0]))


def _text(folder: str, name: str) -> str:
    if os.path.realpath(f"{folder}/{name}") != f"{folder}/{name}":
        raise FileNotFoundError(f"No history {name} in {folder}")
    with open_regular(Path(folder, name)) as file:
        return file.read(_MAX_HISTORY_BYTES).decode("utf-8", "replace").replace("\r\n", "\n")


def _stored(folder: str, name: str, facts: str, size: int) -> StoredSession | None:
    try:
        text = _text(folder, name)
    except OSError:
        return None
    head = _SESSION_COMMENT.search(text[:_HEAD_CHARACTERS])
    said = _utterances(text) if head or text.lstrip("\ufeff\n ").startswith(_GENERATED) else []
    asked = next((one.text for one in said if one.user), "")
    if not asked:
        return None
    author = "/".join(Path(folder).parts[-2:])
    session_id = head[2] if head and is_session_id(head[2]) else str(uuid5(NAMESPACE_URL, f"{author}/{name}"))
    at = max((time_of(one.moment) for one in said), default=0) or time_of(_moment(name.replace("_", " ", 1)))
    title = plain_text(asked.partition("\n")[0], _TITLE_CHARACTERS)
    agent = agent_named(head[1]) if head else None  # the first versions knew only Cursor, and did not name it
    return StoredSession(agent or "cursor", session_id, author, title, "", at, size, facts, (name,))


def _utterances(text: str) -> list[Utterance]:
    return [
        Utterance(one.user, told, one.moment)
        for one in _messages(text)
        for told in ((_typed if one.user else _done)("\n".join(one.lines)))
        if told
    ]


def _messages(text: str) -> Iterator[_Message]:
    """Yield the messages in a Markdown history. A heading begins each; inside a code block it does not count.

    A heading with a time after a separator always counts: it shows that the code block before it was never closed.
    """
    message, fence, before = None, "", ""
    for line in text.split("\n"):
        found = _SPEAKS.fullmatch(line)
        if found and (not fence or (before == "---" and _moment(found[3] or ""))):
            if message is not None:
                yield message
            message, fence = _Message(found[1] == "User", _moment(found[3] or ""), []), ""
            message = None if found[2] else message
        else:
            if mark := _FENCE.match(line):
                fence = "" if fence and line.strip().startswith(fence) else fence or mark[1]
            if message is not None:
                message.lines.append(line)
        before = line.strip() or before
    if message is not None:
        yield message


def _moment(said: str) -> str:
    found = _MOMENT.search(said)
    return utc(f"{found[1]}T{found[2]}{found[3] or 'Z'}") if found else ""


def _typed(text: str) -> tuple[str, ...]:
    return (_ASIDE.sub("", text).strip().removesuffix("---").strip(),)


def _done(text: str) -> tuple[str, ...]:
    """Return an agent's message as two texts: its tool calls, one on each line, then its words."""
    actions: list[HandedOverAction] = []

    def note(found: re.Match[str]) -> str:
        *kind, name, inside = found.groups()
        actions.append(HandedOverAction(_line(kind[0] if kind else "", name, html.unescape(inside[:_INSIDE]))))
        return ""

    text = _OLD_TOOL.sub(note, _TOOL.sub(note, _ASIDE.sub("", text)))
    return render_handover("", actions), "\n\n".join(filter(None, map(str.strip, _SEPARATOR.split(text))))


def _line(kind: str, name: str, inside: str) -> str:
    file, command = _FILE.search(inside), _COMMAND.search(inside)
    path = next(filter(None, file.groups()), "").strip() if file else ""
    if command and (kind in ("shell", "") or name in ("Bash", "command", "run_terminal_cmd")):
        return f"run {' '.join((command[1] or command[2]).split())}"[:_ACTION_CHARACTERS]
    if path and (kind in ("read", "write") or not kind):
        return f"{'read' if kind == 'read' or name.startswith('read') else 'edit'} {path}"
    return name or "act"
