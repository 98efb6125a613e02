"""Tests of ``--at match``: a fork after the exchange that answers, for Claude Code and Codex."""

from __future__ import annotations

import json

import pytest

from smart_fork.agents.log_readers import READERS
from smart_fork.agents.request_fields import Options
from smart_fork.errors import ForkRefused, IndexUnavailable, NotFound, Usage
from smart_fork.finding import session_lookup
from smart_fork.finding.index_access import opened
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import Budget, ForkRequest
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.forks import FakeProcesses, choosing
from tests.smart_fork.searches import find_and_fork, message_for
from tests.smart_fork.searches import opened as library_of
from tests.smart_fork.world import BrokenModel
from tests.support.cases import thorough_except_first

SAID = (
    "tidy up the kitchen", "swept and mopped", "add retry with backoff to the uploader", "it retries five times",
    "paint the logo", "painted it blue",
)  # fmt: skip
RETRY, LOGO = "retry uploader backoff", "paint the logo blue"
agents = pytest.mark.parametrize("agent", thorough_except_first(["claude", "codex"]))


@pytest.fixture
def played(no_waiting, monkeypatch) -> FakeProcesses:
    processes = FakeProcesses()
    monkeypatch.setattr("smart_fork.system.processes.Processes", lambda: processes)
    return processes


@pytest.fixture
def parent(agent, world, shop) -> str:
    return getattr(world, agent)(shop, *SAID)


def session_of(session_id: str):
    return session_lookup.read(session_lookup.locate(session_id))


@agents
def test_the_fork_ends_with_the_exchange_that_answers(world, parent, played, agent):
    forked = fork_session(
        ForkRequest(parent, Options("the downloader too", place="process"), "match", RETRY),
        lambda: library_of(Engine(world.model)),
    )

    copy = READERS[agent].read(world.log_of(forked.new_session_id)).session
    assert [turn.text for turn in copy.turns] == list(SAID[:4])
    assert "Forked after message 3: exchange 2 of 3 answers best" in forked.warnings
    (call,) = played.started
    assert forked.new_session_id in call["argv"]


@agents
@pytest.mark.parametrize(("also", "messages"), [((SAID[2],), 4), (("sweep and mop the kitchen", "tidy up"), 2)])
@pytest.mark.usefixtures("played", "agent")
def test_all_phrasings_together_say_which_exchange_answers(world, parent, also, messages):
    forked = fork_session(
        ForkRequest(parent, Options("go on", place="process"), "match", "hochladen", also),
        lambda: library_of(Engine(world.model)),
    )

    assert len(session_of(forked.new_session_id).turns) == messages


@agents
def test_where_the_last_exchange_answers_it_is_an_ordinary_fork(world, parent, played, agent):
    forked = fork_session(
        ForkRequest(parent, Options("go", place="process"), "match", LOGO, dry_run=True),
        lambda: library_of(Engine(world.model)),
    )

    assert {"claude": f"--resume {parent} --fork-session", "codex": f"fork {parent}"}[agent] in forked.command.replace(
        f" -C {forked.cwd}", ""
    )
    assert forked.warnings == ("Forked at the session's end: exchange 3 of 3 answers best",)


def test_only_this_session_is_searched_also_where_another_has_the_same_beginning(world, shop):
    parent = world.claude(shop, *SAID)
    fork = world.fork_claude(parent, shop, "retry the uploader with backoff, and more retry", "backoff uploader retry")
    other = world.claude(world.repository("elsewhere"), RETRY, RETRY)
    engine = Engine(world.model)

    answers = {name: message_for(session_of(name), RETRY, engine) for name in (parent, fork, other)}

    own = {name: {turn.id for turn in session_of(name).turns} for name in answers}
    assert all(answers[name] in own[name] for name in answers)
    assert answers[fork] not in own[parent]


def test_only_the_log_of_the_session_that_is_asked_about_is_read_before(world, shop):
    asked, _ = world.claude(shop, *SAID), world.claude(shop, "write the changelog", "written")

    message_for(session_of(asked), RETRY, Engine(world.model))

    with opened() as store:
        assert {str(world.log_of(asked))} == set(store.seen())


@agents
@pytest.mark.parametrize("broken", [False, True])
def test_words_find_it_where_the_model_fails(world, parent, agent, broken):
    engine = Engine(BrokenModel() if broken else world.model)

    session = session_of(parent)

    assert message_for(session, RETRY, engine) == session.turns[2].id


