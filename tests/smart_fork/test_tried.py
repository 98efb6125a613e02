"""What each agent is tried with: the test with its own program for each verb, and that each of these tests exists."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from smart_fork.agents import AGENTS
from smart_fork.agents.agent import Agent
from tests.support.cases import parametrize_subtests

ROOT = Path(__file__).resolve().parents[2]
BOTH = ("claude", "codex")
#: Each verb, what it takes of an agent, and the test that shows it with the real program, or why there is none.
TRIED: dict[str, tuple[str, dict[str, str]]] = {
    "found": ("found", {
        "claude": "calling: a_script_asks_and_a_fork_works_in_the_background_and_who_has_only_asked_is_no_answer",
        "codex": "calling: a_script_asks_and_a_fork_works_in_the_background_and_who_has_only_asked_is_no_answer",
        "qwen": "qwen: a_session_begins_and_goes_on_without_a_terminal_and_is_found_and_shown_as_it_was_said",
        "opencode": "opencode: a_session_begins_without_a_terminal_is_found_and_shown_and_a_fork_knows_what_was_said",
        "gemini": "gemini: a_session_is_found_gone_on_with_and_forked_at_a_message_into_a_worktree",
        "copilot": "copilot: a_session_is_begun_gone_on_with_found_and_forked_at_a_message_into_a_worktree",
    }),
    "listed, shown": ("found", {
        "claude": "calling: an_agent_lists_and_reads_sessions_and_has_one_forked_at_an_earlier_message_into_a_worktree",
        "codex": "calling: an_agent_lists_and_reads_sessions_and_has_one_forked_at_an_earlier_message_into_a_worktree",
        "qwen": "qwen: a_session_begins_and_goes_on_without_a_terminal_and_is_found_and_shown_as_it_was_said",
        "opencode": "opencode: a_session_begins_and_goes_on_without_a_terminal_and_is_listed_and_shown_as_it_was_said",
        "gemini": "gemini: forks_in_the_same_project_lose_no_session_and_who_asks_is_known_and_not_found",
        "copilot": "copilot: a_fork_within_a_budget_has_what_is_kept_and_who_asks_is_known_and_not_found",
    }),
    "started": ("started", {
        "claude": "starting: a_session_begins_and_goes_on_without_a_terminal",
        "codex": "starting: a_session_begins_and_goes_on_without_a_terminal",
        "qwen": "qwen: a_session_begins_and_goes_on_without_a_terminal_and_is_found_and_shown_as_it_was_said",
        "opencode": "opencode: a_session_begins_and_goes_on_without_a_terminal_and_is_listed_and_shown_as_it_was_said",
        "gemini": "gemini: a_worker_tells_what_it_does_and_hears_what_is_said_to_it",
        "copilot": "copilot: a_session_is_begun_gone_on_with_found_and_forked_at_a_message_into_a_worktree",
    }),
    "resumed": ("started", {
        "claude": "starting: a_session_begins_and_goes_on_without_a_terminal",
        "codex": "starting: a_session_begins_and_goes_on_without_a_terminal",
        "qwen": "qwen: a_cut_session_is_resumed_and_knows_only_what_stayed",
        "opencode": "opencode: a_session_begins_and_goes_on_without_a_terminal_and_is_listed_and_shown_as_it_was_said",
        "gemini": "gemini: a_session_is_found_gone_on_with_and_forked_at_a_message_into_a_worktree",
        "copilot": "copilot: a_session_is_begun_gone_on_with_found_and_forked_at_a_message_into_a_worktree",
    }),
    "forked": ("started", {
        "claude": "forking: a_fork_runs_as_a_process_to_the_end_of_its_answer_and_can_be_forked",
        "codex": "forking: a_fork_runs_as_a_process_to_the_end_of_its_answer_and_can_be_forked",
        "qwen": "qwen: a_fork_knows_what_its_parent_knew",
        "opencode": "opencode: a_session_begins_without_a_terminal_is_found_and_shown_and_a_fork_knows_what_was_said",
        "gemini": "gemini: forks_in_the_same_project_lose_no_session_and_who_asks_is_known_and_not_found",
        "copilot": "copilot: a_session_is_begun_gone_on_with_found_and_forked_at_a_message_into_a_worktree",
    }),
    "forked at a message, branched": ("branched", {
        "claude": "branching: a_branch_at_a_message_knows_nothing_of_what_came_later",
        "codex": "branching: a_branch_at_a_message_knows_nothing_of_what_came_later",
        "qwen": "qwen: a_fork_at_an_earlier_message_knows_nothing_of_what_came_later_and_its_hooks_tell_what_it_does",
        "opencode": "opencode: a_fork_at_an_earlier_message_into_a_worktree_knows_nothing_of_what_came_later_and_our_plugin_tells_what_it_does",
        "gemini": "gemini: a_session_is_found_gone_on_with_and_forked_at_a_message_into_a_worktree",
        "copilot": "copilot: a_session_is_begun_gone_on_with_found_and_forked_at_a_message_into_a_worktree",
    }),
    "forked into a worktree": ("started", {
        "claude": "forking: a_fork_into_a_worktree_works_there",
        "codex": "forking: a_fork_into_a_worktree_works_there",
        "qwen": "qwen: a_fork_within_a_budget_into_a_worktree_works_there_and_knows_what_is_kept",
        "opencode": "opencode: a_fork_at_an_earlier_message_into_a_worktree_knows_nothing_of_what_came_later_and_our_plugin_tells_what_it_does",
        "gemini": "gemini: a_session_is_found_gone_on_with_and_forked_at_a_message_into_a_worktree",
        "copilot": "copilot: a_session_is_begun_gone_on_with_found_and_forked_at_a_message_into_a_worktree",
    }),
    "forked within a budget": ("budgeted", {
        "claude": "budget: the_model_is_sent_what_is_kept_and_a_line_for_the_rest",
        "codex": "budget: the_model_is_sent_what_is_kept_and_a_line_for_the_rest",
        "qwen": "qwen: a_fork_within_a_budget_into_a_worktree_works_there_and_knows_what_is_kept",
        "opencode": "opencode: a_fork_within_a_budget_is_sent_what_is_kept_and_a_line_for_the_rest",
        "gemini": "gemini: forks_in_the_same_project_lose_no_session_and_who_asks_is_known_and_not_found",
        "copilot": "copilot: a_fork_within_a_budget_has_what_is_kept_and_who_asks_is_known_and_not_found",
    }),
    "receives a hand-over": ("told", dict.fromkeys(
        ("claude", "codex", "qwen", "opencode", "gemini", "copilot"),
        "handing_over: the_other_model_is_sent_what_is_told_and_the_prompt",
    )),
    "cut": ("cut", {
        "claude": "excising: the_model_is_sent_exactly_what_stayed",
        "codex": "excising: the_model_is_sent_exactly_what_stayed",
        "qwen": "qwen: a_cut_session_is_resumed_and_knows_only_what_stayed",
        "opencode": "opencode: what_is_cut_out_is_in_no_byte_and_in_no_request_when_the_session_goes_on",
        "gemini": "gemini: a_cut_session_is_gone_on_with_and_nothing_of_what_went_is_left",
        "copilot": "copilot: a_cut_session_is_gone_on_with_and_nothing_of_what_went_is_left",
    }),
    "shared": ("shared", {
        "claude": "team: what_one_pushes_the_other_finds_forks_and_goes_on_with",
        "codex": "team: what_one_pushes_the_other_finds_forks_and_goes_on_with",
        "qwen": "team: a_session_of_another_agent_that_one_pushes_is_forked_and_gone_on_with_by_the_other",
        "opencode": "team: a_session_of_another_agent_that_one_pushes_is_forked_and_gone_on_with_by_the_other",
        "gemini": "team: a_session_of_another_agent_that_one_pushes_is_forked_and_gone_on_with_by_the_other",
        "copilot": "team: a_session_of_another_agent_that_one_pushes_is_forked_and_gone_on_with_by_the_other",
    }),
    "live status": ("tells", {
        "claude": "hooks: a_worker_that_asks_for_permission_waits_and_says_for_what",
        "codex": "hooks: a_worker_without_a_terminal_works_is_idle_and_ends",
        "qwen": "qwen: a_fork_at_an_earlier_message_knows_nothing_of_what_came_later_and_its_hooks_tell_what_it_does",
        "opencode": "opencode: a_fork_at_an_earlier_message_into_a_worktree_knows_nothing_of_what_came_later_and_our_plugin_tells_what_it_does",
        "gemini": "gemini: a_worker_tells_what_it_does_and_hears_what_is_said_to_it",
        "copilot": "copilot: a_session_is_begun_gone_on_with_found_and_forked_at_a_message_into_a_worktree",
    }),
    "known as the caller": ("set_up", {
        "claude": "calling: a_script_asks_and_a_fork_works_in_the_background_and_who_has_only_asked_is_no_answer",
        "codex": "calling: a_script_asks_and_a_fork_works_in_the_background_and_who_has_only_asked_is_no_answer",
        "qwen": "qwen: an_agent_that_asks_is_known_and_not_found",
        "opencode": "opencode: a_fork_at_an_earlier_message_into_a_worktree_knows_nothing_of_what_came_later_and_our_plugin_tells_what_it_does",
        "gemini": "gemini: forks_in_the_same_project_lose_no_session_and_who_asks_is_known_and_not_found",
        "copilot": "copilot: a_fork_within_a_budget_has_what_is_kept_and_who_asks_is_known_and_not_found",
    }),
    "set up": ("set_up", {
        "claude": "setup: the_agents_themselves_list_it_as_connected",
        "codex": "setup: the_agents_themselves_list_it_as_connected",
        "qwen": "qwen: an_agent_that_asks_is_known_and_not_found",
        "opencode": "opencode: a_fork_at_an_earlier_message_into_a_worktree_knows_nothing_of_what_came_later_and_our_plugin_tells_what_it_does",
        "gemini": "gemini: forks_in_the_same_project_lose_no_session_and_who_asks_is_known_and_not_found",
        "copilot": "copilot: a_fork_within_a_budget_has_what_is_kept_and_who_asks_is_known_and_not_found",
    }),
}  # fmt: skip


def shown(cell: str) -> tuple[Path, str] | None:
    """The test that a cell names; of a reason, none."""
    file, _, name = cell.partition(": ")
    path = ROOT / "tests/e2e" / f"test_{file}.py"
    return (path, f"test_{name}") if " " not in file and " " not in name and name else None


@cache
def functions_of(path: Path) -> dict[str, ast.FunctionDef]:
    return {one.name: one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.FunctionDef)}


def test_each_test_that_is_named_is_there():
    named = [found for _, cells in TRIED.values() for cell in cells.values() if (found := shown(cell))]

    assert [] == [(path.name, name) for path, name in named if name not in functions_of(path)]


@parametrize_subtests("agent", [agent.name for agent in AGENTS])
def test_of_each_agent_each_verb_is_shown_or_said_why_it_is_not(agent):
    able = AGENTS[agent].abilities()

    assert set(AGENTS[agent].lacks) == {ability for ability in Agent.ABILITIES if not able[ability]}
    if AGENTS[agent].starter:  # the programs of others are not run
        assert [] == [verb for verb, (ability, cells) in TRIED.items() if able[ability] != (agent in cells)]
    assert {ability for ability, _ in TRIED.values()} == set(Agent.ABILITIES)
