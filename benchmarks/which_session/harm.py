"""Harm: how often smart-fork speaks where no session can know. What happened in other repositories is asked here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from .calls import Ran, ran_calls
from .figures import LIKELY
from .ours import SmartFork
from .play import Stage, at_home

#: In so many projects of the collection it is asked, and so much of each kind in each place.
PLACES, SAMPLE = 3, 80
#: What a hook hands over of a prompt, and of an output.
PROMPT_CHARACTERS, ERROR_CHARACTERS = 4_000, 20_000
#: Stands for the folder of the repository in what a tool is given.
HERE = "/the-repository"
UNRELATED = Path(__file__).with_name("unrelated.txt")
LABELLED, FIRST, MADE_UP, ERROR, EDIT = (
    "labeled questions of other projects", "first prompts of {}", "unrelated prompts",
    "errors of other projects", "edits of lines from other projects",
)  # fmt: skip
#: Not harm: whether it speaks at all.
OWN = "labeled questions of the same project"


class Event(NamedTuple):
    """A prompt, a failed command (`given` is its command and output), or an edit of the lines `old` in a file."""

    kind: str
    text: str
    tool: str = ""
    given: Mapping[str, Any] | None = None
    old: str = ""


class Place(NamedTuple):
    """A repository in which events are asked about, in a home with its sessions, and its own events."""

    name: str
    folder: Path
    home: Path
    state: Path
    events: Sequence[Event]
    sessions: int

    @property
    def owner(self) -> str:
        """The owner in the name of a folder, `OWNER+NAME`. Projects of one owner may know of each other."""
        return self.folder.name.partition("+")[0]


def measure(
    stages: Sequence[Stage], corpus: Path, folder: Path, embedder: Any, read: Path | None = None
) -> dict[str, Any]:
    """Ask in each clone, at the end of its history, and in the largest projects of a collection, and count.

    What something speaks about is written into the file `read`.
    """
    everywhere = [*map(_of_clone, stages), *_of_collection(corpus.resolve(), folder / "collection")]
    places = everywhere[: len(stages) + PLACES]
    made_up = [Event(MADE_UP, text) for text in UNRELATED.read_text(encoding="utf-8").splitlines()]
    rows, texts = [], list[str]()
    for place in places:
        foreign = chain.from_iterable(one.events for one in everywhere if one.owner != place.owner)
        own = [one._replace(kind=OWN) for one in place.events if one.kind == LABELLED]
        with at_home(place.home, place.state):
            ours = SmartFork(embedder)
            ours.bring_up_to_date()
            for kind, events in _by_kind([*own, *made_up, *foreign]).items():
                print(f"harm: {place.name}, {kind}: {len(events)}", file=sys.stderr)
                heard = [(way, one.text) for one in events for way in _speaking(place, one, ours)]
                texts += [f"== {place.name}, {kind}: {way}\n{text[:500]}\n" for way, text in heard]
                spoken = Counter(way for way, _ in heard)
                ways = ("find", "recall") if kind not in (ERROR, EDIT) else ("hint",)
                told = {way: spoken[way] for way in ways}
                rows.append({"asked": kind, "in": place.name, "times": len(events), "spoken": told})
    if read:
        read.write_text("".join(texts), encoding="utf-8", errors="replace")
    return {"places": [{"name": one.name, "sessions": one.sessions} for one in places], "speaks": rows}


def _by_kind(events: Iterable[Event]) -> dict[str, list[Event]]:
    """Return at most so many different events of each kind, spread evenly."""
    found: dict[str, dict[str, Event]] = defaultdict(dict)
    for one in events:
        found[one.kind].setdefault(one.text, one)
    return {kind: _sample(list(several.values())) for kind, several in sorted(found.items())}


def _sample(events: list[Event]) -> list[Event]:
    least = min(len(events), SAMPLE)
    return [events[number * len(events) // least] for number in range(least)]


def _speaking(place: Place, event: Event, ours: SmartFork) -> Iterator[str]:
    """Yield what speaks: `find`, with a score of 0.5 or more, `recall` or a hint."""
    from smart_fork.errors import SmartForkError
    from smart_fork.finding.index_refresh import Engine
    from smart_fork.finding.request import FindRequest
    from smart_fork.finding.session_hints import HookEvent
    from smart_fork.finding.session_library import Library

    hook = HookEvent("claude", "asks", str(place.folder), event.text[:PROMPT_CHARACTERS], event.tool, event.given or {})
    if event.kind == EDIT:
        hook = _committed(place, event, hook)
    with Library.open(str(place.folder), Engine(ours.embedder)) as library:
        try:
            if event.kind not in (ERROR, EDIT):
                found = library.find(FindRequest(event.text, agent_type="all"))
                if any(hit.score >= LIKELY for hit in getattr(found, "results", ())):
                    yield "find"
                if library.recall(hook):
                    yield "recall"
            elif library.before_edit(hook) if event.kind == EDIT else library.after_failure(hook):
                yield "hint"
        except SmartForkError as error:  # a hook says nothing then
            print(f"harm: {place.name}, {event.kind}: {error}", file=sys.stderr)


def _committed(place: Place, event: Event, hook: Any) -> Any:
    """Commit a file with just the lines that are edited, and return the edit of this file."""
    file = place.folder / event.text.partition("\n")[0]
    if not file.resolve().is_relative_to(place.folder):
        return hook
    if file.parent.exists() or not any(above.is_file() for above in file.parents):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(event.old, encoding="utf-8", errors="replace")
    names = {f"GIT_{who}_{what}": "person" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for words in (("add", "--force", "--", str(file)), ("commit", "--quiet", "--message", "work")):
        subprocess.run(
            ["git", "-C", str(place.folder), *words], env=os.environ | names, capture_output=True, check=False
        )
    given = json.loads(json.dumps(event.given).replace(HERE, str(place.folder)))
    return replace(hook, prompt="", given=given)


def _of_clone(stage: Stage) -> Place:
    stage.end()
    with at_home(stage.home, stage.state):
        events = _happened([stage.clone], stage.source.name)[0][stage.clone]
    return Place(stage.source.name, stage.clone, stage.home, stage.state, events, len(stage.known))


def _of_collection(corpus: Path, folder: Path) -> Iterator[Place]:
    """Yield a place for each project, the largest first. Logs of the small ones are removed: nobody asks there."""
    shutil.rmtree(folder / "home", ignore_errors=True)
    subprocess.run([sys.executable, str(corpus / "lay_out.py"), str(folder)], check=True, stdout=sys.stderr)
    home, state, projects = folder / "home", folder / "state", sorted((folder / "repos").iterdir())
    with at_home(home, state):
        events, logs = _happened(projects, "other projects")
    for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        query = json.loads(line)
        events[Path(query["project"])].append(Event(LABELLED, query["query"]))
    for number, project in enumerate(sorted(projects, key=lambda one: (-len(logs[one]), one)), 1):
        for log in logs[project] if number > PLACES else ():
            log.unlink()
        yield Place(f"project {number}", project, home, state, events[project], len(logs[project]))


def _happened(projects: Sequence[Path], whose: str) -> tuple[dict[Path, list[Event]], dict[Path, list[Path]]]:
    """Return the first prompts, failed commands and edits of the sessions of projects, and their logs."""
    from indexer.transcripts.commands import WorkCommands
    from indexer.transcripts.line_hashes import error_signatures

    events, logs = defaultdict[Path, list[Event]](list), defaultdict[Path, list[Path]](list)
    for session, ran in ran_calls():
        project = next((one for one in projects if Path(session.cwd).is_relative_to(one)), None)
        if project is None:
            continue
        logs[project].append(Path(session.source_path))
        if session.origin != "person":
            continue
        events[project] += [Event(FIRST.format(whose), turn.text) for turn in session.turns if turn.prompt][:1]
        for one in ran:
            if one.failed and WorkCommands.of(one.command) and error_signatures(one.output):
                given = {"command": one.command, "output": one.output[-ERROR_CHARACTERS:]}
                events[project].append(Event(ERROR, one.output, given=given))
            events[project] += _edit(one, project)
    return events, logs


def _edit(call: Ran, project: Path) -> Iterator[Event]:
    """Yield the edit that a call is, if it replaces lines of a file of the project."""
    from indexer.transcripts.actions import edited_by
    from smart_fork.finding.session_hints import HookEvent, _blocks

    given = json.loads(json.dumps(call.used.given).replace(str(project), HERE))
    given = {"input": given} if isinstance(given, str) else given
    name = next(iter(edited_by(call.used.name, given)), "").removeprefix(f"{HERE}/")
    edit = HookEvent("claude", "asks", HERE, tool=call.used.name, given=given)
    if name and not name.startswith("/") and (block := next(_blocks(edit), None)) and block.text.strip():
        yield Event(EDIT, f"{name}\n{block.text}", call.used.name, given, block.text)
