"""Withdrawn records are removed from copies on this machine, and from titles and notes about them, and nothing else
is.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest

from indexer.session_export import export_path
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import NewSession
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.portable_records import HomePlace, TargetSession, Utterance
from smart_fork.sharing import log_register, withdrawal
from smart_fork.sharing.local_logs import ProjectLogs
from smart_fork.workers.registry import Registry
from tests.smart_fork.session_family import branch

SESSION = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
KEPT, WITHDRAWN = ("add retry", "It retries."), ("the key is quokka7731", "wombat7731 is the other.")


agents = pytest.mark.parametrize("agent", ["claude", "gemini"])


def copied(home: Path, agent: str, texts: tuple[str, ...] = (*KEPT, *WITHDRAWN)) -> tuple[Path, list[bytes]]:
    """A log that was written from a server, and its shared records."""
    root = home / "shop"
    root.mkdir()
    said = [Utterance(not number % 2, text, f"2026-11-23T10:0{number}:00.000Z") for number, text in enumerate(texts)]
    log = AGENTS.copier_of(agent).place(Path("log"), NewSession(SESSION, root, datetime(2026, 11, 23, tzinfo=UTC)))
    log.parent.mkdir(parents=True)
    (log.parents[1] / ".project_root").write_text(str(root))
    became = AGENTS.converter_of(agent).log_of(said, TargetSession(SESSION, HomePlace(str(root), str(home))))
    log.write_text("".join(json.dumps(record) + "\n" for record in became))
    return log, list(ProjectLogs(root).records(READERS[agent].read(log).session).records)


def withdraw(
    agent: str, log: Path, records: list[bytes], texts: tuple[str, ...] = WITHDRAWN
) -> withdrawal.AppliedWithdrawals:
    log_register.store_received(
        log_register.ReceivedLog(log, agent, Path.home() / "shop", "", "example.org/acme/shop", ()),
        records,
        others=False,
    )
    log_register.find(log, agent).store_pending({
        sha256(record).hexdigest(): None for record in records if any(text.encode() in record for text in texts)
    })  # fmt: skip
    return withdrawal.apply_pending()


def exported(agent: str) -> Path:
    export = export_path(agent, SESSION)
    export.parent.mkdir(parents=True)
    export.write_text(f"{KEPT} {WITHDRAWN}")
    return export


def said_in(agent: str, log: Path) -> list[str]:
    return [turn.text for _, turn in READERS[agent].read(log).session.messages]


@agents
def test_what_is_withdrawn_to_the_last_word_is_in_no_export_and_in_nothing_that_workers_were_told(home, agent):
    log, records = copied(home, agent)
    export = exported(agent)
    with Registry() as registry:
        told = [
            registry.add(agent, source_session_id=SESSION, place="process", cwd=home / "shop", prompt=prompt).id
            for prompt in ("what opens quokka7731?", "draw the map")
        ]

    assert (log,) == withdraw(agent, log, records).changed

    assert (list(KEPT), False) == (said_in(agent, log), export.exists())
    with Registry() as registry:
        assert ["[cut]", "draw the map"] == [registry.get(one).prompt for one in told]


@agents
def test_a_branch_of_a_copy_keeps_what_was_not_withdrawn(home, agent):
    log, records = copied(home, agent)
    made = Path(branch(SESSION)["path"])

    withdraw(agent, log, records)

    assert list(KEPT) == said_in(agent, made)
    assert SESSION == READERS[agent].read(made).session.parent_id


@agents
def test_what_is_withdrawn_that_a_copy_has_no_more_leaves_the_copy_as_it_is(home, agent):
    log, records = copied(home, agent)
    withdraw(agent, log, records)
    before = log.read_bytes()

    assert () == withdraw(agent, log, records).removed

    assert before == log.read_bytes()


def test_a_prompt_that_is_withdrawn_goes_from_what_gemini_cli_keeps_beside_the_copy_too(home):
    log, records = copied(home, "gemini", (*WITHDRAWN, *KEPT))
    typed = log.parents[1] / "logs.json"
    typed.write_text(json.dumps([{"sessionId": SESSION, "message": text} for text in (WITHDRAWN[0], KEPT[0])]))

    withdraw("gemini", log, records)

    assert [KEPT[0]] == [one["message"] for one in json.loads(typed.read_text())]


@agents
def test_a_copy_of_which_all_is_withdrawn_goes_with_its_export(home, agent):
    log, records = copied(home, agent)
    export = exported(agent)

    assert (log,) == withdraw(agent, log, records, (*KEPT, *WITHDRAWN)).removed

    assert [False, False] == [one.exists() for one in (log, export)]
