"""Finds the lines of code that a question is about, each with its commit, by ``git blame`` and from patches.

File names, texts and commit messages are untrusted: none of them is passed as an option, and git runs no program that
they name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from indexer.lazy_compilation import dataclass, late
from indexer.project import resolve
from indexer.repositories import NAME, normalized
from smart_fork.display_text import printable, shown
from smart_fork.errors import NotFound, ProgramFailed, ProgramMissing, Usage
from smart_fork.finding.git import Repository
from smart_fork.finding.query import Code
from smart_fork.system.processes import Processes

#: Lines above and below the asked lines that are examined too: a bracket belongs to the session of the lines around it.
NEAR_LINES = 5
#: The number of commits of a line's history that are examined.
MAX_CHANGES = 50
_BLAME = ("blame", "-w", "-M", "-C", "--porcelain", "--no-textconv")
_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-relative", "--src-prefix=a/", "--dst-prefix=b/")
_FIELDS = 6
_TOLD = ("--no-notes", "--no-show-signature", "--format=%x00%H%x00%ct%x00%an%x00%ae%x00%s%x00")
_ADDED = (*_PLAIN, *_TOLD, "--unified=0", "-M", "-w", "--diff-merges=first-parent")
_HUNK = late(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_ESCAPED = late(rb'\\([0-7]{3}|[abtnvfr"\\])')
_SIGNS = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}
_NOBODY = "0"
_LINES = late(r"(.+):(\d{1,9})(?:-(\d{1,9}))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of code, and the commit that wrote it: hash (empty: uncommitted), time in seconds, and subject.

    `name` and `origin` are the file's path and the line's number in that commit. `asked` is False for a line that is
    only examined because it is near the lines of the question.
    """

    number: int
    text: str
    name: str
    commit: str
    committed: float
    by_bot: bool = False
    asked: bool = True
    origin: int = 0
    subject: str = ""

    @property
    def date(self) -> str:
        """Return the time of the commit in ISO form; empty for an uncommitted line."""
        if not self.commit:
            return ""
        return datetime.fromtimestamp(self.committed, UTC).isoformat().replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Range:
    """A range of lines in a file, numbered from 1. A `last` of 0 means the end of the file."""

    name: str
    first: int = 1
    last: int = 0


def blamed(
    there: Repository, wanted: Range, commit: str = "", *, seconds: float = Repository.SECONDS
) -> list[CodeLine]:
    """Return the lines of a range, and `NEAR_LINES` lines above and below it, each with its commit.

    The file is read from the working directory or from `commit`. `asked` is True for lines in the range.

    Raises:
        NotFound: there is no such file or line.
    """
    first = max(1, wanted.first - NEAR_LINES)
    where = f"-L{first},{wanted.last + NEAR_LINES if wanted.last else ''}"
    done = there.git(*_BLAME, where, *([commit] if commit else []), "--", wanted.name, seconds=seconds)
    if not done.ok:
        raise NotFound(
            f"git cannot blame {shown(wanted.name)}: {printable(done.complaint)}",
            "Give a file that is committed: PATH:LINE.",
        )
    last = wanted.last or float("inf")
    found = list(_parse_blame(done.stdout, wanted))
    if not any(wanted.first <= line.number <= last for line in found):
        raise NotFound(f"{shown(wanted.name)} has no line {wanted.first}", "Give a line that is there: PATH:LINE.")
    return found


def _parse_blame(said: bytes, wanted: Range) -> Iterator[CodeLine]:
    told: dict[str, dict[str, str]] = {}
    commit, number, origin = "", 0, 0
    for raw in said.split(b"\n"):
        if raw[:1] == b"\t":
            of = told[commit]
            new = not commit.strip(_NOBODY)
            yield CodeLine(
                number, raw[1:].decode("utf-8", "replace"), of["filename"], "" if new else commit,
                float("inf") if new else float(of["committer-time"]), is_bot(of["author"], of["author-mail"]),
                asked=wanted.first <= number <= (wanted.last or number), origin=origin,
            )  # fmt: skip
            commit = ""
        elif not commit and raw:
            commit, first, last, *_ = raw.decode("ascii").split(" ")
            origin, number = int(first), int(last)
            told.setdefault(commit, {"filename": wanted.name})
        elif raw:
            key, _, value = raw.partition(b" ")
            told[commit][key.decode()] = _unquoted(value) if key == b"filename" else os.fsdecode(value)


