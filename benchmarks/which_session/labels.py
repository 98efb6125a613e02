"""Questions and answers, by rules alone: no model and no person decides. README.md says them in words."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath

from .clone import Clone, Commit, Part
from .transcripts import Prompt, Transcript, seconds

#: The rules' numbers.
TELLING_WORDS, SESSIONS_BEFORE, PLAN_WORDS = 4, 5, 150
LEAST_LINES, LEAST_PART = 3, 0.1
BEST_SHARE, RIGHT_SHARE = 0.3, 0.2
COMMON_FILE = 0.05

_DOCUMENTS = (".md", ".mdx", ".markdown", ".txt", ".rst", ".adoc", ".json", ".jsonl", ".jsonc", ".json5")
_WORD = re.compile(r"[^\W\d_]{3,}")
_STOP = frozenset(
    """
    about after all also and any are because been before being but can cannot could did does doing don for from had
    has have having her here his how into its itself just let like make more most need not now off once only other our
    out over own please same she should some such than that the their them then there these they this those through
    too under until use using very want was were what when where which while who why will with would you your
    """.split()  # noqa: SIM905 - easier to read than so many quotes
)
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? ")
_PLAIN = ("--no-color", "--no-ext-diff", "--no-textconv")
_RECORD = re.compile(rb'"uuid"\s*:\s*"([0-9a-f-]{36})"')
_BLAMED = re.compile(r"^([0-9a-f]{40}) (\d+) (\d+)(?: \d+)?$")

Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Question:
    """What a person typed first in a session, when, and the commit that the repository was at.

    `answers` are the sessions that wrote the lines that it went on to change, with their share of these; `wider` those
    that changed them at any time. Nothing is in either if nobody did: a question that nothing answers. `written` are
    the lines that each of the answers wrote, with their path. `main` is the commit that the main line was at.
    """

    id: str
    session: str
    text: str
    kind: str
    branch: str
    time: float
    head: str
    main: str
    answers: Mapping[str, float]
    wider: Mapping[str, float]
    files: tuple[str, ...]
    written: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict, repr=False)

    @property
    def right(self) -> frozenset[str]:
        """The sessions that are a right answer."""
        return frozenset(one for one, share in self.answers.items() if share >= RIGHT_SHARE)

    @property
    def wide(self) -> frozenset[str]:
        """The sessions that are right by the wider label: all that changed those lines at any time."""
        return frozenset(self.wider)

    @property
    def is_none(self) -> bool:
        """Whether nothing answers."""
        return not self.answers and not self.wider


def questions(clone: Clone, known: Mapping[str, Transcript]) -> list[Question]:
    """Return the questions of a clone, in the order in which they were asked."""
    history = _History(clone, known)
    asked: set[str] = set()
    found = []
    for transcript in sorted(known.values(), key=lambda one: (one.prompts[0].time, one.session)):
        first = transcript.prompts[0]
        words = " ".join(first.text.lower().split())
        before = sum(other.prompts[0].time < first.time for other in known.values())
        is_one = before >= SESSIONS_BEFORE and words not in asked and is_question(first)
        asked.add(words)
        if is_one and (question := history.question(transcript, first)):
            found.append(question)
    return found


def is_question(prompt: Prompt) -> bool:
    """Say whether a prompt tells enough to be searched for, and does not answer to a command's output."""
    return len(telling(prompt.text)) >= TELLING_WORDS and not prompt.after_output


def telling(text: str) -> set[str]:
    """Return the words that say something: three letters or more, and no stop words."""
    return {word for word in map(str.lower, _WORD.findall(text)) if word not in _STOP}


def kind_of(text: str) -> str:
    """Say whether a prompt is a plan or was typed, by its length."""
    return "plan" if len(text.split()) > PLAN_WORDS else "typed"


