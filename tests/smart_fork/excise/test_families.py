"""Random families of sessions, and one secret that is cut out of one session, killed at a random moment.

After the next run, only snapshots and sessions that do not descend from the cut one have it, or `verify` names the
file that has it. ``SMART_FORK_DRILLS=all`` makes 300 families, else a few.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import shutil
import signal
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
import zstandard

from indexer.refresh import complete
from indexer.safe_files import index_db, state_home
from smart_fork import provenance
from smart_fork.agents import AGENTS
from smart_fork.agents.claude.log_files import folder_of
from smart_fork.agents.excision.transcript import Transcript
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.opencode.log_files import database as opencode_database
from smart_fork.agents.request_fields import Options
from smart_fork.errors import SmartForkError
from smart_fork.excise import Request, check, cut, erasure
from smart_fork.excise.erasure import forget
from smart_fork.excise.lookup import load_numbered
from smart_fork.finding.index_access import opened
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import Budget, ForkRequest
from smart_fork.workers.registry import Registry
from tests.smart_fork.agents.opencode import database as opencode
from tests.smart_fork.commands import command_model  # noqa: F401 - a fixture
from tests.smart_fork.forks import HELP, FakeProcesses, codex_path, codex_records, write_log
from tests.smart_fork.session_family import branch
from tests.smart_fork.world import Did, WordsModel, World, add_program
from tests.support.cases import thorough_except_first
from tests.support.exhaustive import full_or_sample

pytestmark = pytest.mark.usefixtures("command_model", "no_waiting")
FAMILIES = full_or_sample(300, 6)
#: One that nothing masks, and one that `cut --secrets` finds.
SPOKEN, TOKEN = "hunter77swordfish", f"ghp_{'a1B2' * 9}"
#: What is left of a session without a log is named with the command that takes it away.
FORGET = re.compile(r"smart-fork forget ([\w-]+)")
CUTTABLE = ("claude", "codex", "qwen", "opencode", "copilot", "gemini")
TOLD = CUTTABLE
#: The agents that begin families, in turn: those that can be cut more often.
FIRST = ("claude", "codex", "qwen", "gemini", "copilot", "opencode", "claude", "codex", "qwen")
#: What an agent keeps of a session apart from its log.
KEPT = {
    "claude": ("file-history/ID/1a2b@v1", "paste-cache/1a2b.txt", "plans/a.md", "todos/ID-agent-ID.json", "history.jsonl"),
    "codex": ("history.jsonl", "shell_snapshots/ID.sh", "log/codex-tui.log"),
    "qwen": ("todos/ID.json", "debug/ID.txt"),
    "gemini": ("tmp/shop/tool-outputs/session-ID/1.txt",),
    "copilot": ("session-state/ID/files/plan.md",),
}  # fmt: skip
#: A cut opens, renames and removes 2 to the power of about so many files.
DEPTH, MOMENTS = 5, 8.5


@dataclass
class Member:
    """A session, its ancestors, and its distance from the first one."""

    agent: str
    session_id: str
    above: tuple[Member, ...] = ()
    depth: int = 0

    @property
    def logs(self) -> tuple[Path, ...]:
        return READERS[self.agent].locate(self.session_id)

    @property
    def content(self) -> dict[Path, bytes]:
        """Return the logs of the session. A session in a database has one that is no file."""
        return {path: content_of(self.agent, path) for path in self.logs}

    def is_below(self, other: Member) -> bool:
        return self is other or any(one.is_below(other) for one in self.above)


@dataclass
class Family:
    """The history of a family. Each step is a command of smart-fork, or an action of an agent."""

    world: World
    shop: Path
    chance: random.Random
    secret: str = SPOKEN
    members: list[Member] = field(default_factory=list)
    kept: dict[Path, Member] = field(default_factory=dict)

    def begin(self, agent: str) -> None:
        steps: list[str | Did] = ["> add retry to the uploader", "retries are there"]
        steps += self.chance.choice((
            [f"> the password is {self.secret}", "it is noted"],
            ["> which password?", f"it is {self.secret}"],
            ["> log in", Did("exec_command", {"cmd": f"login {self.secret}"}), "logged in"],
            ["> read it", Did("exec_command", {"cmd": "cat secrets"}, f"password: {self.secret}"), "read"],
        ))  # fmt: skip
        steps += ["> and the docs", "they are there", "> go on", "done"]
        if self.chance.random() < 0.2:
            steps = [f"> my password is {self.secret}", "it is noted", *steps]
        if agent in ("claude", "codex"):
            self.members.append(Member(agent, self.world.worked(agent, self.shop, *steps)))
            return
        first = self.world.worked("claude", self.shop, *steps)
        made = branch(first, as_agent=agent)["session_id"]
        self.members.append(Member(agent, made))
        self.forget(first)  # as if it had been begun with that agent
        provenance.forget_handover(made)
        if agent not in CUTTABLE:
            self.handed_over(*CUTTABLE)

    def forget(self, session_id: str) -> None:
        for path in self.world.home.glob(f".claude/**/{session_id}*"):
            path.unlink()

    def step(self) -> None:
        steps = (
            self.branched, self.branched, self.shortened, self.forked_upon, self.elsewhere, self.within, self.forked, self.forked_natively,
            self.merged, *[self.handed_over] * 3, self.gone_on, self.said_again, self.lost, self.copied, self.with_sub_agent, self.kept_apart,
        )  # fmt: skip
        self.chance.choice(steps)()

    def one(self, *agents: str) -> Member:
        found = [one for one in self.members if one.depth < DEPTH and one.logs and (not agents or one.agent in agents)]
        if not found:
            raise SmartForkError("there is none")
        return self.chance.choice(found[-3:] if self.chance.random() < 0.7 else found)

    def add(self, agent: str, session_id: str, *above: Member) -> Member:
        self.members.append(Member(agent, session_id, above, 1 + max(one.depth for one in above)))
        return self.members[-1]

    def branched(self, **how) -> None:
        parent = self.one()
        made = branch(parent.session_id, **how)
        self.add(made["agent_type"], made["session_id"], parent)

    def shortened(self) -> None:
        self.branched(at=self.chance.randrange(4))

    def elsewhere(self) -> None:
        self.branched(cwd=str(self.world.repository(f"shop{len(self.members)}")))

    def within(self) -> None:
        self.branched(budget=Budget(self.chance.choice((40, 80, 200))), intent="")

    def handed_over(self, *agents: str) -> None:
        parent = self.one()
        agent = self.chance.choice([one for one in agents or TOLD if one != parent.agent])
        made = branch(parent.session_id, as_agent=agent)
        self.add(agent, made["session_id"], parent)

    def merged(self) -> None:
        parents = self.one(*CUTTABLE), self.one(*CUTTABLE)
        forked = fork_session(
            ForkRequest(
                parents[0].session_id,
                Options("go on", place="process"),
                merge=tuple(one.session_id for one in parents[1:]),
                budget=Budget(600),
                intent="",
            )
        )
        self.ended(forked.worker_id)
        kept = {one.source_session_id for one in provenance.handovers() if one.session_id == forked.new_session_id}
        others = (one for one in parents[1:] if one.session_id in kept)
        self.add(forked.agent_type, forked.new_session_id, parents[0], *others)

    def forked(self) -> None:
        """Fork a session with smart-fork; its agent writes the log."""
        parent = self.one("claude")
        forked = fork_session(ForkRequest(parent.session_id, Options("go on", place="process")))
        self.ended(forked.worker_id)
        self.written(parent, forked.new_session_id)

    def forked_upon(self) -> None:
        """Fork a session in Codex; its file continues its parent's."""
        parent = self.one("codex")
        path = parent.logs[0]
        last = json.loads(path.read_text().rstrip().splitlines()[-1])
        if "ordinal" not in last:
            raise SmartForkError("its records have no numbers")
        end = last["ordinal"] + 1
        base = {"thread_id": parent.session_id, "end_ordinal_exclusive": end, "end_byte_offset": path.stat().st_size}
        session_id = str(uuid.UUID(int=self.chance.getrandbits(128)))
        records = codex_records(
            session_id, self.shop, ["in blue"], end, forked_from_id=parent.session_id, history_base=base
        )
        write_log(codex_path(self.world.home, session_id), records)
        self.add("codex", session_id, parent)

    def forked_natively(self) -> None:
        """Fork a session in its agent, without smart-fork."""
        self.written(self.one("claude"), "")

    def written(self, parent: Member, session_id: str) -> None:
        source = parent.logs[0]
        old = [json.loads(line) for line in source.read_text().splitlines() if '"uuid"' in line]
        now = {"timestamp": moment()}
        own = self.world.claude_records("", self.shop, "in blue", "blue", **now)
        own[0]["parentUuid"] = old[-1]["uuid"]
        head = (
            [{"type": "mode"}, {"type": "file-history-snapshot", "snapshot": now}]
            if self.chance.random() < 0.5 or "forkedFrom" in old[0]
            else []
        )
        made = self.world.claude(self.shop, "x", session_id=session_id)
        records = [one | {"sessionId": made} for one in (*head, *old, *own)]
        self.world.write_claude(made, self.shop, records)
        self.add("claude", made, parent)

    @staticmethod
    def ended(worker_id: str) -> None:
        with Registry() as registry:
            registry.set_state(worker_id, "ended")

    def gone_on(self, *said: str) -> None:
        member = self.one("claude")
        path = member.logs[0]
        last = [one for one in map(json.loads, path.read_text().splitlines()) if "uuid" in one][-1]
        more = self.world.claude_records(
            member.session_id, last["cwd"], *(said or ("and more", "there it is")), timestamp=moment()
        )
        more[0]["parentUuid"] = last["uuid"]
        with path.open("a") as file:
            file.writelines(json.dumps(one) + "\n" for one in more)

    def said_again(self) -> None:
        if self.chance.random() < 0.5:
            self.gone_on("which was it?", f"it was {self.secret}")

    def lost(self) -> None:
        if len(self.members) > 2 and self.chance.random() < 0.5:
            member = self.one(*CUTTABLE)
            log = member.logs[0]
            AGENTS.files_of(member.agent).remove(log)
            shutil.rmtree(log.with_suffix(""), ignore_errors=True)

    def copied(self) -> None:
        """Copy a session for a fork in another directory."""
        source = self.one("claude").logs[0]
        copy = folder_of(self.world.home / f"copy{len(self.members)}") / source.name
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)

    def with_sub_agent(self) -> None:
        log = self.one("claude").logs[0].with_suffix("") / "subagents/agent-1a.jsonl"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(json.dumps({"uuid": "s1", "message": {"content": f"I found {self.secret}"}}) + "\n")

    def kept_apart(self) -> None:
        member = self.one(*KEPT)
        name = self.chance.choice(KEPT[member.agent]).replace("ID", member.session_id)
        path = READERS[member.agent].home() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"once more: {self.secret}\n")
        self.kept[path.resolve()] = member

    def can_be_cut(self) -> Iterator[tuple[Member, str]]:
        """Return the sessions that have the secret in own turns, with the numbers of the turns."""
        for member in self.members:
            if member.agent in CUTTABLE and member.logs:
                session = load_numbered(member.agent, member.logs[0])
                if turns := numbers(session, self.secret):
                    yield member, turns

    def holders(self) -> list[Path]:
        """Return the agents' own files that have the secret."""
        folders = [one for one in self.world.home.glob(".*") if one.is_dir() and one != state_home()]
        files = (
            path for folder in folders for path in folder.rglob("*") if path.is_file() and "opencode" not in path.name
        )
        found = [path.resolve() for path in files if self.secret.encode() in path.read_bytes()]
        logs = (pair for one in self.members if one.agent == "opencode" for pair in one.content.items())
        return sorted([*found, *(path.resolve() for path, said in logs if self.secret.encode() in said)])

    def ours(self) -> list[Path]:
        """Return smart-fork's own files with a part of it, except snapshots. A word index keeps no beginnings and
        ends.
        """
        part = self.secret[6:-4].lower().encode()
        files = (path for path in state_home().rglob("*") if path.is_file() and "snapshots" not in path.parts)
        return [path for path in files if part in unpacked(path).lower()]

    def not_below(self, other: Member) -> dict[Path, bytes]:
        """Return the logs that a cut of a session must not change."""
        return {path: said for one in self.members if not one.is_below(other) for path, said in one.content.items()}

    def files(self, below: Member) -> set[str]:
        """Return the agents' own files with the secret, of the session's descendants."""
        logs = {path.resolve(): one for one in self.members for path in one.logs}
        logs |= {beside(path): one for path, one in logs.items()}
        logs |= self.kept
        found = set()
        for path in self.holders():
            member = next((logs[one] for one in (path, *path.parents) if one in logs), None)
            if member is None or member.is_below(below):
                found.add(str(path))
        return found