def is_bot(name: str, mail: str) -> bool:
    """Return True if a commit's author is a program. Hosting sites mark such authors with ``[bot]``."""
    return name.endswith("[bot]") or "[bot]@" in mail


def _unquoted(name: bytes) -> str:
    """Return a file name from git's output without its quotation. Git quotes names with unusual characters."""
    if name[:1] == b'"' and len(name) > 1:
        name = _ESCAPED.sub(lambda one: bytes([_SIGNS.get(one[1]) or int(one[1], 8) & 255]), name[1:-1])
    return os.fsdecode(name)


def committed(there: Repository, commits: Sequence[str]) -> list[CodeLine]:
    """Return the lines that commits added. Of a merge, these are the lines that its first parent does not have.

    Raises:
        NotFound: there is no such commit.
    """
    done = there.git("show", *_ADDED, "--end-of-options", *commits)
    if not done.ok:
        raise NotFound(
            f"git cannot show {' '.join(commits)[:200]}: {printable(done.complaint)}",
            "Give a commit of this repository.",
        )
    return _added_lines(done.stdout)


def history(there: Repository, lines: Sequence[CodeLine]) -> list[CodeLine]:
    """Return the lines that past commits added in the places of `lines`, newest commit first, also before renames."""
    places: dict[tuple[str, str], list[int]] = {}
    for line in lines:
        if line.commit:
            places.setdefault((line.commit, line.name), []).append(line.origin)
    found: dict[str, list[CodeLine]] = {}
    for (commit, name), numbers in places.items():
        where = f"-L{min(numbers)},{max(numbers)}:{name}"
        done = there.git("log", f"--max-count={MAX_CHANGES}", *_TOLD, *_PLAIN, where, "--end-of-options", commit)
        of_commit: dict[str, list[CodeLine]] = {}
        for one in _added_lines(done.stdout):
            of_commit.setdefault(one.commit, []).append(one)
        for key, several in of_commit.items():
            found.setdefault(key, several)
    newest = sorted(found.values(), key=lambda one: -one[0].committed)
    return [line for several in newest[:MAX_CHANGES] for line in several]


def file_history(there: Repository, name: str, most: int) -> tuple[list[CodeLine], int]:
    """Return the lines that the `most` newest commits of a file added, and the number of older commits.

    Renames are followed. Uncommitted lines come first. A commit that only removes lines is one line without text.

    Raises:
        NotFound: no commit has this file.
    """
    followed = ("--literal-pathspecs", "log", "--follow", "--no-merges")
    told = there.git(*followed, *_TOLD, "--", name)
    commits = told.stdout.count(b"\0") // _FIELDS if told.ok else 0
    if not commits:
        raise NotFound(f"no commit of {shown(name)} is known", "Give a file that is committed: PATH, or PATH:LINE.")
    diff = there.git("--literal-pathspecs", "diff", "--unified=0", "-w", *_PLAIN, "HEAD", "--", name).stdout
    lines = _lines_of_commit(CodeLine(0, "", "", "", float("inf")), diff)
    patches = there.git(*followed, f"--max-count={most}", "--patch", "--unified=0", "-w", *_TOLD, *_PLAIN, "--", name)
    for head, patch in _parse_commits(patches.stdout):
        lines += _lines_of_commit(head, patch) or [head]
    return lines, max(0, commits - most)


def _added_lines(said: bytes) -> list[CodeLine]:
    return [line for head, patch in _parse_commits(said) for line in _lines_of_commit(head, patch)]


