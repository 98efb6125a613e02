"""Finds the commits that sessions made, and the lines that sessions wrote and that HEAD still contains.

Commits are found by comparing their lines with a session's edits, and by trailers in their messages.
"""

from __future__ import annotations

import logging
import math
import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from indexer.environment import Setting
from indexer.lazy_compilation import late
from indexer.locks import IndexBusyError, only_writer
from indexer.log_changes import Progress
from indexer.masking import mask
from indexer.project import Project, project_of
from indexer.refresh import read_changed
from indexer.safe_files import index_db
from indexer.store.base import Scope, SessionRow
from indexer.store.sqlite import Store
from indexer.transcripts.line_hashes import comparable_lines
from indexer.transcripts.model import AgentName
from smart_fork.agents.log_readers import READERS
from smart_fork.display_text import quoted
from smart_fork.errors import IndexUnavailable, NotFound, ProgramFailed, SmartForkError
from smart_fork.finding.answer import CommitsMade, MadeCommit
from smart_fork.finding.code_authors import SKEW, named_in, objects, seconds, sessions_named, writers_of
from smart_fork.finding.code_lines import CodeLine, Range, blamed, committed
from smart_fork.finding.git import Repository
from smart_fork.finding.index_access import opened
from smart_fork.finding.project_places import recognized, relative, tops
from smart_fork.finding.session_place import WorkDirectory
from smart_fork.system.processes import Processes

#: The numbers of commits after a session's beginning, and of files in its commits, that are examined.
MAX_COMMITS, MAX_FILES = 200, 30
#: The number of pairs of commits for which git is asked if one is in the history of the other.
MAX_PAIRS = 100
#: The seconds that git may take to find the commits and to find the session's lines in HEAD, and to read a log again.
FIND_SECONDS, BLAME_SECONDS, READ_SECONDS = 10.0, 5.0, 4.0
#: Git does not read a smaller number as seconds since 1970.
_FIRST = 100_000_000
_WALK = (
    "--literal-pathspecs", "log", "--no-merges", "--no-notes", "--no-show-signature", "--no-color", "--format=%H %ct",
    "--exclude=entire/*", "--branches", "--exclude=*/entire/*", "--remotes", "HEAD",  # sessions, and no work of theirs
)  # fmt: skip
_RENAMES = ("diff", "--name-status", "-z", "-M", "--diff-filter=R", "--no-ext-diff", "--no-relative")


#: The lines that a commit adds: one of them, the number of the session's lines, and the number of all lines.
_Landed = tuple[CodeLine, int, int]


def commits_of(
    rows: Sequence[SessionRow], store: Store, scope: Scope, there: Repository
) -> tuple[dict[str, CommitsMade], bool]:
    """Map each session's id to its commits. Also return True if all since the first session began were examined.

    Commits of all branches count, merges do not.

    Raises:
        ProgramFailed: git takes longer than `FIND_SECONDS`.
    """
    names, left = _candidate_commits(rows, store, there)
    if not names:
        return {row.session_id: CommitsMade(0, (), 0, ()) for row in rows}, True
    lines = committed(there, names)
    ids = {row.session_id: row.row for row in rows}
    trailers = sessions_named(there, names)
    landed: defaultdict[int, list[_Landed]] = defaultdict(list)
    files: dict[str, str] = {}
    first: dict[tuple[int, bytes], str] = {}
    is_before = _ancestry(there)
    made = zip(lines, writers_of(lines, store, scope, there), strict=True)
    for commit, several in groupby(made, key=lambda one: one[0].commit):
        added = list(several)
        wrote = [
            (line, writer.session)
            for line, writer in added
            if writer
            and line.text.strip()
            # What landed before was only moved, or written back.
            and not is_before(first.setdefault((writer.session, comparable_lines(line.text)[0]), commit), commit)
        ]
        counts, line = Counter(session for _, session in wrote), added[0][0]
        of = sum(bool(one.text.strip()) for one, _ in added)
        named = {ids[one] for one in trailers.get(commit, ()) if one in ids}
        for session in ids.values():
            if session in counts or session in named:
                landed[session].append((line, counts[session], of))
        files |= {line.name: commit for line, session in wrote if session in landed}
    today, files_left = _lines_in_head(files, landed, store, scope, there)
    unseen = [f"{left} later commits were not looked at"] if left else []
    unseen += [f"{files_left} files were not looked at"] if files_left else []
    return {id_: _commits_made(landed[row], today[row], unseen) for id_, row in ids.items()}, not left


