"""The texts of a record that a cut searches and changes."""

from __future__ import annotations

from smart_fork.agents.excision.transcript import searchable_texts
from smart_fork.excise.cut_plan import map_texts
from tests.support.cases import parametrize_subtests


@parametrize_subtests("name", ["hash", "snapshot", "value", "output"])
def test_what_a_tool_gives_back_is_read_whatever_its_fields_are_called(name):
    record = {"uuid": "u1", "result": {name: "said"}}

    assert ["said"] == list(searchable_texts(record))
    assert {"uuid": "u1", "result": {name: "SAID"}} == map_texts(record, str.upper)