def _lines_of_commit(head: CodeLine, patch: bytes) -> list[CodeLine]:
    return [
        replace(head, number=number, text=text, name=path, origin=number)
        for added, path, number, text, _ in changes_in(patch)
        if added and path
    ]


def _parse_commits(said: bytes) -> Iterator[tuple[CodeLine, bytes]]:
    """Parse git's output of commits with patches. Yield (a line without text that has the commit's facts, patch)."""
    parts = said.split(b"\0")[1:]
    # A NUL in a patch is only in what git takes for text; then what follows is not told apart, and is passed over.
    for name, time, author, mail, subject, patch in zip(*[iter(parts)] * _FIELDS, strict=False):
        if time.isdigit():
            bot = is_bot(os.fsdecode(author), os.fsdecode(mail))
            yield (
                CodeLine(0, "", "", name.decode(), float(time), bot, subject=subject.decode("utf-8", "replace")),
                patch,
            )


class PatchLine(NamedTuple):
    """A line that a patch adds or removes. `above` is the file and number of the line above it before the patch."""

    added: bool
    name: str
    number: int
    text: str
    above: tuple[str, int]


def changes_in(patch: bytes) -> Iterator[PatchLine]:
    """Yield the lines that a patch in any ``diff -u`` format adds or removes.

    Lines inside a hunk are never read as headers.
    """
    names, at, left = ["", ""], [0, 0], [0, 0]  # of the old file, and of the new one
    for raw in patch.split(b"\n"):
        line = raw.decode("utf-8", "replace")
        if left != [0, 0]:
            sides = {"-": (0,), "+": (1,), " ": (0, 1), "": (0, 1), "\r": (0, 1)}.get(line[:1], ())
            if len(sides) == 1:
                (side,) = sides
                yield PatchLine(bool(side), names[side], at[side], line[1:], (names[0], at[0] - 1))
            for side in sides:
                at[side], left[side] = at[side] + 1, max(0, left[side] - 1)
        elif line.startswith(("--- ", "+++ ")):
            names[line[0] == "+"] = _file_in_header(raw[4:])
        elif hunk := _HUNK.match(line):
            left = [int(hunk[2] or 1), int(hunk[4] or 1)]
            # Of no lines the number is that of the line above.
            at = [int(hunk[1]) + (not left[0]), int(hunk[3]) + (not left[1])]


def touched_by(patch: bytes) -> Iterator[Range]:
    """Yield the lines that a patch removes, and those above added lines, with their numbers before the patch."""
    for one in changes_in(patch):
        name, number = one.above if one.added else (one.name, one.number)
        if name and number:
            yield Range(name, number, number)


def _file_in_header(said: bytes) -> str:
    name = _unquoted(said.removesuffix(b"\r").partition(b"\t")[0])
    return "" if name == "/dev/null" else name[2:] if name[:2] in ("a/", "b/") else name


def names_lines(said: str) -> bool:
    """Return True if the text has the form PATH:LINE or PATH:FIRST-LAST."""
    return _LINES.fullmatch(said) is not None


