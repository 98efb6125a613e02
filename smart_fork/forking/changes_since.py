"""Finds a repository's changes since a session, in the files that the session read or edited.

A difference is left out if it may be older than the session, and the search ends after a few seconds. File names come
from logs and from the repository: git gets them as literal text after ``--``, and none of the files is opened.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Literal

from indexer.lazy_compilation import dataclass
from indexer.masking import mask
from indexer.project import Checkout, is_within, resolve
from indexer.repositories import recorded
from smart_fork.errors import ProgramFailed, SmartForkError
from smart_fork.finding.git import Repository
from smart_fork.finding.project_places import inside, tops
from smart_fork.forking.reflog import checked_out, moves
from smart_fork.system.processes import Completed, Processes

#: The seconds that all calls of git together may take; if they take longer, no changes are reported.
SECONDS = 5.0
#: The number of a session's files that are compared, and of a history's commits that are examined.
MAX_FILES, MAX_COMMITS = 400, 2000
#: The number of commits before a commit that are examined for clock errors.
_LOOKED_BACK = 100
#: A clock that is ahead by more seconds is wrong.
_SKEW = 60.0
#: Limits of the search for renames: the common share of two files, and the number of files.
_RENAMES = ("-M60%", "-l400", "--no-rename-empty")
_PLAINLY = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all", "--no-relative")
#: The option that keeps git from preloading the index, which would take most of the time for few files.
_FEW = ("-c", "core.preloadIndex=false")
_GITLINK, _LINKED = "160000", "120000"

#: How the commit to compare with is known: as the checkout at the session's end, as its beginning in the log, or from
#: its branch at that time.
BaseSource = Literal["checked out", "begun at", "by then"]
_BY_THEN: BaseSource = "by then"
ChangeKind = Literal["changed", "added", "deleted", "renamed", "mode", "kind"]
_ENDS: Mapping[str, ChangeKind] = {"A": "added", "D": "deleted"}


@dataclass(frozen=True, slots=True)
class SessionKnowledge:
    """The state of a repository as a session knows it: the files that it read or edited, and the commit and branch.

    `edits` maps files to their numbers of edits (0: only read), most edited first. The session began and last worked at
    `begun` and `until`, in seconds. `commit` was checked out at the beginning. `branch` is empty if no branch was
    checked out, `None` if unknown. `here` is true if the session worked on this machine.
    """

    edits: Mapping[str, int]
    until: float
    begun: float | None
    cwd: str
    commit: str = ""
    branch: str | None = None
    here: bool = True


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file that has changed since a session. `own` is true if the session itself may have made some of the changes.

    `to` is the new name of a renamed file. `lines` are the numbers of added and removed lines.
    """

    path: str
    change: ChangeKind
    to: str = ""
    lines: tuple[int, int] | None = None
    own: bool = False
    uncommitted: bool = False


@dataclass(frozen=True, slots=True)
class ChangesSince:
    """The changes in a repository since a session. Fields that end in `_now` describe the present state.

    Unknown commits and branches are empty; `branch_now` also if no branch is checked out. `behind` counts the fetched
    commits of the branch `upstream` that are not in the checkout.
    """

    until: float
    commit: str
    known: BaseSource
    branch: str | None
    commit_now: str
    branch_now: str
    files: tuple[ChangedFile, ...]
    #: The session's uncommitted files in the directory, which a new worktree will not have.
    left_behind: tuple[str, ...] = ()
    behind: int = 0
    upstream: str = ""

    @property
    def branch_changed(self) -> bool:
        """Return True if the session's branch is known and is not the present branch."""
        return self.branch is not None and self.branch not in (self.branch_now, mask(self.branch_now))


def find_changes(
    folder: Path, then: SessionKnowledge, processes: Processes, *, committed: bool = False
) -> ChangesSince | None:
    """Return what surely changed since the state `then` in the checkout of `folder`; `None` if no change is sure.

    With `committed`, compare only with the checked-out commit, and ignore uncommitted changes.
    """
    if then.until > time.time() + _SKEW:
        return None
    try:
        found = _Comparison(_Git(Repository.open(folder, processes)), then, committed=committed).find_changes()
    except SmartForkError:  # no repository, no git, none that answers in time
        return None
    return found if found.files or found.left_behind or found.branch_changed or found.behind else None