def _ancestry(there: Repository) -> Callable[[str, str], bool]:
    """Return a function that says if a commit is in the history of another one.

    It asks git for at most `MAX_PAIRS` pairs of commits; of other pairs, it says True.
    """
    known: dict[tuple[str, str], bool] = {}

    def is_before(before: str, after: str) -> bool:
        if before == after:
            return False
        if (before, after) not in known and len(known) < MAX_PAIRS:
            known[before, after] = there.git("merge-base", "--is-ancestor", before, after).ok
        return known.get((before, after), True)

    return is_before


def _commits_made(landed: Sequence[_Landed], today: Sequence[tuple[str, CodeLine]], unseen: list[str]) -> CommitsMade:
    newest = sorted(landed, key=lambda one: -one[0].committed)
    commits = tuple(
        MadeCommit(line.commit, line.date, quoted(line.subject, SUBJECT_CHARACTERS), lines, of)
        for line, lines, of in newest[:MAX_LISTED_COMMITS]
    )
    ranges = [f"{one.name}:{one.first}-{one.last}" for one in _joined_ranges(today)]
    places = tuple(quoted(one, SUBJECT_CHARACTERS) for one in ranges[:MAX_PLACES])
    more = [f"{len(ranges) - len(places)} more places in HEAD"] if len(ranges) > len(places) else []
    lines_today = sum(bool(line.text.strip()) for _, line in today)
    return CommitsMade(len(newest), commits, lines_today, places, "; ".join([*unseen, *more]))


def _candidate_commits(rows: Sequence[SessionRow], store: Store, there: Repository) -> tuple[list[str], int]:
    """Return commits that may contain work of these sessions, oldest first, and how many further ones were left out.

    Their messages name a session, or they change a file that a session edited.
    """
    if not rows:
        return [], 0
    edited, within = store.edits([row.row for row in rows]), tops(there)
    files = {relative(file, within) for one in edited.values() for file in one.files}
    inside = sorted(file for file in files if file[:1] != "/" and os.path.normpath(file) == file and file.isprintable())
    since = _since(min((row.started for row in rows), key=seconds))
    found = dict(_logged_commits(there, since, "--fixed-strings", *(f"--grep={row.session_id}" for row in rows), "--"))
    if inside:
        found |= dict(_logged_commits(there, since, "--stdin", given=os.fsencode("\n".join(("--", *inside, "")))))
    oldest = sorted(found, key=lambda name: found[name])
    return oldest[:MAX_COMMITS], max(0, len(oldest) - MAX_COMMITS)


def _logged_commits(there: Repository, *how: str, given: bytes = b"") -> Iterator[tuple[str, int]]:
    done = there.git(*_WALK, *how, given=given, seconds=FIND_SECONDS)
    for line in done.stdout.decode("ascii", "replace").splitlines() if done.ok else ():
        name, _, moment = line.partition(" ")
        yield name, int(moment)