def parsed(said: str) -> tuple[str, int, int]:
    """Parse ``src/a.py:42`` or ``src/a.py:42-60`` into a path, its first line and its last line.

    Raises:
        Usage: the text has another form.
    """
    found = _LINES.fullmatch(said)
    first, last = (int(found[2]), int(found[3] or found[2])) if found else (0, 0)
    if found is None or not 0 < first <= last:
        raise Usage(f"no line of a file: {shown(said)}", "Write PATH:LINE or PATH:FIRST-LAST, such as src/a.py:42-60.")
    return found[1], first, last


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Join ranges of lines that are close together, so that one call of git blames them."""
    found: list[Range] = []
    for one in ranges:
        before = found[-1] if found else None
        if before and before.name == one.name and before.last and before.first <= one.first <= before.last + NEAR_LINES:
            found[-1] = Range(one.name, before.first, max(before.last, one.last))
        else:
            found.append(one)
    return found


#: The number of ranges of a patch that are examined, from the first on.
MAX_RANGES = 200
#: A longer text is not the name of a file or commit.
MAX_ARGUMENT_BYTES = 4096
_DIFF = ("diff", "--unified=0", "-M", "--no-ext-diff", "--no-textconv", "--no-color", "--no-relative", "HEAD", "--")


def lines_of(there: Repository, folder: Path, code: Code) -> list[CodeLine]:
    """Return the lines that a request's `code` names: present lines, or those of a past commit.

    File names are relative to `folder`.

    Raises:
        Usage: a path, line, commit or number is invalid.
        NotFound: there is no such file, line, commit or pull request.
    """
    found: list[CodeLine] = []
    ranges = [range_of(there, folder, one) for one in code.lines]
    ranges += [Range(name_of(there, folder, name)) for name in code.files]
    for one in ranges:
        found += blamed(there, one)
    if code.commit:
        found += committed(there, [_commit(there, code.commit)])
    if code.pull and (commits := commits_of_pull(there, code.pull)):
        found += committed(there, commits)
    if code.changes:
        patch = code.changes.encode("utf-8", "replace") if isinstance(code.changes, str) else there.asked(*_DIFF).stdout
        found += _changed(there, patch)
    return found


def range_of(there: Repository, folder: Path, said: str) -> Range:
    """Return the range that `said` names: PATH:LINE or PATH:FIRST-LAST, with a path relative to `folder`."""
    name, first, last = parsed(said)
    return Range(name_of(there, folder, name), first, last)


def changed_lines(
    where: str, folder: Path, limit: int, processes: Processes
) -> tuple[Repository, Sequence[CodeLine], int]:
    """Return the repository, the lines that the newest changes of `where` added, and the number of older changes.

    `where` is ``PATH:FIRST-LAST`` or a file, relative to `folder`. `limit` is the number of changes for a whole file.
    """
    there = Repository.open(folder, processes)
    if names_lines(where):
        lines = blamed(there, range_of(there, folder, where))
        made = [*(one for one in lines if not one.commit), *history(there, [one for one in lines if one.asked])]
        return there, made, 0
    return there, *file_history(there, name_of(there, folder, where), limit)


def _changed(there: Repository, patch: bytes) -> Iterator[CodeLine]:
    for one in merged(touched_by(patch))[:MAX_RANGES]:
        try:
            yield from blamed(there, one, "HEAD")
        except NotFound:  # the patch is of another state, or of a new file
            continue


def name_of(there: Repository, folder: Path, given: str) -> str:
    """Return the file `given` (a path relative to `folder`) as git names it: its path from the repository's top.

    Raises:
        Usage: the path is outside the repository.
    """
    if not is_argument(given):
        raise Usage(f"no file: {shown(given)}", "Write PATH, or PATH:LINE.")
    path = folder / given
    name = os.path.relpath(resolve(path.parent) / path.name, there.top)
    if name.startswith("../"):
        raise Usage(f"{shown(given)} is not in the repository {there.top}", "Give a file of this repository.")
    return name


def is_argument(given: str) -> bool:
    """Return True if git can take the text as an argument: not empty, no NUL, not too long."""
    try:
        return bool(given) and "\0" not in given and len(os.fsencode(given)) < MAX_ARGUMENT_BYTES
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _commit(there: Repository, given: str) -> str:
    name = f"{given}^{{commit}}"
    done = there.git("rev-parse", "--verify", "--quiet", "--end-of-options", name) if is_argument(given) else None
    if done is None or not done.ok:
        raise NotFound(f"no such commit: {shown(given)}", "Give a commit of this repository, such as HEAD~2.")
    return done.text


#: The number of commits of a pull request that are examined, the last ones.
MAX_PULL_COMMITS = 200
#: The seconds that gh may take to ask its server.
GH_SECONDS = 20.0
#: The maximum size of gh's answer.
_MAX_GH_BYTES = 1 << 22
_ASKED = ("--json", "commits,mergeCommit")
_QUIET = {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1"}
#: A repository as gh names it. It can never be an option.
_HOSTED = re.compile(r"[a-z0-9][a-z0-9.-]*/\w[\w.-]*/\w[\w.-]*", re.ASCII)
#: The remotes that may have the pull request. A forked repository has its pull requests at the upstream repository.
_REMOTES = ("upstream", "origin")


class _PullRequest(NamedTuple):
    """A pull request as ``gh`` describes it: its commits, and the commit that it was merged or squashed to."""

    commits: Sequence[str] = ()
    merged: str = ""
    answered: bool = True


def commits_of_pull(there: Repository, number: int) -> list[str]:
    """Return the commits of a pull request; if the repository lacks them, the commit that they were squashed to.

    The program ``gh`` is asked first, then the fetched git ref is read. Output of gh is treated as plain text.

    Raises:
        NotFound: the repository has none of these commits.
    """
    remote, hosted = _pull_request_remote(there)
    told = _ask_gh(there, hosted, number) if hosted else _PullRequest()
    if found := _present(there, told.commits) or _present(there, [told.merged]):
        return found[-MAX_PULL_COMMITS:]
    names = (f"refs/pull/{number}/head", f"refs/remotes/*/pull/{number}/head", f"refs/remotes/*/pr/{number}")
    head = there.git("for-each-ref", "--count=1", "--format=%(objectname)", "--", *names).text
    if not head:
        fetch = f"git fetch {remote} refs/pull/{number}/head:refs/pull/{number}/head"
        hint = f"Fetch it: {fetch}" if told.answered else f"Log in to gh with `gh auth login`, or fetch it: {fetch}"
        raise NotFound(f"pull request {number} is not in this repository", hint)
    merge = there.git("rev-list", "--merges", "--ancestry-path", f"{head}..HEAD").text.split("\n")[-1]
    before = f"{merge}^1" if merge else "HEAD"
    return there.asked("rev-list", "--no-merges", f"--max-count={MAX_PULL_COMMITS}", head, f"^{before}").text.split()


def _pull_request_remote(there: Repository) -> tuple[str, str]:
    """Return the name of a git remote, and the name of its repository for ``gh``.

    If no remote has an address that gh can use, return "origin" and an empty text.
    """
    for name in _REMOTES:
        url = there.git("config", "--get", f"remote.{name}.url").text
        if url and (found := _HOSTED.fullmatch(normalized(url, there.top))):
            return name, found[0]
    return "origin", ""


def _ask_gh(there: Repository, hosted: str, number: int) -> _PullRequest:
    """Ask ``gh`` for a pull request of `hosted`, outside the repository, so that gh reads none of its files."""
    command = ["gh", "pr", "view", str(number), "--repo", hosted, *_ASKED]
    try:
        done = there.processes.run(command, cwd=Path("/"), env={**os.environ, **_QUIET}, timeout=GH_SECONDS)
    except (ProgramMissing, ProgramFailed, NotFound):
        return _PullRequest()
    if not done.ok:
        return _PullRequest(answered=False)
    try:
        said: Any = json.loads(done.stdout[:_MAX_GH_BYTES])
    except (ValueError, RecursionError):
        return _PullRequest()
    said = said if isinstance(said, dict) else {}
    commits = said.get("commits")
    listed = [_oid(one) for one in commits] if isinstance(commits, list) else []
    return _PullRequest(list(filter(None, listed)), _oid(said.get("mergeCommit")))


def _oid(one: object) -> str:
    name = one.get("oid") if isinstance(one, dict) else None
    return name if isinstance(name, str) and NAME.fullmatch(name) else ""


def _present(there: Repository, names: Sequence[str]) -> list[str]:
    given = "".join(f"{name}\n" for name in names if name).encode()
    said = there.git("cat-file", "--batch-check=%(objectname) %(objecttype)", given=given).text if given else ""
    return [line.split(" ")[0] for line in said.split("\n") if line.endswith(" commit")]
