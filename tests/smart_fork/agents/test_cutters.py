"""The agents with transcripts that can be cut, and the error for a transcript of an unknown agent."""

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.excision.transcript import Transcript
from smart_fork.errors import Usage
from tests.support.cases import parametrize_subtests


def test_each_cutter_is_found_by_its_name():
    assert list(AGENTS.cutters()) == [AGENTS.cutter_of(tool) for tool in AGENTS.cuttable()]


@parametrize_subtests("tool", ["", "Claude", Transcript.UNKNOWN, "auto", "rollout"])
def test_an_unknown_tool_is_an_error_and_never_another_one(tool):
    with pytest.raises(Usage, match="Unknown tool") as error:
        AGENTS.cutter_of(tool)

    assert f"Known: auto, {', '.join(AGENTS.cuttable())}." == error.value.hint
    assert AGENTS.find_cutter(tool) is None
