"""Random families of sessions on two machines, and commands that remove a text from them, killed at random moments.

After the next run, no file has the text any more, or `verify` names the files that have it. There are 100 families, of
which a few always run.
"""

from __future__ import annotations

import json
import random
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from indexer.safe_files import state_home
from smart_fork import provenance
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import SmartForkError
from smart_fork.excise.lookup import load_with_tool
from tests.smart_fork.commands import command_model  # noqa: F401 - a fixture
from tests.smart_fork.excise.test_families import SPOKEN, TOKEN, Family, Member, number_ids, play, unpacked
from tests.smart_fork.session_family import branch
from tests.smart_fork.team.server.killed_commands import killed
from tests.smart_fork.team.server.machines import TeamMachine
from tests.smart_fork.team.server.test_rewrite import dump
from tests.smart_fork.team.server.test_withdrawal import writing
from tests.smart_fork.world import Did
from tests.support.cases import thorough_except_first

pytestmark = [pytest.mark.usefixtures("command_model", "no_waiting"), pytest.mark.slow]
#: The agents that begin families, in turn.
FIRST = ("claude", "codex", "qwen")
FAMILIES = 100
#: A command reaches 2 to the power of about so many moments at which it may be killed.
MOMENTS = 5.5


@dataclass
class Relatives(Family):
    """The part of a family on one machine, and the texts that were removed there."""

    machine: TeamMachine | None = None
    cut: list[Member] = field(default_factory=list)

    def begin(self, agent: str) -> None:
        steps: list[str | Did] = ["> add retry to the uploader", "retries are there"]
        steps += self.chance.choice((
            [f"> we meet in {self.secret}", "it is noted"],
            ["> where do we meet?", f"in {self.secret}"],
            ["> log in", Did("exec_command", {"cmd": f"login {self.secret}"}), "logged in"],
            ["> log in", Did("exec_command", {"cmd": "cat places"}, f"we meet in {self.secret}"), "read"],
        ))  # fmt: skip
        if self.chance.random() < 0.3:
            steps = [f"> we meet in {self.secret} today", "it is noted", *(steps if self.chance.random() < 0.5 else ())]
        steps += ["> and the docs", "they are there"] if self.chance.random() < 0.8 else []
        first = self.world.worked("codex" if agent == "codex" else "claude", self.shop, *steps)
        made = first
        if agent not in ("claude", "codex"):
            made = branch(first, as_agent=agent)["session_id"]
            self.forget(first)
            provenance.forget_handover(made)
        self.members.append(Member(agent, made))
        if agent == "claude" and self.chance.random() < 0.7:
            self.titled()

    def step(self) -> None:
        steps = (
            self.branched, self.shortened, self.elsewhere, self.forked, self.forked_upon, self.merged, self.lost, self.copied,
            *[self.forked_natively] * 3, *[self.handed_over] * 4, self.titled, self.gone_on,
        )  # fmt: skip
        self.chance.choice(steps)()

    def titled(self) -> None:
        """Give a session a title with the secret, as its agent does."""
        member = self.one("claude")
        title = {"type": "ai-title", "aiTitle": f"Meeting in {self.secret}", "sessionId": member.session_id}
        with member.logs[0].open("a") as file:
            file.write(json.dumps(title) + "\n")

    def titles(self) -> list[tuple[Member, list[str]]]:
        """Return the sessions with the secret in their title, and the lines that say so."""
        found = []
        for member in self.members:
            lines = (
                load_with_tool(member.agent, member.logs[0]).turns if member.logs and member.agent == "claude" else ()
            )
            if ids := [one.id for one in lines if not one.key and self.secret.encode() in one.raw]:
                found.append((member, ids))
        return found

    def snapshots(self) -> list[Path]:
        """Return the snapshots that contain the secret."""
        found = (state_home() / "snapshots").rglob("*.gz")
        return [path for path in found if self.secret.encode() in unpacked(path)]

    def do(self, *words: str) -> dict[str, Any]:
        """Run a command here. In half of the cases it is killed at some moment, then run again."""
        if self.chance.random() < 0.5:
            killed(self.machine, round(2 ** self.chance.uniform(0, MOMENTS)), *words)
            self.machine.do("index", "run", "--no-vectors")
        said = self.machine.do(*words, "--json")
        return json.loads(said.out) | {"code": said.code}

    def cut_somewhere(self) -> None:
        choices = [(one, ("--secrets",) if self.secret == TOKEN else (turns,)) for one, turns in self.can_be_cut()]
        choices += [(one, [word for line in ids for word in ("--id", line)]) for one, ids in self.titles()]
        if not choices:
            return
        target, words = choices[0] if self.chance.random() < 0.5 else self.chance.choice(choices)
        others = self.not_below(target)
        done = self.do("excise", "cut", *words, target.session_id, "--force", "--yes")
        assert others == self.not_below(target)
        assert done["code"] in (0, 2)  # a killed one was made up for, and nothing is left of these turns
        self.cut.append(target)

    def forget_some(self) -> None:
        if not (there := [one for one in self.members if one.logs]):
            return
        target = self.chance.choice(there)
        self.machine.do("index", "run", "--no-vectors")
        done = self.do("forget", target.session_id, "--yes")
        named = resolved(one["path"] for one in done.get("left", ()))
        below = [one for one in self.members if one is not target and one.is_below(target)]
        assert {str(path.resolve()) for one in below for path in one.logs} <= named
        assert done["erased"]
        self.cut = [one for one in self.cut if one is not target]  # nobody knows what was cut out of it any more

    def check(self) -> None:
        """Check that `verify` names each file with the secret of a cut session."""
        for target in self.cut:
            if not target.logs or self.secret.encode() in target.content[target.logs[0]]:
                continue  # it is gone, or still says it where nothing was cut
            reference = str(target.logs[0]) if target.logs[0].is_file() else target.session_id
            said = self.machine.do("excise", "verify", reference, "--tool", target.agent, "--json")
            found = json.loads(said.out)
            named = resolved(one["path"] for one in found["copies"])
            assert self.files(target) <= named
            assert (said.code, found["ok"]) == ((0, True) if found["ok"] else (1, False))
            assert found["ok"] is not any(
                found[one] for one in ("copies", "remains", "words_found", "dangling", "broken_links", "unknown")
            )
            assert not self.ours() or self.holders() or resolved(map(str, self.ours())) <= named

    def is_empty(self) -> None:
        assert ([], [], []) == (self.holders(), self.ours(), self.snapshots())