class _Lines:
    """The lines that a session changed: how many, who wrote them last, and who changed them at any time.

    `writers` are the sessions that count for a commit and a path.
    """

    def __init__(self, writers: Callable[[str, str], Collection[str]]) -> None:
        self.writers = writers
        self.changed = self.known = 0
        self.wrote, self.ever = Counter[str](), Counter[str]()
        self.written: dict[str, list[tuple[str, str]]] = defaultdict(list)

    def add(self, commit: str, path: str, text: str) -> None:
        """Add a line and the sessions that wrote it."""
        sessions = self.writers(commit, path)
        self.known += bool(sessions)
        self.wrote.update(sessions)
        for session in sessions:
            self.written[session].append((path, text))

    def answers(self) -> dict[str, float]:
        """Each session's share of the lines that are known to be a session's."""
        return _shares(self.wrote, self.known)

    def wider(self) -> dict[str, float]:
        """Each session's share of the changed lines, if it changed them at any time; at least its share above."""
        ever = _shares(self.ever, self.changed)
        return ever | {one: max(share, ever.get(one, 0)) for one, share in self.answers().items()}


def _shares(counts: Mapping[str, int], whole: int) -> dict[str, float]:
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return {session: min(1.0, round(count / whole, 4)) for session, count in ordered}