@agents
def test_nothing_is_started_where_nothing_answers(world, parent, played, agent):
    with pytest.raises(
        NotFound, match=f"No passage of {parent} answers that: .*no session has been embedded"
    ) as refused:
        fork_session(
            ForkRequest(parent, Options(place="process"), "match", "zanzibar"),
            lambda: library_of(Engine(BrokenModel())),
        )
    assert "--also" in refused.value.hint
    assert not played.started


@agents
def test_words_that_have_nothing_to_do_with_a_session_fork_nothing_at_a_match(world, parent, played, agent):
    engine = Engine(world.model)
    with pytest.raises(NotFound, match=f"No passage of {parent} answers that: its score is 0.00") as refused:
        fork_session(
            ForkRequest(parent, Options(place="process"), "match", "zanzibar pancakes"), lambda: library_of(engine)
        )
    assert "fork all of it without `match`" in refused.value.hint

    with pytest.raises(NotFound, match=f"No passage of {parent} answers that"):
        fork_session(
            ForkRequest(parent, Options(place="process"), intent="zanzibar pancakes", budget=Budget("match")),
            lambda: library_of(engine),
        )
    request = FindRequest("zanzibar pancakes", agent_type=agent)
    answer = find_and_fork(
        request,
        engine,
        choosing(fork_session_id=parent, at="match", options=Options(place="process")),
        world.home / "shop",
    )
    assert f"No passage of {parent} answers that" in answer.as_json()["error"]
    assert not played.started


@agents
def test_within_a_budget_words_that_nothing_answers_are_said_and_what_was_said_last_is_kept(world, parent, agent):
    asked = ForkRequest(
        parent, Options("go on", place="process"), intent="zanzibar pancakes", budget=Budget(20), dry_run=True
    )

    kept = fork_session(asked, lambda: library_of(Engine(world.model)))

    assert "nothing fits: the best score is 0.00" in " ".join(kept.warnings)
    assert "answers" not in {one.why for one in kept.selection.exchanges[:-1]}
    assert not any("match" in one.option for one in kept.ways)


@agents
def test_without_an_index_that_is_said(world, parent, agent, monkeypatch):
    monkeypatch.setenv("SMART_FORK_INDEXING", "false")
    with pytest.raises(IndexUnavailable, match="switched off"):
        message_for(session_of(parent), RETRY, Engine(world.model))


@pytest.mark.parametrize(
    ("agent", "directory"),
    thorough_except_first([("claude", "/no/such/place"), ("codex", ""), ("codex", "/no/such/place")], 2),
)
def test_a_session_whose_directory_is_gone_or_not_known_is_searched_all_the_same(world, agent, directory):
    parent = getattr(world, agent)(directory, *SAID)

    session = session_of(parent)

    assert message_for(session, RETRY, Engine(world.model)) == session.turns[2].id


@pytest.mark.parametrize("is_there", [True, False])
def test_what_is_left_to_index_begins_with_the_project_of_the_session_while_that_is_there(world, shop, is_there):
    session = session_of(world.claude(shop if is_there else "/no/such/place", *SAID))
    begun = []

    message_for(session, RETRY, Engine(world.model, embed_seconds=0, unfinished=begun.append))

    assert [str(shop) if is_there else None] == [project and project.root for project in begun]


def test_a_message_that_a_rewind_has_taken_away_is_no_place_to_fork(world, shop):
    parent = world.claude(shop, *SAID)
    with pytest.raises(ForkRefused, match="Invalid or inactive branch point: gone"):
        fork_session(
            ForkRequest(parent, Options("go", place="process"), "match", "zanzibar pancakes", found="gone"),
            lambda: library_of(Engine(world.model)),
        )


class TestWithASearch:
    """Tests of `find_and_fork` as the MCP tool calls it."""

    def ask(self, world, shop, **choice):
        request = FindRequest(RETRY, agent_type="both")
        return find_and_fork(
            request,
            Engine(world.model),
            choosing(at="match", options=Options(place="process", prompt=choice.pop("prompt", None)), **choice),
        ).as_json()

    @agents
    def test_a_result_is_forked_where_its_passage_ends(self, world, shop, parent, played, agent):
        answer = self.ask(world, shop, auto_fork=True)

        copy = session_of(answer["forked_session"]["new_session_id"])
        assert len(copy.turns) == answer["results"][0]["match"]["ends_at_message"] + 1 == 4

    def test_a_session_that_is_no_result_is_searched_for_it(self, world, shop, played):
        elsewhere = world.claude(world.repository("elsewhere"), *SAID)

        forked = self.ask(world, shop, fork_session_id=elsewhere)["forked_session"]

        assert len(session_of(forked["new_session_id"]).turns) == 4

    def test_without_a_passage_the_results_stay(self, world, shop, played):
        other = world.claude(world.repository("elsewhere"), "zanzibar", "zanzibar")
        world.model = BrokenModel()

        answer = self.ask(world, shop, fork_session_id=other)

        assert answer["error"].startswith(f"No passage of {other} answers that")
        assert answer["count"] == 0

    def test_another_word_is_refused(self, world, shop):
        request = FindRequest(RETRY)
        with pytest.raises(Usage, match="end is not a message number"):
            find_and_fork(request, Engine(world.model), choosing(at="end", auto_fork=True), shop)


