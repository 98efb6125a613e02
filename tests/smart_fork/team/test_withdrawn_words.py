"""What is withdrawn from a copy is also taken out of what was said of it on this machine."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest

from smart_fork.agents import READERS
from smart_fork.agents.copier import NewSession
from smart_fork.agents.facets import copier, forms_of
from smart_fork.agents.forms import Becomes, HomePlace, Utterance
from smart_fork.registry.workers import Registry
from smart_fork.team import changes, pulled
from smart_fork.team.local import local

SESSION = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
KEPT, WITHDRAWN = ("add retry", "It retries."), ("the key is quokka7731", "wombat7731 is the other.")


@pytest.mark.parametrize("agent", ["claude", "gemini"])
def test_the_word_at_the_end_of_a_withdrawn_message_is_taken_out_of_what_workers_were_told(home, agent):
    root = home / "shop"
    root.mkdir()
    said = [
        Utterance(not number % 2, text, f"2026-11-23T10:0{number}:00.000Z")
        for number, text in enumerate((*KEPT, *WITHDRAWN))
    ]
    log = copier(agent).place(Path("log"), NewSession(SESSION, root, datetime(2026, 11, 23, tzinfo=UTC)))
    log.parent.mkdir(parents=True)
    (log.parents[1] / ".project_root").write_text(str(root))
    became = forms_of(agent).log_of(said, Becomes(SESSION, HomePlace(str(root), str(home))))
    log.write_text("".join(json.dumps(record) + "\n" for record in became))
    records = local(READERS[agent].read(log).session, root).records
    copy = pulled.Written(log, agent, root, "", "example.org/acme/shop", ())
    pulled.remember(copy, records, others=False)
    with Registry() as registry:
        told = [
            registry.add(agent, source_session_id=SESSION, place="process", cwd=root, prompt=prompt).id
            for prompt in ("what opens quokka7731?", "draw the map")
        ]
    pulled.find(log, agent).owe({
        sha256(record).hexdigest(): None for record in records if any(text.encode() in record for text in WITHDRAWN)
    })  # fmt: skip

    assert (log,) == changes.settle().changed

    assert list(KEPT) == [turn.text for _, turn in READERS[agent].read(log).session.messages]
    with Registry() as registry:
        assert ["[cut]", "draw the map"] == [registry.get(one).prompt for one in told]