def _lines_in_head(
    files: Mapping[str, str], sessions: Mapping[int, object], store: Store, scope: Scope, there: Repository
) -> tuple[Mapping[int, list[tuple[str, CodeLine]]], int]:
    """Return each session's lines in HEAD with their files, and the number of files that were not examined.

    `files` maps each file that the sessions' commits changed to the last of these commits.
    """
    until = time.monotonic() + BLAME_SECONDS
    names = list(dict.fromkeys(_names_in_head(there, files, until)))
    found, left = list[tuple[str, CodeLine]](), len(names)
    for name in names[:MAX_FILES]:
        if (wait := until - time.monotonic()) <= 0:
            break
        with suppress(NotFound):  # it is no longer there
            try:
                found += ((name, line) for line in blamed(there, Range(name), "HEAD", seconds=wait))
            except ProgramFailed:  # it took too long
                break
        left -= 1
    today: defaultdict[int, list[tuple[str, CodeLine]]] = defaultdict(list)
    for one, writer in zip(found, writers_of([line for _, line in found], store, scope, there), strict=True):
        if writer and writer.session in sessions:
            today[writer.session].append(one)
    return today, left


def _names_in_head(there: Repository, files: Mapping[str, str], until: float) -> Iterator[str]:
    """Yield the present name, in HEAD, of each file. `files` maps each old name to a commit that has it.

    Renames are looked up until the time `until`, as `time.monotonic` counts it.
    """
    renamed: dict[tuple[str, str], str] = {}
    for commit in dict.fromkeys(files.values()):
        if (wait := until - time.monotonic()) > 0:
            with suppress(ProgramFailed):  # it took too long
                fields = iter(os.fsdecode(there.git(*_RENAMES, commit, "HEAD", "--", seconds=wait).stdout).split("\0"))
                renamed |= {(commit, before): after for _, before, after in zip(fields, fields, fields, strict=False)}
    return (renamed.get((commit, name), name) for name, commit in files.items())


def _joined_ranges(lines: Sequence[tuple[str, CodeLine]]) -> Iterator[Range]:
    for (name, _), several in groupby(enumerate(lines), key=lambda one: (one[1][0], one[1][1].number - one[0])):
        numbers = [line.number for _, (_, line) in several]
        yield Range(name, numbers[0], numbers[-1])


# The commits that came of sessions, in the repository where the sessions worked.

#: The numbers of commits (the newest) and places that are listed, and the length of a commit's subject.
MAX_LISTED_COMMITS, MAX_PLACES, SUBJECT_CHARACTERS = 20, 20, 300

log = logging.getLogger(__name__)


def commits_made(sessions: Collection[tuple[AgentName, str]], directory: str) -> Mapping[str, CommitsMade]:
    """Map sessions' ids to their commits, in the repository of `directory`. Sessions without commits are missing.

    If the commits cannot be determined, return an empty mapping.
    """
    if not directory or not index_db().exists():
        return {}
    try:
        made, _ = works_of(sessions, directory, Processes())
    except (IndexUnavailable, SmartForkError, OSError) as error:  # what was asked for is good without
        log.info("the commits of sessions are not known: %s", error)
        return {}
    return {id_: one for id_, one in made.items() if one.count or one.notice}


def works_of(
    sessions: Collection[tuple[AgentName, str]], directory: str, processes: Processes
) -> tuple[Mapping[str, CommitsMade], bool]:
    """Map the ids of indexed sessions to their commits, in the repository of `directory`.

    Also return True if all commits since the first session's beginning were examined.
    """
    folder = Path(WorkDirectory(directory).now)
    there = Repository.open(folder, processes)
    with opened() as store:
        known = [(agent, id_) for agent, id_ in sessions if store.session(agent, id_)]
        _look_again(store, known)
        rows = [row for agent, id_ in known if (row := store.session(agent, id_))]
        scope = store.scope(recognized(project_of(folder)), READERS.names, automated=True)
        try:
            return commits_of(rows, store, scope, there)
        except ProgramFailed as error:
            notice = f"Its commits are not known: {error.message}"
            return {row.session_id: CommitsMade(0, (), 0, (), notice) for row in rows}, False


def _look_again(store: Store, sessions: Collection[tuple[AgentName, str]]) -> None:
    if Setting.INDEXING.is_off():
        return
    try:
        paths = [str(path) for agent, id_ in sessions for path in READERS[agent].locate(id_)]
        read_changed(store, READERS, paths, READ_SECONDS)
    except (IndexBusyError, OSError) as error:
        log.info("the index is used as it is: %s", error)


