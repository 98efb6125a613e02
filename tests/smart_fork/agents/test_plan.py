"""The plan of a worker, made without running or reading anything."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from smart_fork.agents import AGENTS
from smart_fork.agents.fork_plan import MAX_PROMPT_BYTES, ForkPlan
from smart_fork.agents.request_fields import Options
from smart_fork.agents.start_command import LaunchRequest
from smart_fork.display_text import plain_name
from smart_fork.errors import ForkRefused, Usage
from tests.smart_fork.forks import NEW, SESSION

CLAUDE = LaunchRequest("claude", SESSION, Path("/work"), "/bin/claude", new_session_id=NEW)
CODEX = replace(CLAUDE, agent="codex", program="/bin/codex")
UNASKED = Options(skip_permissions=True)
both = pytest.mark.parametrize("request_", [CLAUDE, CODEX], ids=["claude", "codex"])


def test_claude_is_forked_natively_with_an_id_known_beforehand():
    """F-093, F-098."""
    plan = ForkPlan.of(replace(CLAUDE, prompt="fix the race", name="A name"))

    assert (
        "/bin/claude",
        "--resume",
        SESSION,
        "--fork-session",
        "--session-id",
        NEW,
        "--name=A name",
        "--",
        "fix the race",
    ) == plan.argv
    assert (NEW, SESSION, "transcript") == (plan.new_session_id, plan.source_session_id, plan.staging)


def test_claude_without_a_terminal_prints_json():
    """F-098."""
    plan = ForkPlan.of(replace(CLAUDE, prompt="fix the race", headless=True))

    assert ("-p", "--output-format", "json", "--", "fix the race") == plan.argv[-5:]
    assert "--fork-session" in plan.argv


def test_codex_is_forked_natively_in_the_target_directory():
    """F-094, F-106."""
    plan = ForkPlan.of(replace(CODEX, prompt="fix the race", target_cwd=Path("/tree")))

    assert ("/bin/codex", "fork", SESSION, "-C", "/tree", "--", "fix the race") == plan.argv
    assert (None, "nothing", Path("/tree")) == (plan.new_session_id, plan.staging, plan.cwd)


def test_the_first_request_of_codex_waits_for_our_server_where_it_starts_one():
    asked = replace(CODEX, prompt="fix the race", has_tools=True)
    waiting = ("-c", "mcp_servers.smart-fork.required=true")

    for headless in (False, True):
        argv = ForkPlan.of(replace(asked, headless=headless)).argv
        assert waiting == argv[(at := argv.index("-c")) : at + 2]
        assert "--" in argv[at:]
    assert "-c" not in ForkPlan.of(replace(asked, prompt=None)).argv, "a person types the first prompt"
    assert "-c" not in ForkPlan.of(replace(asked, has_tools=False)).argv


def test_claude_without_a_terminal_waits_for_our_server_unless_a_variable_says_how_long():
    asked = ForkPlan.of(replace(CLAUDE, prompt="fix the race", headless=True))

    assert "30000" == asked.environment({})["MCP_CONNECT_TIMEOUT_MS"]
    assert "7" == asked.environment({"MCP_CONNECT_TIMEOUT_MS": "7"})["MCP_CONNECT_TIMEOUT_MS"]
    assert "MCP_CONNECT_TIMEOUT_MS" not in ForkPlan.of(replace(CLAUDE, prompt="fix the race")).environment({})


def test_codex_without_a_terminal_uses_exec():
    plan = ForkPlan.of(replace(CODEX, prompt="fix the race", headless=True))

    assert ("/bin/codex", "exec", "-C", "/work", "fork", SESSION, "--", "fix the race") == plan.argv


def test_a_new_session_of_claude_has_an_id_known_beforehand():
    """R-060, F-111."""
    new = replace(CLAUDE, form="new", session_id="", prompt="fix the race", name="it")
    plan = ForkPlan.of(new)

    assert ("/bin/claude", "--session-id", NEW, "--name=it", "--", "fix the race") == plan.argv
    assert (NEW, "", "nothing") == (plan.new_session_id, plan.source_session_id, plan.staging)
    headless = ForkPlan.of(replace(new, headless=True, options=UNASKED))
    assert ("--dangerously-skip-permissions", "-p", "--output-format", "json", "--", "fix the race") == headless.argv[
        -6:
    ]


def test_a_new_session_of_codex_tells_its_id_later():
    """R-060, F-112."""
    new = replace(CODEX, form="new", session_id="", prompt="fix the race")
    plan = ForkPlan.of(new)

    assert ("/bin/codex", "-C", "/work", "--", "fix the race") == plan.argv
    assert (None, "nothing") == (plan.new_session_id, plan.staging)
    assert ("/bin/codex", "exec", "-C", "/work", "--", "fix the race") == ForkPlan.of(replace(new, headless=True)).argv
    unasked = "--dangerously-bypass-approvals-and-sandbox"
    assert ("/bin/codex", "-C", "/work", unasked) == ForkPlan.of(replace(new, prompt=None, options=UNASKED)).argv


@both
@pytest.mark.parametrize("headless", [False, True])
def test_a_session_that_goes_on_keeps_its_id_and_its_name(request_, headless):
    """F-093, F-111, F-112, R-063: the sub-command, then flags."""
    on = replace(request_, form="resume", prompt="fix the race", headless=headless, name="n", options=UNASKED)
    plan = ForkPlan.of(on)

    words = {
        ("claude", False): ["--resume", SESSION, "--dangerously-skip-permissions"],
        ("claude", True): ["--resume", SESSION, "--dangerously-skip-permissions", "-p", "--output-format", "json"],
        ("codex", False): ["resume", SESSION, "-C", "/work", "--dangerously-bypass-approvals-and-sandbox"],
        ("codex", True): ["exec", "-C", "/work", "resume", SESSION, "--dangerously-bypass-approvals-and-sandbox"],
    }[request_.agent, headless]
    assert [request_.program, *words, "--", "fix the race"] == list(plan.argv)
    staging = "name" if request_.agent == "claude" else "nothing"
    assert (SESSION, SESSION, staging) == (plan.new_session_id, plan.source_session_id, plan.staging)


@pytest.mark.parametrize("form", ["fork", "resume"])
def test_what_goes_on_from_somebody_elses_session_asks_whatever_that_session_was_allowed(form):
    """Codex uses its present settings, and nothing that a session has recorded."""
    said = {"prompt": "fix the race", "form": form, "headless": True}
    commands = {
        request.agent: (ForkPlan.of(replace(request, **said)), ForkPlan.of(replace(request, **said, of_others=True)))
        for request in (CLAUDE, CODEX, replace(CLAUDE, agent="qwen", program="/bin/qwen"))
    }

    more = {
        name: " ".join(word for word in asks.argv if word not in usual.argv) for name, (usual, asks) in commands.items()
    }
    assert {"claude": "--permission-mode default", "codex": "", "qwen": "--approval-mode default"} == more


def test_a_fork_at_an_earlier_message_resumes_the_shortened_copy():
    """B-074."""
    claude = ForkPlan.of(replace(CLAUDE, at="m", prompt="go on"))
    codex = ForkPlan.of(replace(CODEX, at="m", prompt="go on"))
    headless = ForkPlan.of(replace(CODEX, at="m", prompt="go on", headless=True))

    assert ("/bin/claude", "--resume", NEW, "--", "go on") == claude.argv
    assert ("/bin/codex", "resume", NEW, "-C", "/work", "--", "go on") == codex.argv
    assert ("/bin/codex", "exec", "-C", "/work", "resume", NEW, "--", "go on") == headless.argv
    assert {(NEW, "branch", "m")} == {
        (plan.new_session_id, plan.staging, plan.at) for plan in (claude, codex, headless)
    }
    with pytest.raises(Usage):
        ForkPlan.of(replace(CLAUDE, at="m", new_session_id=None))


@both
def test_the_most_recent_session_is_never_meant(request_):
    """F-093, F-113."""
    for headless in (False, True):
        plan = ForkPlan.of(replace(request_, prompt="go on", headless=headless))
        assert set() == {"--continue", "-c", "--last"} & set(plan.argv)


@both
def test_without_a_prompt_a_person_types_it(request_):
    assert "--" not in ForkPlan.of(request_).argv
    assert "--" not in ForkPlan.of(replace(request_, prompt=" \n")).argv
    with pytest.raises(Usage, match="needs a prompt"):
        ForkPlan.of(replace(request_, headless=True))


@both
@pytest.mark.parametrize(
    "bad", ["", "../x", "a" * 31, "a" * 37, "-" * 36, f"{SESSION}\n", "--dangerously-skip-permissions-aaaaaa", "g" * 32]
)
def test_an_id_that_is_none_is_refused(request_, bad):
    """F-104, B-020."""
    with pytest.raises(Usage, match="Invalid source sessionId"):
        ForkPlan.of(replace(request_, session_id=bad))
    if bad:
        with pytest.raises(Usage, match="Invalid new sessionId"):
            ForkPlan.of(replace(request_, new_session_id=bad))


def test_an_id_is_kept_as_it_is_written():
    """B-078: the agent looks for a file with exactly this name."""
    assert AGENTS.check_id("claude", SESSION.upper()) == SESSION.upper()


@both
def test_forks_of_forks_end(request_):
    assert ForkPlan.of(replace(request_, depth=2)).env["SMART_FORK_DEPTH"] == "3"
    with pytest.raises(ForkRefused, match="3 deep"):
        ForkPlan.of(replace(request_, depth=3))


@both
def test_a_worker_knows_its_id_and_depth_and_nothing_of_its_callers_session(request_):
    """F-105."""
    base = {"PATH": "/bin", "ANTHROPIC_API_KEY": "k", **dict.fromkeys(AGENTS.callers_own, "1")}

    env = ForkPlan.of(replace(request_, worker_id="claude-1")).environment(base)

    assert {
        "PATH": "/bin",
        "ANTHROPIC_API_KEY": "k",
        "SMART_FORK_DEPTH": "1",
        "SMART_FORK_WORKER_ID": "claude-1",
    } == env


#: Each of these was seen to do something else than ask the agent, without the blank.
SPECIAL = [
    "--version",
    "-",
    "doctor",
    "mcp",
    "/clear",
    "!touch x",
    "#memo",
    "@/etc/passwd",
    "\n!touch x",
    "\u00a0/clear",
    "--",
]


@both
@pytest.mark.parametrize("prompt", SPECIAL)
def test_a_prompt_can_be_nothing_but_a_prompt(request_, prompt):
    """F-104."""
    assert ("--", f" {prompt.strip()}") == ForkPlan.of(replace(request_, prompt=prompt)).argv[-2:]


@given(st.text())
@example("two\0 words")
@example("lone \ud800 surrogate")
def test_any_prompt_keeps_its_words(prompt):
    """F-104: the prompt is one argument, valid in any environment, and begins with a blank or with one of several
    ordinary words.
    """
    plain = ForkPlan.plain_prompt(prompt)

    assert prompt.replace("\0", "").encode("utf-8", "replace").decode().strip() == plain.strip()
    assert "\0" not in plain
    plain.encode()
    assert not plain or plain.startswith(" ") or (plain[0].isalnum() and len(plain.split()) > 1)


def test_a_prompt_that_no_program_can_be_given_is_refused():
    ForkPlan.plain_prompt("ü " * (MAX_PROMPT_BYTES // 3))
    with pytest.raises(Usage, match="longer than"):
        ForkPlan.plain_prompt("ü " * (MAX_PROMPT_BYTES // 2))


def test_a_name_is_one_clean_line():
    """B-027."""
    assert plain_name("  a\r\n\tb \x1b[31mred\x07 ") == "a b red"
    assert 200 == len(plain_name("x" * 300))
    assert "" == plain_name(None) == plain_name("\n")


@pytest.mark.parametrize("prompt", ["it's $(touch pwned) `touch pwned`; touch pwned", "a\nb", "--help"])
def test_the_line_for_display_means_the_plan_to_a_shell(tmp_path, prompt):
    """F-107."""
    place = tmp_path / "a b;touch pwned"
    place.mkdir()
    plan = ForkPlan.of(replace(CLAUDE, program="printf", prompt=prompt, target_cwd=place))
    line = replace(plan, argv=("printf", "%s\\0", *plan.argv[1:])).shell_command()

    done = subprocess.run(["sh", "-c", line], capture_output=True, check=True, cwd=tmp_path)

    assert list(plan.argv[1:]) == done.stdout.decode().split("\0")[:-1]
    assert [] == list(place.iterdir())
    assert ["cd", str(place), "&&"] == shlex.split(line)[:3]


def test_a_prompt_that_is_no_argument_is_shown_as_what_gives_it():
    piped = replace(ForkPlan.of(replace(CLAUDE, prompt="it's")), argv=("/bin/x", "run"), delivery="input")

    assert " it's" == piped.said
    assert """cd /work && printf %s ' it'"'"'s' | /bin/x run""" == piped.shell_command()
    assert "cd /work && /bin/x run" == replace(piped, delivery="typed").shell_command()
    assert "" == replace(piped, delivery="argument").said