def resolved(paths) -> set[str]:
    return {str(Path(one).resolve()) for one in paths}


def relatives(monkeypatch, machine: TeamMachine, chance: random.Random, secret: str) -> Relatives:
    play(monkeypatch, machine.home)
    return Relatives(machine.world, machine.repository, chance, secret, machine=machine)


def grow(some: Relatives, most: int) -> None:
    for _ in range(some.chance.randint(1, most)):
        with suppress(SmartForkError):
            some.step()


def withdraw(hers: Relatives, shared: str) -> None:
    """Withdraw the secret from the team."""
    if hers.chance.random() < 0.25:
        hers.do("team", "delete", shared, "--everywhere", "--yes")
        return
    messages = hers.machine.team("show", shared)["messages"]
    found = [str(n) for n, one in enumerate(messages, 1) if hers.secret in one["text"] or one["text"] == "log in"]
    hers.do("team", "excise", "cut", ",".join(found), shared, "--yes", "--force")


@pytest.mark.parametrize("seed", thorough_except_first(range(FAMILIES), len(FIRST)))
def test_what_is_taken_out_of_a_family_of_two_is_nowhere_or_who_has_it_is_named(alice, bob, team, monkeypatch, seed):
    number_ids(monkeypatch, seed)
    chance = random.Random(seed)  # noqa: S311 - not a secret
    hers, his = (relatives(monkeypatch, one, chance, TOKEN if seed % 5 == 4 else SPOKEN) for one in (alice, bob))
    if seed % 4 == 3:
        for machine in (alice, bob):
            machine.env["SMART_FORK_KEEP_TRANSCRIPTS"] = "true"
    agent = FIRST[seed % len(FIRST)]
    with alice.here():
        hers.begin(agent)
        shared = alice.team("push", hers.members[0].session_id, "--public", "--yes")["session_id"]
        grow(hers, 6)
    fork = Path(bob.team("fork", shared)["files"][0])
    with bob.here():
        his.members.append(Member(agent, READERS[agent].id_of(fork)))
        grow(his, 6)
    for machine in (alice, bob):
        if chance.random() < 0.7:
            machine.do("index", "run", "--no-vectors")

    verbs = [(hers, hers.cut_somewhere)] * 3 + [
        (hers, hers.forget_some),
        (his, his.cut_somewhere),
        (his, his.forget_some),
    ]
    for whose, verb in chance.sample(verbs, chance.randint(1, 4)):
        with whose.machine.here():
            verb()
            whose.check()

    withdraw(hers, shared)
    busy = [one for one in his.members if one.logs and one.agent not in ("opencode", "copilot", "gemini")]
    with bob.here(), writing(chance.choice(busy).logs[0]) if busy and chance.random() < 0.3 else nullcontext():
        if chance.random() < 0.5:
            killed(bob, round(2 ** chance.uniform(0, MOMENTS)), "team", "sync")
        put_off = bob.team("sync")["put_off"]
        holders = resolved(map(str, his.holders()))
        assert not holders or put_off
        assert holders <= resolved(put_off)
        for path in put_off:
            assert 1 == bob.do("excise", "verify", path).code
    put_off = bob.team("sync")["put_off"]
    bob.do("index", "run", "--no-vectors")
    assert {} == put_off
    assert hers.secret not in dump(team)
    with bob.here():
        his.is_empty()
    with alice.here():
        alice.do("index", "run", "--no-vectors")
        hers.check()