# The messages of the commits that came of sessions: they are searched as a text of these sessions.

#: The number of new commits that are examined, newest first, and the number of commits in one step.
MAX_NEW, BATCH = 2000, 20
#: A session made a commit if it wrote this share of the commit's added lines, and at least this many lines.
MIN_SHARE, MIN_LINES = 0.2, 3
#: Only the beginning of a longer message is searched.
MESSAGE_CHARACTERS = 4000
#: The number of branches that are remembered as examined.
MAX_TIPS = 1000
_TIPS = (
    "for-each-ref", f"--count={MAX_TIPS}", "--sort=-committerdate", "--format=%(objectname)", "refs/heads",
    "refs/remotes",
)  # fmt: skip
#: A trailer: a line at the end of a message that is for programs.
_TRAILER = late(r"^[A-Z][\w-]+: .*$", re.MULTILINE)


def note_commits(store: Store, patience: float = 0.0, progress: Progress | None = None) -> None:
    """Store in the index the new commits of each repository, with the sessions that made them.

    If another process writes to the index, wait up to `patience` seconds. Repositories that fail are tried again next
    time.
    """
    for root in store.projects():
        try:
            project = recognized(project_of(Path(root)))
            if project.git:
                _note_new(store, project, Repository.open(Path(root), Processes()), patience, progress)
        except (SmartForkError, OSError) as error:
            log.info("the commits of %s are not known: %s", root, error)


def _note_new(store: Store, project: Project, there: Repository, patience: float, progress: Progress | None) -> None:
    scope, key = store.scope(project, READERS.names, automated=True), f"commits of {project.key}"
    row, *tips = store.meta(key).split() or ("0",)
    last, began = store.began(scope, int(row))
    now = there.git(*_TIPS).text.split()
    if not last and set(now) <= set(tips):
        return
    known = "".join(f"^{tip}\n" for tip in tips).encode()
    names = dict(_logged_commits(there, _since(store.began(scope, 0)[1]), "--ignore-missing", "--stdin", given=known))
    if last and tips:  # a session that is read later than its commits were made
        names |= dict(_logged_commits(there, _since(began), "--"))
    newest = sorted(names, key=lambda name: -names[name])[:MAX_NEW]
    for start in range(0, len(newest), BATCH):
        if progress:
            progress("commits", start, len(newest))
        with only_writer(patience):
            store.add_commits([*_sessions_of_commits(newest[start : start + BATCH], store, scope, there)])
    store.set_meta(key, " ".join((str(last or row), *now)))


def _since(began: str) -> str:
    first = seconds(began) - SKEW
    return f"--since=@{int(max(first, _FIRST)) if math.isfinite(first) else _FIRST}"


def _sessions_of_commits(
    names: Sequence[str], store: Store, scope: Scope, there: Repository
) -> Iterator[tuple[int, str, str]]:
    """Yield (row number of a session, commit, message) for the sessions that made the commits `names`."""
    lines, named = committed(there, names), named_in(names, store, scope, there)
    rows = {commit: set(sessions) for commit, sessions in named.items()}
    made = zip(lines, writers_of(lines, store, scope, there, named=named), strict=True)
    for commit, several in groupby(made, key=lambda one: one[0].commit):
        wrote = [writer and writer.session for line, writer in several if line.text.strip()]
        least = max(MIN_LINES, MIN_SHARE * len(wrote))
        rows.setdefault(commit, set()).update(row for row, count in Counter(wrote).items() if row and count >= least)
    for commit, raw in objects(there, rows).items():
        message = raw.partition(b"\n\n")[2].decode("utf-8", "replace")
        text = mask(_TRAILER.sub("", message)[:MESSAGE_CHARACTERS]).strip()
        yield from ((row, commit, text) for row in rows[commit])
