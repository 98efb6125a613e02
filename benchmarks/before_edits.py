"""How often an edit is told which exchange wrote the lines that it replaces, how often rightly, and what that costs.

    python -m benchmarks.before_edits [REPOSITORY...] [--corpus FOLDER] [--read FILE] [--runs N] [--json FILE]

REPOSITORY has a branch ``entire/checkpoints/v1``, FOLDER a `CATALOG.tsv` and `sessions.tar.xz`; nothing is downloaded.
History is played in order: each edit is asked about while the home holds what the logs held before, HEAD is the last
commit before, and the file is as the log says that the edit found it, or else as the log's earlier edits left it. The
sessions of FOLDER have no commits: there each session's work is committed before the next session edits.

Who wrote the replaced lines is found by playing the edits of all logs on the files, without the code under test: an
exchange is right if none wrote more of them. Half of the sessions is for fitting, the other half is for judging.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from ._replayed import Done, Files, Owner, edits_of
from .which_session.clone import Clone
from .which_session.play import at_home
from .which_session.transcripts import _AGENTS, Transcript, log_of, transcripts

SECONDS = 120.0
PARTS = (0.01, 0.5, 0.6, 0.75, 0.9, 1.0)


class Asked(NamedTuple):
    """What was said of an edit, and what is true: the lines, each with who can have written it."""

    done: Done
    file: str
    said: str
    part: float
    key: str
    lines: Sequence[tuple[str, frozenset[Owner]]]

    @property
    def verdict(self) -> str:
        """Whether what was said is right; "unknown" if most of the lines are in no log."""
        if not self.said:
            return "silent"
        known = [owners for _, owners in self.lines if owners]
        wrote = Counter(owner for owners in known for owner in owners)
        named = {one for one in wrote if one.session == self.key.rpartition(":")[0] and quotes(self.said, one.asked)}
        if max((wrote[one] for one in named), default=-1) == max(wrote.values(), default=0):
            return "right"
        return "wrong" if 2 * len(known) >= len(self.lines) else "unknown"

    @property
    def judged(self) -> bool:
        """Whether it is of the half that nothing was fitted on."""
        return sha256(self.done.by.session.encode()).digest()[0] % 2 == 1


def quotes(said: str, asked: str) -> bool:
    """Whether a sentence quotes the beginning of what was asked."""
    quote = bare(said.partition(': "')[2].rpartition('" (a quotation')[0].rstrip("…"))
    return bool(quote) and bare(asked).startswith(quote[:40])


def bare(text: str) -> str:
    """Return the letters and digits of a text."""
    return "".join(one for one in text.lower() if one.isalnum())


class Play:
    """A home, an index and a repository in which time goes forward."""

    def __init__(self, known: Mapping[str, Transcript], folder: Path, source: Clone | None) -> None:
        self.known, self.folder, self.home = known, folder, folder / "home"
        self.here, self.source = folder / (source.name if source else "repository"), source
        self._sizes: dict[str, int] = {}
        self._last, self._head = "", ""
        self._git("init", "--quiet", "--initial-branch=main", str(self.here), where=folder)
        if source:
            objects = source.git("rev-parse", "--path-format=absolute", "--git-path", "objects")
            (self.here / ".git/objects/info/alternates").write_bytes(objects)
            log = source.lines("log", "--first-parent", "--format=%ct %H", source.head)
            self._commits = sorted((int(line.split()[0]), line.split()[1]) for line in log)

    def edits(self) -> list[Done]:
        """Return the edits of all logs in order, each call once."""
        found: dict[str, Done] = {}
        for one in self.known.values():
            for done in edits_of(one, one.moved(list(one.lines), self.here)):
                key = json.dumps(done.given, sort_keys=True)
                before = found.setdefault(key, done)
                if done.at < before.at:  # a fork's log has the calls of its origin again, with times of its own
                    found[key] = done
        return sorted(found.values(), key=lambda done: done.at)

    def write(self, done: Done) -> None:
        """Bring home and index to right before an edit."""
        for session, one in self.known.items():
            lines = len(one.until(done.at))
            if lines == self._sizes.get(session, 0):
                continue
            log = log_of(one, done.at, self.home, self.here)
            if log is not None:
                log.path.parent.mkdir(parents=True, exist_ok=True)
                had = log.path.stat().st_size if log.path.exists() else 0
                with log.path.open("ab") as file:
                    file.write(log.content[had:])
                os.utime(log.path, (log.changed, log.changed))
            self._sizes[session] = lines

    def commit(self, done: Done) -> None:
        """Bring HEAD to right before an edit."""
        if self.source:
            head = next((commit for at, commit in reversed(self._commits) if at <= done.at), "")
            if head and head != self._head:
                self._git("update-ref", "refs/heads/main", head)
                self._head = head
        elif self._last != done.by.session:
            self._git("add", "--all", "--force")
            date = f"{int(done.at)} +0000"
            self._git("commit", "--quiet", "--message", "work", dates={"GIT_COMMITTER_DATE": date})
            self._last = done.by.session

    def put(self, file: Path, text: str) -> None:
        """Put a text where an edit finds it."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", errors="replace")

    def _git(self, *arguments: str, where: Path | None = None, dates: Mapping[str, str] | None = None) -> None:
        identity = {f"GIT_{one}_{what}": "x" for one in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = dict(os.environ) | identity | dict(dates or {})
        command = ["git", "-C", str(where or self.here), *arguments]
        subprocess.run(command, env=environment, capture_output=True, check=False)


class Index:
    """The index of a home, brought up to date as often as it is asked."""

    def __init__(self) -> None:
        from indexer.files import index_db, private_dir, state_home
        from indexer.store.sqlite import SqliteStore

        private_dir(state_home())
        self.store = SqliteStore(index_db())

    def update(self) -> None:
        """Read what the logs have more than before."""
        from indexer.changes import Report, changed_logs
        from indexer.pipeline import read_logs
        from smart_fork.agents.readers import READERS

        report = Report()
        read_logs(self.store, READERS, changed_logs(self.store, READERS, report), report)


def played(known: Mapping[str, Transcript], folder: Path, source: Clone | None) -> tuple[list[Asked], Counter[str]]:
    """Ask about each edit of a repository, and say how many edits there were of each kind."""
    from indexer.embedding import configured_embedder
    from smart_fork.errors import SmartForkError
    from smart_fork.finding import hints
    from smart_fork.finding.library import Library
    from smart_fork.finding.upkeep import Engine

    engine = Engine(configured_embedder())
    asked, counts = list[Asked](), Counter[str]()
    with at_home(folder / "home", folder / "state"):
        play, files, index = Play(known, folder, source), Files(), Index()
        # What is said with a larger part is counted below; a busy machine must not change what is found.
        hints.LEAST_PART, hints.SECONDS = PARTS[0], SECONDS
        for done in play.edits():
            said, lines, name = None, list[tuple[str, frozenset[Owner]]](), ""
            play.commit(done)
            for file, pairs in done.files.items():
                path = play.here / file
                if not path.is_relative_to(play.here) or ".." in path.parts:
                    counts["outside"] += 1
                    continue
                old = pairs[0][0]
                text = done.before if done.before is not None else files.text(file)
                if done.before is not None:
                    files.found(file, done.before)
                if not old:
                    counts["new files, or whole ones"] += 1
                elif text is None or text.count(old) < 1:
                    counts["of a file that no log has"] += 1
                    continue
                else:
                    counts["edits"] += 1
                    play.put(path, text)
                    lines += [one for a, b in pairs if a and a in text for one in files.replaced(file, a, b)]
                    name = name or file
                after = text or ""
                for a, b in pairs:
                    after = after.replace(a, b, -1 if done.given.get("replace_all") else 1) if a else b
                done_after = (path, after)
                if name == file:
                    play.write(done)
                    index.update()
                    here = str(play.here)
                    edit = hints.HookEvent(done.agent, done.by.session, here, tool=done.tool, given=done.given)
                    try:
                        with Library.open(here, engine) as library:
                            said = library.before_edit(edit)
                    except (SmartForkError, OSError):
                        said = None
                play.put(*done_after)
                files.edited(file, after, done.by)
            if name:
                told = (said.line, said.chance, said.key) if said else ("", 0.0, "")
                asked.append(Asked(done, name, *told, lines))
    return asked, counts


def repository(source: Path, folder: Path) -> tuple[list[Asked], Counter[str]]:
    """Play a repository whose commits name their sessions."""
    clone = Clone(source)
    return played(transcripts(clone), folder, clone)


def corpus(source: Path, folder: Path) -> Iterator[tuple[list[Asked], Counter[str]]]:
    """Play each repository of a corpus."""
    rows = {row["file"]: row for row in csv.DictReader((source / "CATALOG.tsv").open(encoding="utf-8"), delimiter="\t",
                                                       quoting=csv.QUOTE_NONE)}  # fmt: skip
    known: defaultdict[str, dict[str, Transcript]] = defaultdict(dict)
    with tarfile.open(source / "sessions.tar.xz") as tar:
        for member in tar:
            row = rows.get(member.name)
            if row is None or row["agent"] not in ("claude", "codex") or not (file := tar.extractfile(member)):
                continue
            stem, agent = Path(member.name).stem, row["agent"]
            session = stem if agent == "claude" else stem[-36:]
            one = Transcript(session, agent, tuple(_AGENTS[agent].lines(file.read())), frozenset(), "")
            if one.prompts and one.lines:
                known[row["repo"]][session] = one
    for name, several in known.items():
        here = folder / name.replace("/", "+")
        here.mkdir()
        yield played(several, here, None)


def figures(asked: Sequence[Asked]) -> dict[str, Any]:
    """How often something is said, rightly and wrongly, by the least part of the lines."""
    found: dict[str, Any] = {"edits": len(asked)}
    for least in PARTS:
        verdicts = Counter(one.verdict for one in asked if one.part >= least)
        said = verdicts.total()
        sure = verdicts["right"] + verdicts["wrong"]
        found[f"from a part of {least:g} on"] = {
            "said": said,
            **{name: verdicts[name] for name in ("right", "wrong", "unknown")},
            "right of what is known": round(verdicts["right"] / sure, 3) if sure else None,
            "right of all said": round(verdicts["right"] / said, 3) if said else None,
            "wrong or unknown of all edits": round((said - verdicts["right"]) / len(asked), 3) if asked else None,
        }
    return found


def to_read(asked: Sequence[Asked], number: int, seed: int) -> str:
    """Some of what was said, beside the lines and who wrote them by the logs."""
    out = io.StringIO()
    said = [one for one in asked if one.said]
    for one in random.Random(seed).sample(said, min(number, len(said))):
        print(f"== {one.verdict}, part {one.part:.2f}: {one.file}, asked in {one.done.by.session}", file=out)
        print(f"   {one.said}", file=out)
        for line, owners in one.lines[:12]:
            whose = "; ".join(f"{owner.session[:8]} {' '.join(owner.asked.split())[:60]}" for owner in owners)
            print(f"   | {line[:100]}   <- {whose or '?'}", file=out)
    return out.getvalue()


def costs(source: Path, folder: Path, runs: int) -> dict[str, Any]:
    """The hook as an agent runs it, on lines of the last commit, with the service warm: alone and beside busy loops."""
    from smart_fork.hooks import EDITS, switch

    clone = Clone(source)
    known = transcripts(clone)
    with at_home(folder / "home", folder / "state"):
        play = Play(known, folder, clone)
        last = max(play.edits(), key=lambda done: done.at)
        play.write(last)
        play.commit(last._replace(at=float("inf")))
        for words in (("read-tree", "--reset", "HEAD"), ("checkout-index", "--all", "--force", "--quiet")):
            Clone(play.here).run(*words)  # a blob that is absent is left out
        Index().update()
        switch.turn_on("claude")
        events, figures = drawn(play.here, runs), dict[str, Any]()
        with service() as pid:
            for event in events[:5]:
                hooked(event)
            for name, loops, least in (
                ("alone", 0, "150"), ("beside two busy loops", 2, "150"), ("as long as it takes", 0, "60000"),
            ):  # fmt: skip
                os.environ["SMART_FORK_RECALL_MS"] = least
                late = switch.said(EDITS).late
                busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
                began = served(pid)
                taken = [hooked({**event, "session_id": f"{loops}-{least}-{at}"}) for at, event in enumerate(events)]
                for one in busy:
                    one.kill()
                    one.wait()
                for what, column in (("wall", 0), ("processor of the hook", 1)):
                    several = sorted(1000 * one[column] for one in taken)
                    percentiles = statistics.median(several), several[int(0.95 * len(several))]
                    figures[f"{name}: {what}, ms, median and 95th percentile"] = [round(one, 1) for one in percentiles]
                figures[f"{name}: processor of the service, ms"] = round(1000 * (served(pid) - began) / len(taken), 1)
                figures[f"{name}: late"] = f"{switch.said(EDITS).late - late} of {len(taken)}"
                figures[f"{name}: spoke"] = f"{sum(one[2] for one in taken)} of {len(taken)}"
    return figures


def drawn(here: Path, number: int) -> list[dict[str, Any]]:
    """Edits of three lines each, drawn from the files of the last commit."""
    draw, found = random.Random(1), list[dict[str, Any]]()
    names = [name for name in Clone(here).lines("ls-files") if name.endswith((".ts", ".tsx", ".md", ".py", ".css"))]
    while len(found) < number and names:
        file = here / draw.choice(names)
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True) if file.is_file() else []
        if len(lines) > 4:
            at = draw.randrange(len(lines) - 3)
            given = {"file_path": str(file), "old_string": "".join(lines[at : at + 3]), "new_string": ""}
            event = {"hook_event_name": "PreToolUse", "tool_name": "Edit", "tool_input": given, "cwd": str(here)}
            found.append(event | {"session_id": f"drawn-{len(found)}"})
    return found