def beside(log: Path) -> Path:
    """Return the folder of the files next to a log."""
    return log.parent if log.name == "events.jsonl" else log.with_suffix("")


def content_of(agent: str, path: Path) -> bytes:
    with READERS[agent].as_file(path) as file:
        return file.read_bytes()


def takes_sessions(argv: tuple[str, ...]) -> tuple[int, str]:
    """Store a document as OpenCode's program does."""
    if argv[1] != "import":
        return 0, HELP["opencode"]
    document = json.loads(Path(argv[2]).read_text())
    opencode.take(opencode_database(), document)
    place = "UPDATE session SET directory = ?, title = ? WHERE id = ?"
    info = document["info"]
    opencode.change(opencode_database(), place, str(Path.home() / "shop"), info["title"], info["id"])
    return 0, ""


def number_ids(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Make equal ids for equal seeds, and different ids in each process."""
    chances: dict[int, random.Random] = {}

    def some_bits(count: int) -> int:
        pid = os.getpid()
        return chances.setdefault(pid, random.Random(f"{seed} {len(chances)}")).getrandbits(count)  # noqa: S311

    monkeypatch.setattr("uuid.uuid4", lambda: uuid.UUID(int=some_bits(128), version=4))
    monkeypatch.setattr("secrets.token_hex", lambda size: f"{some_bits(8 * size):0{2 * size}x}")


def play(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Let the agents' programs answer, and OpenCode keep its sessions."""
    monkeypatch.setattr("smart_fork.system.processes.Processes", lambda: FakeProcesses({"opencode": takes_sessions}))
    for name in ("opencode", "qwen", "gemini", "copilot"):
        add_program(home / "bin", name, HELP[name])
    opencode.make(home / ".local/share/opencode/opencode.db")


def numbers(session: Transcript, secret: str) -> str:
    pairs = zip(session.numbers, session.turns, strict=True)
    found = [n for n, turn in pairs if n is not None and not turn.inherited and secret.encode() in turn.raw]
    return ",".join(map(str, found))


def unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    return zstandard.ZstdDecompressor().decompressobj().decompress(data) if path.suffix == ".zst" else data


def moment() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def indexed() -> None:
    with opened() as store:
        complete(store, READERS, WordsModel(), patience=5)


def killed_at(number: int, request: Request, home: Path) -> None:
    """Make a cut in a process that is killed after it has opened, renamed or removed this number of files."""
    if child := os.fork():
        os.waitpid(child, 0)
        return
    seen = 0

    def happens(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event in ("open", "os.rename", "os.remove") and str(arguments[0]).startswith(str(home)):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.addaudithook(happens)
        cut(request)
    finally:
        os._exit(0)


@pytest.mark.parametrize(
    "seed", thorough_except_first([*range(FAMILIES), 497])
)  # 497: what a lost parent of another agent leaves
@pytest.mark.slow
def test_what_is_cut_is_nowhere_or_who_has_it_is_named(world, shop, monkeypatch, seed):
    number_ids(monkeypatch, seed)
    play(monkeypatch, world.home)
    if seed % 4 == 3:
        monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "true")
    chance = random.Random(seed)  # noqa: S311 - not a secret
    family = Family(world, shop, chance, TOKEN if seed % 5 == 4 else SPOKEN)
    family.begin(FIRST[seed % len(FIRST)])
    for _ in range(chance.randint(2, 9)):
        with suppress(SmartForkError):
            family.step()
        if seed % 2 and chance.random() < 0.3:
            indexed()
    if not (choices := list(family.can_be_cut())):
        return  # it was lost
    target, turns = choices[0] if chance.random() < 0.7 else chance.choice(choices)
    request = Request(
        target.session_id, "" if family.secret == TOKEN else turns, secrets=family.secret == TOKEN, force=True
    )

    before, others, left = family.holders(), family.not_below(target), None
    if chance.random() < 0.5:
        killed_at(round(2 ** chance.uniform(0, MOMENTS)), request, world.home)
        next_run()
    if str(target.logs[0].resolve()) in family.files(target):
        assert before == family.holders()  # it was killed before anything was cut
        left = {one["path"] for one in cut(request)["left"]}
        next_run()

    found, have = check(target.session_id), family.files(target)
    named = {one["path"] for one in found["copies"]}
    assert have <= found_in(named)
    assert not any("--erase" in one["reason"] for one in found["copies"])  # what can be cut is cut
    assert left is None or have <= found_in(left)
    assert found["ok"] is not any(found[name] for name in ("copies", "remains", "words_found", "dangling"))
    assert others == family.not_below(target)
    for session_id in {lost for one in found["copies"] for lost in FORGET.findall(one["reason"])}:
        forget(session_id)
    assert family.holders() or [] == family.ours()


def found_in(named: set[str]) -> set[str]:
    """Return the files by their paths without links."""
    return {str(Path(one).resolve()) for one in named}


def next_run() -> None:
    erasure.run_pending()
    if index_db().exists():
        indexed()