class _History:
    """What a clone's commits changed, and whose they are."""

    def __init__(self, clone: Clone, known: Mapping[str, Transcript]) -> None:
        self._clone = clone
        self._parts: dict[str, list[Part]] = defaultdict(list)
        for part in clone.parts:
            if part.session in known:
                self._parts[part.checkpoint].append(part)
        self._commits = {one.id: one for one in clone.commits}
        self._common = common_documents([paths for _, paths in clone.touched_by(clone.commits)])
        self._began = min((one.time for one in clone.commits), default=0) - 1
        self._families = families(known.values())
        self._known = known

    def question(self, asking: Transcript, first: Prompt) -> Question | None:
        """Return the question that a session asks, if commits name it and the rules let its lines count."""
        own = [(one, files) for one in self._commits.values() if (files := self._files(one, asking.session))]
        if not own:
            return None
        found = _Lines(partial(self._sessions, others=self._others(asking, first), time=first.time))
        changed = [(commit, *one) for commit, files in own for one in self._changed(commit, files)]
        for commit, path, ranges in changed:
            self._last(found, commit, path, ranges)
        answers = found.answers()
        enough = found.known >= max(LEAST_LINES, LEAST_PART * found.changed)
        if answers and not (enough and max(answers.values()) >= BEST_SHARE):
            return None
        self._ever(found, changed)
        wider = found.wider()
        if wider and not answers:
            return None
        return Question(
            f"{self._clone.name}:{asking.session}",
            asking.session,
            first.text,
            kind_of(first.text),
            asking.branch,
            first.time,
            self._before(f"{own[0][0].id}^", first.time),
            self._before(self._clone.head, first.time),
            answers,
            wider,
            tuple(sorted(frozenset[str]().union(*(files for _, files in own)))),
            dict(found.written),
        )

    def _files(self, commit: Commit, session: str) -> frozenset[str]:
        """The files that a session's part of a commit's checkpoints names."""
        parts = (part for one in commit.checkpoints for part in self._parts[one] if part.session == session)
        return frozenset[str]().union(*(part.files for part in parts))

    def _others(self, asking: Transcript, first: Prompt) -> frozenset[str]:
        """The sessions that may answer: neither of the asking one's family nor named in the prompt."""
        named = {session for session in self._known if session in first.text}
        return frozenset(self._known) - self._families[asking.session] - named

    def _changed(self, commit: Commit, files: Collection[str]) -> list[tuple[str, list[tuple[int, int]]]]:
        """The lines of a commit's parent that it changes or deletes, as (first, last) by path."""
        found: list[tuple[str, list[tuple[int, int]]]] = []
        wanted = sorted(f":(literal){one}" for one in files if one not in self._common)
        if not commit.parent or not wanted:
            return found
        diff = self._clone.git("diff", "-U0", *_PLAIN, commit.parent, commit.id, "--", *wanted)
        in_head = False
        for line in diff.decode("utf-8", "replace").split("\n"):
            if line.startswith("diff --git "):
                in_head = True
            elif in_head and line.startswith("--- "):  # further down it is a line that was deleted
                found.append((_path(line), []))
            elif found and (hunk := _HUNK.match(line)):
                in_head = False
                start, count = int(hunk[1]), int(hunk[2] or 1)
                found[-1][1].extend([(start, start + count - 1)] if count else [])
        return [(path, ranges) for path, ranges in found if path and ranges]

    def _last(self, found: _Lines, commit: Commit, path: str, ranges: Ranges) -> None:
        """Add who wrote lines last."""
        found.changed += sum(last - start + 1 for start, last in ranges)
        asked = [f"-L{start},{last}" for start, last in ranges]
        blame = self._clone.git("blame", "--line-porcelain", *asked, commit.parent, "--", path)
        writer = name = ""
        for line in blame.decode("utf-8", "replace").split("\n"):
            if blamed := _BLAMED.match(line):
                writer = blamed[1]
            elif line.startswith("filename "):
                name = line[9:]
            elif line.startswith("\t"):
                found.add(writer, name, line[1:])

    def _ever(self, found: _Lines, changed: Iterable[tuple[Commit, str, Ranges]]) -> None:
        """Add who changed lines at any time. One range at a time: git confuses several of a file."""
        asked = [
            (commit, path, f"-L{start},{last}:{path}") for commit, path, ranges in changed for start, last in ranges
        ]
        with ThreadPoolExecutor() as several:
            logs = several.map(lambda one: self._log(one[0].parent, one[2]), asked)
            for (_, path, _), log in zip(asked, logs, strict=True):
                for record in log.decode("utf-8", "replace").split("\0")[1:]:
                    head, *patch = record.split("\n")
                    wrote = sum(line.startswith("+") and not line.startswith("+++ ") for line in patch)
                    found.ever.update(dict.fromkeys(found.writers(head, path) if wrote else (), wrote))

    def _log(self, commit: str, lines: str) -> bytes:
        """What changed lines until a commit, since sessions were kept."""
        return self._clone.git("log", "--format=%x00%H", *_PLAIN, f"--since={self._began}", lines, commit)

    def _sessions(self, commit: str, path: str, *, others: frozenset[str], time: float) -> set[str]:
        """The sessions that count for a line of a commit: their checkpoint names the file, and was there before."""
        made = self._commits.get(commit)
        parts = (part for one in made.checkpoints for part in self._parts[one]) if made else ()
        return {
            part.session
            for part in parts
            if part.session in others and path in part.files and seconds(part.created) < time
        }

    def _before(self, commit: str, time: float) -> str:
        """The last commit before a time, on the first line of descent of `commit`."""
        return next(iter(self._clone.lines("rev-list", "-1", "--first-parent", f"--before={int(time)}", commit)), "")


def _path(line: str) -> str:
    name = line[4:].rstrip("\t")
    return name[2:] if name.startswith("a/") else ""


def common_documents(touched: Sequence[Iterable[str]]) -> frozenset[str]:
    """Return the documents and JSON files that so many commits touch that they say nothing about a session."""
    counts = Counter(path for paths in touched for path in paths)
    return frozenset(
        path
        for path, count in counts.items()
        if PurePosixPath(path).suffix.lower() in _DOCUMENTS and count >= COMMON_FILE * len(touched)
    )


def families(known: Iterable[Transcript]) -> dict[str, frozenset[str]]:
    """Return each session's family: those that share a record with it, as forks and copies do."""
    family: dict[str, set[str]] = {}
    owner: dict[bytes, str] = {}
    for transcript in known:
        family[transcript.session] = mine = {transcript.session}
        for line in transcript.lines:
            for record in _RECORD.findall(line.line):
                other = owner.setdefault(record, transcript.session)
                if other not in mine:
                    mine |= family[other]
                    family.update(dict.fromkeys(mine, mine))
    return {session: frozenset(members) for session, members in family.items()}