def hooked(event: Mapping[str, Any]) -> tuple[float, float, bool]:
    """Run the hook; return its seconds, its seconds of processor, and whether it spoke."""
    hook = [sys.executable, "-P", "-m", "smart_fork.hooks", "claude"]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(hook, input=json.dumps(event).encode(), capture_output=True, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, bool(done.stdout)


def served(pid: int) -> float:
    """Return the seconds of processor of a process and of the programs that it ran."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def service() -> Iterator[int]:
    """The real one, which indexes nothing, from when it answers: its process."""
    from smart_fork.cli.service.client import find_service

    environment = dict(os.environ) | {"SMART_FORK_INDEXING": "false"}
    command = [sys.executable, "-m", "smart_fork", "serve", "--port", "18767"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + SECONDS
        while find_service() is None and time.monotonic() < until:
            time.sleep(0.2)
        try:
            yield process.pid
        finally:
            process.terminate()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.before_edits", description=__doc__.split("\n")[0])
    parser.add_argument("repositories", nargs="*", type=Path)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--read", type=Path, help="write cases here, to be read by hand")
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=0, help="of the hook, in the first repository")
    parser.add_argument("--only-runs", action="store_true", help="play nothing")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    asked, counts = list[Asked](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="before-edits-") as name:
        folder = Path(name).resolve()
        costing = costs(given.repositories[0], folder, given.runs) if given.runs and given.repositories else {}
        for at, source in enumerate(() if given.only_runs else given.repositories):
            if not Clone(source).checkpoints_ref:
                print(f"skipped: {source} is no repository with a branch of checkpoints")
                continue
            (here := folder / str(at)).mkdir()
            more, kinds = repository(source, here)
            asked, counts = asked + more, counts + kinds
        if given.corpus is None or not (given.corpus / "sessions.tar.xz").is_file():
            print(f"skipped: no corpus{f' at {given.corpus}' if given.corpus else ''}")
        else:
            for more, kinds in corpus(given.corpus, folder):
                asked, counts = asked + more, counts + kinds
    found: dict[str, Any] = {"the hook": costing, "edits of each kind": dict(counts)}
    if asked:
        found["half for fitting"] = figures([one for one in asked if not one.judged])
        found["half for judging"] = figures([one for one in asked if one.judged])
    print(json.dumps(found, indent=1))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    if given.read:
        given.read.write_text(to_read(asked, given.cases, given.seed))


if __name__ == "__main__":
    main()
