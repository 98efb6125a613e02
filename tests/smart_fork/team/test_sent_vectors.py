"""The vectors in a push."""

from __future__ import annotations

import numpy as np

from smart_fork.sharing.local_logs import ProjectLogs
from smart_fork.sharing.outgoing import prepare
from smart_fork.team import push
from smart_fork.team.searchable_session import passage_hash, searchable_form
from tests.smart_fork.world import WordsModel


def test_the_index_gives_the_vector_of_each_passage_under_its_hash(world, shop, monkeypatch):
    log = world.log_of(world.claude(shop, "add retry", "done", "draw the logo", "drawn"))
    world.find("retry", shop)
    session, records = ProjectLogs(shop).read(log, "claude"), prepare(log, "claude", shop).records
    monkeypatch.setattr(push, "LightEmbedder", WordsModel)

    sent = push.local_vectors(session, records)

    passages = [one.text for one in searchable_form(records, "claude", "", "").document.chunks]
    expected = {
        passage_hash(text).hex(): vector for text, vector in zip(passages, WordsModel().embed(passages), strict=True)
    }
    assert 2 == len(passages) == len(sent.vectors)
    for one in sent.vectors:
        assert np.allclose(expected[one.chunk], np.frombuffer(one.e, np.float16), atol=0.01)