@dataclass(frozen=True, slots=True)
class _Git:
    """Runs git in one repository. All its calls together may take `SECONDS`."""

    there: Repository
    until: float = field(default_factory=lambda: time.monotonic() + SECONDS)

    def __call__(self, *words: str) -> Completed:
        """Run git with these arguments, in which paths are literal; raise `ProgramFailed` if it takes too long."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise ProgramFailed("git took too long")
        return self.there.git("--literal-pathspecs", *_FEW, *words, seconds=left)

    def between(self, before: str, after: str, names: Collection[str]) -> dict[str, ChangedFile] | None:
        """Return the differences of the files `names` between the commits `before` and `after`, by file name.

        An empty `after` means the working directory. Return `None` if git lacks a commit, because of garbage collection
        or a shallow clone.
        """
        if not names:
            return {}
        how = ("diff-tree", "-r", "--raw") if after else ("diff", "--raw")
        ends = ("--end-of-options", before, *((after,) if after else ()), "--", *names)
        for counted in (("--numstat",), ()):  # the contents may not be there where the names are
            done = self(*how, *counted, "-z", "--no-renames", "--abbrev=64", *_PLAINLY, *ends)
            if done.ok:
                return _parse_differences(done.stdout, frozenset(names))
        return None

    def renamed(self, before: str, after: str, gone: Collection[str]) -> dict[str, ChangedFile]:
        """Return the files `gone` that git finds renamed between two commits, by old name.

        The commit `before` has these files, the commit `after` (or git's index, if `after` is empty) has not.
        """
        how = ("diff-tree", "-r") if after else ("diff-index", "--cached")
        words = (*how, "-z", "--diff-filter=R", *_RENAMES, *_PLAINLY)
        ends = ("--end-of-options", before, *((after,) if after else ()))
        done = self(*words, "--raw", *ends)
        pairs = dict(_parse_renames(done.stdout, frozenset(gone))) if done.ok else {}
        edited = {old: to for old, (to, same) in pairs.items() if not same}
        counted = self(*words, "--numstat", *ends, "--", *edited, *edited.values()).stdout if edited else b""
        lines = _parse_counts(counted)
        return {
            old: ChangedFile(old, "renamed", to, lines=(0, 0) if same else lines.get((old, to)))
            for old, (to, same) in pairs.items()
        }

    def history(self, ref: str) -> tuple[tuple[str, int], ...]:
        """Return (hash, time) of a branch's newest commits, newest first, along the first parents of merges."""
        how = ("rev-list", "--first-parent", "--timestamp", f"--max-count={MAX_COMMITS}")
        done = self(*how, "--end-of-options", ref, "--")
        return tuple(dated(done.stdout)) if done.ok else ()

    def behind(self) -> tuple[int, str]:
        """Return the number of upstream commits that HEAD lacks, up to `MAX_COMMITS`, and the upstream branch's name.

        Nothing is fetched. Return 0 and an empty name if there is no upstream branch, or if git takes too long.
        """
        with suppress(ProgramFailed):
            count = self("rev-list", "--count", f"--max-count={MAX_COMMITS}", "HEAD..@{upstream}", "--")
            if count.ok and count.text != "0":
                named = self("rev-parse", "--abbrev-ref", "@{upstream}")
                return int(count.text), os.fsdecode(named.stdout).rstrip("\n") if named.ok else ""
        return 0, ""

    def older_work(self, since: str, ref: str, moment: float, names: Collection[str]) -> frozenset[str]:
        """Return the files in `names` that commits between `since` and `ref` change with work from before `moment`.

        A rebase can bring old work into a branch late: such changes are not new. If git fails, return all `names`.
        """
        how = ("log", "-z", "-m", "--name-only", "--no-renames", "--format=%x00%at %ct", *_PLAINLY)
        done = self(*how, "--end-of-options", f"{since}..{ref}", "--", *names)
        if not done.ok:
            return frozenset(names)
        found: set[str] = set()
        older = False
        fields = iter(os.fsdecode(done.stdout).split("\0"))
        for one in fields:
            if one:
                found.update({one.removeprefix("\n")} if older else ())
            else:
                times = next(fields, "").split(" ")
                older = any(said.isdigit() and int(said) <= moment for said in times)
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Base:
    """The known commit that is nearest to the state of the repository that the session knew, to compare with now.

    Files in `doubtful` may have differed from it when the session read them. It contains the session's own edits of the
    files in `committed`.
    """

    commit: str
    known: BaseSource
    branch: str | None
    doubtful: frozenset[str] = frozenset()
    committed: frozenset[str] = frozenset()


class _Comparison:
    """One comparison of a session's knowledge of a repository with the repository's present state."""

    def __init__(self, git: _Git, then: SessionKnowledge, *, committed: bool) -> None:
        self.git, self.then, self.committed = git, then, committed
        self.top = git.there.top
        #: The session's files in the repository by their names there, and the files that it edited.
        self.files, self.edited = self._files()
        self.commit, self.branch = self._checked_out()
        #: The session's files that are uncommitted now.
        self.dirty = self.git.between(self.commit, "", self.files) or {} if self.commit else {}

    def find_changes(self) -> ChangesSince:
        base = self._by_reflog() or self._by_log() or self._by_branch()
        found = tuple(self._differing(base)) if base is not None else ()
        left = tuple(name for name in self.files if name in self.dirty) if self.committed else ()
        branch = base.branch if base is not None and base.branch is not None else self.then.branch
        commit, known = (base.commit, base.known) if base is not None else ("", _BY_THEN)
        upstream = self.git.behind() if self.branch else (0, "")
        return ChangesSince(self.then.until, commit, known, branch, self.commit, self.branch, found, left, *upstream)

    def _files(self) -> tuple[dict[str, str], frozenset[str]]:
        within = [*_worktree_of_ours(self.git.there, self.then.cwd), *tops(self.git.there)]
        found: dict[str, str] = {}
        edited: set[str] = set()
        for path, number in self.then.edits.items():
            for name in inside((path,), within) if len(found) < MAX_FILES else ():
                found.setdefault(name, path)
                edited.update({name} if number else ())
        return found, frozenset(edited)

    def _checked_out(self) -> tuple[str, str]:
        """Return the commit and the branch that are checked out now; an empty text for a missing one."""
        commit = self.git("rev-parse", "--quiet", "--verify", "HEAD^{commit}")
        branch = Repository.branch_of(self.git.there.place.own)
        if branch is None:  # kept in another way than in a file
            named = self.git("symbolic-ref", "--quiet", "--short", "HEAD")
            branch = os.fsdecode(named.stdout).rstrip("\n") if named.ok else ""
        return commit.text if commit.ok else "", branch

    def _by_reflog(self) -> _Base | None:
        """Return the commit that was checked out at the session's end, from git's reflog; `None` if unknown."""
        then = self.then
        if not then.here:
            return None
        place = self._place()
        since = min(then.until, then.until if then.begun is None else then.begun)
        if place is not None:
            record, branch_now = moves(place.own, since), Repository.branch_of(place.own)
        else:  # its worktree is gone; its branch may be there
            record = moves(self.git.there.place.common, since, then.branch) if then.branch else ()
            branch_now = then.branch
        seen = checked_out(record, then.until, branch_now)
        first = checked_out(record, then.begun, None) if then.begun is not None else None
        if seen is None or (first is not None and then.commit not in ("", first.commit)):  # of another clone
            return None
        committed = self.git.between(first.commit, seen.commit, self.edited) if first is not None else None
        return _Base(seen.commit, "checked out", seen.branch, committed=frozenset(committed or ()))

    def _place(self) -> Checkout | None:
        """Return the checkout in which the session worked, if it still belongs to this repository."""
        place = Repository.checkout_at(recorded(self.then.cwd))
        return place if place is not None and place.common == self.git.there.place.common else None

    def _by_log(self) -> _Base | None:
        """Return the commit at which the session began, as its log says, or a newer one of HEAD from before its end."""
        commit, branch = self.then.commit, self.then.branch
        if not Repository.is_commit_hash(commit) or not self.git("cat-file", "-e", f"{commit}^{{commit}}").ok:
            return None
        history = self.git.history("HEAD") if self.commit else ()
        names = [name for name, _ in history]
        by_then = _steady(history, self.then.until)
        if commit not in names or by_then is None or by_then >= names.index(commit):
            return _Base(commit, "begun at", branch)
        between = self.git.between(commit, names[by_then], self.files)
        doubtful = self.files.keys() if between is None else between.keys() - self.edited
        return _Base(names[by_then], _BY_THEN, branch, frozenset(doubtful))

    def _by_branch(self) -> _Base | None:
        """Return the last commit of the session's branch before the session's end, by commit time; `None` if unknown.

        A file is doubtful if a commit that reached the branch later contains older work on it.
        """
        branch, until = self.then.branch, self.then.until
        if not branch or not Repository.is_branch_name(branch) or not self.files:
            return None
        for ref in (f"refs/heads/{branch}", f"refs/remotes/origin/{branch}"):
            if history := self.git.history(ref):
                place = _steady(history, until)
                if place is None:
                    return None
                commit = history[place][0]
                return _Base(commit, _BY_THEN, branch, self.git.older_work(commit, ref, until, self.files))
        return None

    def _differing(self, base: _Base) -> Iterator[ChangedFile]:
        wanted = [name for name in self.files if self._is_certain(name, base)]
        if self.committed and not self.commit:
            return
        found = self._between(base.commit, wanted)
        gone = {name: one for name, one in found.items() if one.change == "deleted"}
        become = self.git.renamed(base.commit, self.commit if self.committed else "", gone) if gone else {}
        for name in wanted:
            one = become.get(name) or found.get(name)
            if one is None or (one.change == "added" and name not in self.edited):  # it lay there, and git had it not
                continue
            if one.change == "deleted" and not self.committed and _is_file(self.top / name):  # git has it no more
                continue
            own = name in self.edited and (base.known != "checked out" or name not in base.committed)
            lying = name in self.dirty or (not self.commit and one.change != "deleted")
            yield replace(one, own=own, uncommitted=lying and not self.committed)

    def _between(self, commit: str, names: Collection[str]) -> Mapping[str, ChangedFile]:
        """Return, by name, how the files `names` differ between `commit` and now, with their uncommitted changes."""
        lying = [name for name in names if name in self.dirty or not self.commit]
        kept = [name for name in names if name not in lying]
        found = self.git.between(commit, self.commit, kept) if commit != self.commit else {}
        if commit == self.commit:
            return self.dirty
        return {**(found or {}), **(self.git.between(commit, "", lying) or {})}

    def _is_certain(self, name: str, base: _Base) -> bool:
        """Return True if a difference of the file from the commit in `base` is certainly newer than the session."""
        if name in base.doubtful or (self.committed and name in self.dirty):
            return False
        return not (self.then.here and self._is_unwritten(name))

    def _is_unwritten(self, name: str) -> bool:
        """Return True if the file on disk is the one that the session used, and was not written since."""
        place = self.top / name
        try:
            return resolve(self.files[name]) == place and os.lstat(place).st_mtime <= self.then.until
        except (OSError, ValueError):
            return False


def _worktree_of_ours(there: Repository, cwd: str) -> list[str]:
    """Return a list with the top of the worker's worktree that contains `cwd`, even if deleted; else an empty list."""
    cwd = str(recorded(cwd) or "")
    for top in tops(there):
        inner = Path(cwd).relative_to(top).parts if is_within(cwd, top) else ()
        if len(inner) > 1 and inner[0] == Repository.WORKTREES:
            return [str(Path(top, *inner[:2]))]
    return []


def _is_file(path: Path) -> bool:
    return path.is_symlink() or (path.exists() and not path.is_dir())


def _steady(history: Sequence[tuple[str, int]], moment: float) -> int | None:
    """Return the index of the newest commit in `history` that was made at or before `moment`.

    Return `None` if there is no such commit, or if commit times show that a clock was wrong.
    """
    place = next((place for place, one in enumerate(history) if one[1] <= moment), None)
    if place is None or any(made > moment for _, made in history[place : place + _LOOKED_BACK]):
        return None
    if any(made > time.time() + _SKEW for _, made in history[:place]):
        return None
    return place


def _parse_differences(said: bytes, wanted: frozenset[str]) -> dict[str, ChangedFile]:
    fields = iter(os.fsdecode(said).split("\0"))
    found: dict[str, ChangedFile] = {}
    for one in fields:
        if one.startswith(":"):
            name, (before, after, old, new, status) = next(fields, ""), one[1:].split(" ")
            if name in wanted and _GITLINK not in (before, after) and status[0] != "U":
                found[name] = ChangedFile(name, _change(before, after, status[0], same=old == new))
        elif one:
            added, removed, name = one.split("\t", 2)
            if name in found and added.isdigit() and removed.isdigit():
                found[name] = replace(found[name], lines=(int(added), int(removed)))
    return {name: _of_its_mode(one) for name, one in found.items()}


def _change(before: str, after: str, status: str, *, same: bool) -> ChangeKind:
    if status in _ENDS:
        return _ENDS[status]
    if before != after and _LINKED in (before, after):
        return "kind"
    return "mode" if same and before != after else "changed"


def _of_its_mode(one: ChangedFile) -> ChangedFile:
    """Return `one` with the kind "mode" if only the file's mode differs, and no line; otherwise unchanged."""
    if one.change == "mode" or (one.change == "changed" and one.lines == (0, 0)):
        return replace(one, change="mode", lines=None)
    return one


def _parse_renames(said: bytes, wanted: frozenset[str]) -> Iterator[tuple[str, tuple[str, bool]]]:
    """Yield (old name, (new name, True if unchanged)) for the files `wanted` that git's ``--raw -z`` calls renamed."""
    fields = iter(os.fsdecode(said).split("\0"))
    for one in fields:
        if one.startswith(":"):
            old, new = next(fields, ""), next(fields, "")
            if old in wanted:
                yield old, (new, one.endswith("R100"))


def _parse_counts(said: bytes) -> dict[tuple[str, str], tuple[int, int]]:
    fields = iter(os.fsdecode(said).split("\0"))
    found = {}
    for one in fields:
        added, _, removed = one.rstrip("\t").partition("\t")
        if one:
            names = next(fields, ""), next(fields, "")
            if added.isdigit() and removed.isdigit():
                found[names] = int(added), int(removed)
    return found


def dated(said: bytes) -> Iterator[tuple[str, int]]:
    """Parse git's output of ``rev-list --timestamp``: yield each commit's hash and time."""
    for line in said.decode("ascii", "replace").splitlines():
        made, _, name = line.partition(" ")
        yield name, int(made)