class TestCommand:
    @agents
    def test_the_prompt_is_the_intent_unless_another_is_given(self, run, parent, played, agent):  # noqa: F811
        by_prompt = json.loads(run("fork", parent, RETRY, "--at", "match", "--in", "process", "--json").out)
        by_intent = json.loads(
            run("fork", parent, LOGO, "--at", "match", "--intent", RETRY, "--in", "process", "--json").out
        )

        assert {len(session_of(one["new_session_id"]).turns) for one in (by_prompt, by_intent)} == {4}
        assert played.started[1]["argv"][-1].strip() == LOGO

    @pytest.mark.thorough
    @pytest.mark.parametrize("agent", ["claude"])
    def test_the_intent_may_be_said_in_other_words(self, run, parent, played, agent):  # noqa: F811
        matching = ["--at", "match", "--intent", "hochladen", "--also", SAID[2], "--also", "backoff", "--json"]

        several = json.loads(run("fork", "go on", "--top", "1", "--in", "process", "--min-score", "0", *matching).out)
        one = json.loads(run("fork", parent, "go on", "--in", "process", *matching).out)
        branched = json.loads(run("branch", parent, *matching).out)

        ids = [one["new_session_id"], several["forks"][0]["new_session_id"], branched["session_id"]]
        assert [len(session_of(each).turns) for each in ids] == [4, 4, 4]

    @pytest.mark.parametrize(
        ("words", "text"),
        [
            (["--also", "x"], "--also is only for --at match"),
            (["--at", "match", "--intent", "x", "--also", "y" * 301], "also takes texts of at most 300 characters"),
            (["--at", "match"], "--at match needs an intent"),
            (["--at", "match", "--intent", " "], "--intent is empty"),
            (["--at", "4", "--intent", "x"], "--intent is only for --at match"),
            (["--intent", "x"], "--intent is only for --at match"),
        ],
    )
    def test_what_is_missing_is_said(self, run, world, shop, words, text):  # noqa: F811
        done = run("fork", world.claude(shop, *SAID), *words)

        assert done.code == 2
        assert text in done.err


def exchange_of(world, shop, agent: str, intent: str, *said: str) -> int:
    session = session_of(getattr(world, agent)(shop, *said))
    message = message_for(session, intent, Engine(world.model))
    return next(one.index for one in session.exchanges() if any(turn.id == message for turn in one.turns))


@agents
def test_of_a_question_of_two_parts_the_exchange_is_named_by_which_both_are_known(world, shop, agent):
    said = (
        "rename the uploader", "the uploader is called sender now", "tidy the kitchen", "swept",
        "raise the compiler version", "the compiler is of the new version", "paint the logo", "blue",
    )  # fmt: skip

    assert exchange_of(world, shop, agent, "rename the uploader and raise the compiler version", *said) == 2


@agents
def test_where_a_first_answer_was_wrong_the_exchange_is_named_in_which_it_was_mended(world, shop, agent):
    said = (
        "the upload retry hangs, fix the upload retry", "the upload retry is fixed",
        "the upload retry still hangs, that was wrong", "now the upload retry is really fixed", "paint the logo", "blue",
    )  # fmt: skip

    assert exchange_of(world, shop, agent, "the upload retry hangs", *said) == 1


def test_a_result_that_is_forked_at_its_match_is_forked_where_all_is_known(world, shop, played):
    said = (
        "rename the uploader", "the uploader is called sender now", "raise the compiler version", "it is of the new one",
        "paint the logo", "blue",
    )  # fmt: skip
    parent = world.claude(shop, *said)
    request = FindRequest("rename the uploader, raise the compiler version")

    forked = find_and_fork(
        request, Engine(world.model), choosing(fork_index=0, at="match", options=Options(place="process")), shop
    ).as_json()["forked_session"]

    assert forked["resume_session_id"] == parent
    assert "Forked after message 3: exchange 2 of 3 answers best" in forked["warnings"]
