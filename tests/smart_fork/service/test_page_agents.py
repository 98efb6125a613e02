"""Tests of thoughts, models and sub-agents of a session on the page."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.finding import session_lookup
from smart_fork.page.agent_steps import Steps
from smart_fork.page.conversation_page import reading
from tests.indexer.transcripts.records import READ_LOGS, below_home, lay_out
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.service.test_page import HOSTILE, Tags
from tests.smart_fork.world import Did
from tests.support.cases import thorough_except_first

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
FOUND = Did("Agent", {"description": f"Look for listeners {HOSTILE}", "prompt": "List them"}, "One is never removed.")


def answered(log: Path, change) -> None:
    """Call `change` with each record of a log, and write the records back."""
    records = [json.loads(line) for line in log.read_text().splitlines()]
    for record in records:
        change(record)
    log.write_text("".join(json.dumps(record) + "\n" for record in records))


def subagent_page(world, shop, *, beside: bool = False, name: str = "a1b2c3d") -> str:
    """Write a session of Claude Code with a sub-agent. With `beside`, its log has the older location."""
    session = world.worked("claude", shop, "> Find the leak", FOUND, "One was found.")
    log = world.log_of(session)
    answered(log, lambda one: one.update(toolUseResult={"agentId": name}) if "tool_result" in str(one) else None)
    folder = log.parent if beside else log.parent / session / "subagents"
    folder.mkdir(parents=True, exist_ok=True)
    ran = Did("Bash", {"command": "rg setInterval"}, "\n".join(f"line {n}" for n in range(9)) + SECRET)
    other = world.worked("claude", shop, f"> List them {HOSTILE}", ran, f"room.ts:41 {SECRET}")
    lines = world.log_of(other).read_text().splitlines()
    world.log_of(other).unlink()
    told = [json.loads(line) | {"isSidechain": True, "agentId": name, "sessionId": session} for line in lines]
    (folder / f"agent-{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in told))
    return session


@pytest.mark.parametrize("beside", [False, True], ids=["in the session's folder", "beside the log"])
def test_the_conversation_of_a_sub_agent_is_a_link_away_from_the_step_that_began_it(served, world, shop, beside):
    session = subagent_page(world, shop, beside=beside)

    (way,) = re.findall(r'href="(/session/[^"]+/agents/[^"]+)"', served.get(f"/session/claude/{session}")[1])
    status, text = served.get(way)
    (output,) = re.findall(r'href="(/session/[^"]+/output/[^"]+)"', text)
    printed = served.get(output)[1]

    assert (200, f"/session/claude/{session}/agents/a1b2c3d") == (status, way)
    assert ("rg setInterval" in text, "room.ts:41" in text, f'href="/session/claude/{session}"' in text) == (True,) * 3
    assert (SECRET in text + printed, len(re.findall(r"line \d", printed)), output.startswith(way)) == (False, 9, True)
    assert f'href="{way}?at=' in printed, "back leads to the sub-agent"
    assert not [name for _, attrs in Tags(text).found for name in attrs if name.startswith("on") or name == "style"]
    assert not [tag for tag, attrs in Tags(text).found if tag == "script" and "src" not in attrs]
    assert [404, 404, 404] == [served.get(f"{way}{one}")[0] for one in ("x", "?at=99", "/output/9/0")]


@pytest.mark.parametrize("name", thorough_except_first(["../../secret", "a/b", "..", "", "a1b2c3d\0", "none"]))
def test_what_names_a_sub_agent_never_becomes_a_path(served, world, shop, name):
    session = subagent_page(world, shop)
    log = world.log_of(session)
    (log.parent / "agent-secret.jsonl").write_text((log.parent / session / "subagents/agent-a1b2c3d.jsonl").read_text())
    answered(log, lambda one: one.update(toolUseResult={"agentId": name}) if "toolUseResult" in one else None)

    text = served.get(f"/session/claude/{session}")[1]

    assert "/agents/" not in text
    assert "Look for listeners" in text


def test_the_sub_agents_of_qwen_code_are_found_by_the_call_that_began_them(tmp_path):
    (log := tmp_path / "slug/chats/33333333-3333-4333-8333-333333333333.jsonl").parent.mkdir(parents=True)
    (logs := tmp_path / "slug/subagents" / log.stem).mkdir(parents=True)
    call = {"functionCall": {"id": "call_70c9c698", "name": "agent", "args": {"description": "count"}}}
    chat = [("user", [{"text": "Count"}]), ("assistant", [call])]
    lines, before = [], None
    for kind, parts in chat:
        lines.append({"uuid": str(uuid.uuid4()), "parentUuid": before, "type": kind, "message": {"parts": parts}})
        before = lines[-1]["uuid"]
    log.write_text("".join(json.dumps(one) + "\n" for one in lines))
    (logs / "agent-general-purpose-call_70c9c698.jsonl").write_text((FIXTURES / "qwen/subagent.jsonl").read_text())
    session, agents = READERS["qwen"].read(log, keep_raw=True).session, AGENTS["qwen"].subagents

    begun = agents.begun(session)

    assert {"call_70c9c698": "general-purpose-call_70c9c698"} == begun
    read = agents.read(session, begun["call_70c9c698"])
    assert ["count the files", "Noted: count the files"] == [turn.text for _, turn in read.messages]
    assert agents.read(session, "../x") is None


def test_a_sub_agent_is_a_link_away_while_it_runs(served, world, shop):
    session = subagent_page(world, shop)
    log = world.log_of(session)
    lines = [
        line for line in log.read_text().splitlines() if '"tool_result"' not in line and "One was found" not in line
    ]
    log.write_text("".join(f"{line}\n" for line in lines))
    (call,) = re.findall(r'"type": "tool_use", "id": "([^"]+)"', log.read_text())
    beside = log.parent / session / "subagents/agent-a1b2c3d.meta.json"
    links = []

    for told in ({"toolUseId": call, "agentType": "Explore"}, {"toolUseId": "another"}, {"toolUseId": [call]}, []):
        beside.write_text(json.dumps(told))
        links.append(re.findall(r'href="(/session/[^"]+/agents/[^"]+)"', served.get(f"/session/claude/{session}")[1]))

    assert [[f"/session/claude/{session}/agents/a1b2c3d"], [], [], []] == links
    assert "room.ts:41" in served.get(links[0][0])[1]


def test_the_sub_agents_of_copilot_are_told_apart_from_the_session_that_has_their_events(tmp_path):
    (log := tmp_path / ".copilot/session-state/33333333-3333-4333-8333-333333333333/events.jsonl").parent.mkdir(
        parents=True
    )
    log.write_text((FIXTURES / "copilot/subagent.jsonl").read_text())
    session, agents = READERS["copilot"].read(log, keep_raw=True).session, AGENTS["copilot"].subagents

    begun = agents.begun(session)

    assert {"call_cc2ed352": "bcc6f77c-deab-40f9-8a46-a03457fec6b6"} == begun
    (asked, said) = [turn.text for _, turn in agents.read(session, begun["call_cc2ed352"]).messages]
    assert ("look at it", True) == (asked, said.startswith("PONG 1"))
    assert "look at it" not in [turn.text for _, turn in session.messages]
    assert agents.read(session, "../x") is None


def logged(path: Path, *records: dict) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


def rollout(number: int, source: object, *items: dict) -> Path:
    """Write a session of Codex to its home folder, and return the log."""
    one = f"019d7d08-46c9-7f73-affe-{number:012}"
    meta = {"id": one, "cwd": "/r", "timestamp": "2026-11-23T10:00:00Z", "source": source}
    payloads = [("session_meta", meta), *(("response_item", item) for item in items)]
    place = Path.home() / ".codex/sessions/2026/11/23" / f"rollout-2026-11-23T10-00-00-{one}.jsonl"
    return logged(
        place, *({"timestamp": "2026-11-23T10:00:00Z", "type": kind, "payload": one} for kind, one in payloads)
    )


def message(role: str, text: str) -> dict:
    part = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": part, "text": text}]}


def test_the_sub_agents_of_codex_are_those_that_its_calls_and_their_headers_name():
    def spawned(call: str, name: str) -> list[dict]:
        answer = {
            "type": "function_call_output",
            "call_id": call,
            "output": json.dumps({"agent_id": name, "nickname": "Ada"}),
        }
        return [{"type": "function_call", "name": "spawn_agent", "arguments": "{}", "call_id": call}, answer]

    def of(parent: int) -> dict:
        return {"subagent": {"thread_spawn": {"parent_thread_id": f"019d7d08-46c9-7f73-affe-{parent:012}", "depth": 1}}}

    ids = [f"019d7d08-46c9-7f73-affe-{number:012}" for number in range(5)]
    calls = [item for number in (1, 2, 4) for item in spawned(f"call_{number}", ids[number])]
    calls += spawned("call_5", "../../../etc/passwd")
    log = rollout(0, "cli", message("user", "Review it"), *calls, message("assistant", "Done."))
    rollout(1, of(0), message("user", "Look at the pusher"), message("assistant", "It is right."))
    rollout(2, "cli", message("user", "Somebody's own"))
    rollout(3, of(1), message("user", "Look closer"), message("assistant", "Closer."))
    session, agents = READERS["codex"].read(log, keep_raw=True).session, AGENTS["codex"].subagents

    assert {"call_1": ids[1]} == agents.begun(session)
    assert ["Look at the pusher", "It is right."] == [turn.text for _, turn in agents.read(session, ids[1]).messages]
    assert ["Look closer", "Closer."] == [turn.text for _, turn in agents.read(session, ids[3]).messages], (
        "a sub-agent's own"
    )
    assert [None, None, None] == [agents.read(session, name) for name in (ids[2], ids[4], "../x")]


def test_the_sub_agents_of_gemini_are_found_by_the_records_of_the_calls_that_have_ended(tmp_path):
    parent, name = "3c5e0000-0000-4000-8000-000000000000", "77aa0000-0000-4000-8000-000000000000"
    chats = tmp_path / "tmp/shop/chats"
    ended = {
        "id": "c1",
        "name": "codebase_investigator",
        "args": {},
        "status": "success",
        "agentId": name,
        "result": [],
    }
    calls = [ended, ended | {"id": "c2", "agentId": "../../x"}, ended | {"id": "c3", "agentId": 7}]
    asked = {"id": "u", "timestamp": "2026-11-23T10:00:00Z", "type": "user", "content": [{"text": "Where is it?"}]}
    did = {"id": "g", "timestamp": "2026-11-23T10:00:01Z", "type": "gemini", "content": "There.", "toolCalls": calls}
    log = logged(chats / f"session-2026-11-23T10-00-{parent}.jsonl", {"sessionId": parent, "kind": "main"}, asked, did)
    told = [asked | {"content": [{"text": "Find it"}]}, did | {"content": "room.ts:41", "toolCalls": []}]
    logged(chats / parent / f"{name}.jsonl", {"sessionId": name, "kind": "subagent"}, *told)
    session, agents = READERS["gemini"].read(log, keep_raw=True).session, AGENTS["gemini"].subagents

    assert {"c1": name} == agents.begun(session)
    assert ["Find it", "room.ts:41"] == [turn.text for _, turn in agents.read(session, name).messages]
    assert agents.read(session, "../x") is None


THOUGHT = f"First the **listeners**.\nThen {HOSTILE} {SECRET}"


def think(agent: str, record: dict) -> None:
    """Add a thought to a record, in the form of the agent."""
    if agent == "claude" and record.get("type") == "assistant":
        record["message"]["content"].insert(0, {"type": "thinking", "thinking": THOUGHT, "signature": "c2ln"})
    elif agent == "qwen" and record.get("type") == "assistant":
        record["message"]["parts"].insert(0, {"text": THOUGHT, "thought": True})
    elif agent == "gemini" and record.get("type") == "gemini":
        record["thoughts"] = [{"subject": "", "description": THOUGHT}]
    elif agent == "copilot" and record.get("type") == "assistant.message":
        record["data"]["reasoningText"] = THOUGHT


@pytest.mark.parametrize(
    ("agent", "fixture", "models"),
    [
        ("claude", "fork-of-fork", ("claude-opus-4-8",)),
        ("qwen", "tools", ("mock",)),
        ("gemini", "tools", ("gemini-3.8-flash",)),
        ("copilot", "tools", ("mock",)),
        ("codex", "person", ("gpt-5",)),
    ],
)
def test_the_thoughts_and_models_of_every_agent_are_told(agent, fixture, models, tmp_path):
    name = next((FIXTURES / agent).glob(f"{fixture}*.jsonl")).name
    log = tmp_path / "chats" / name
    log.parent.mkdir()
    log.write_text((FIXTURES / agent / name).read_text())
    records = [json.loads(line) for line in log.read_text().splitlines()]
    for record in records:
        think(agent, record)
    if agent == "codex":
        answers = [n for n, one in enumerate(records) if one.get("payload", {}).get("role") == "assistant"]
        item = {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": THOUGHT}],
            "encrypted_content": "gAAAA",
        }
        records.insert(answers[0], records[answers[0]] | {"payload": item})
        records = [one | ({"ordinal": n} if "ordinal" in one else {}) for n, one in enumerate(records)]
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    session = READERS[agent].read(log, keep_raw=True).session

    page, file = (reading(session, codec=AGENTS[agent].codec, whole=whole) for whole in (False, True))

    def thoughts(of):
        steps = [step for one in of.exchanges for message in one.messages for step in message.steps]
        return [step for step in steps if step.kind == "thought"]

    assert models == session.models
    assert thoughts(page)
    assert {("First the **listeners**.", True, False)} == {
        (one.line, HOSTILE in one.last[0], SECRET in one.last[0]) for one in thoughts(page)
    }
    assert [] == thoughts(file), "what is sent to others is without thoughts"
    assert not [step for number in range(len(session.turns)) for step in Steps(session, None, thoughts=True).of(number) if step.kind == "thought"]  # fmt: skip


def test_a_question_is_shown_with_its_options_whether_they_are_texts_or_have_labels(world, shop):
    options = ["Keep it", {"label": "Remove it", "description": "x"}, {"description": "x"}, 7]
    asked = Did("AskUserQuestion", {"questions": [{"question": "And the timer?", "options": options}]}, "Remove it")
    log = world.log_of(world.worked("claude", shop, "> Find the leak", asked, "It is removed."))
    session = READERS["claude"].read(log, keep_raw=True).session

    steps = [step for turn in range(len(session.turns)) for step in Steps(session, AGENTS["claude"].codec).of(turn)]

    assert [("question", [("And the timer?", ""), ("Keep it", "to choose"), ("Remove it", "to choose")])] == [
        (step.kind, [(part.text, part.state) for part in step.parts]) for step in steps
    ]


def test_a_thought_is_folded_and_the_model_is_told_on_the_page_and_by_show(served, world, shop, run):  # noqa: F811
    session = world.claude(shop, "Find the leak", "It is the timer.")
    answered(world.log_of(session), lambda one: think("claude", one))
    names = ["claude-opus-4-8", "<b>x</b>", 7, "claude-opus-4-8", "<synthetic>"]
    for name in names:
        world.write_claude(
            session,
            shop,
            [one | {"message": one["message"] | {"model": name}} for one in _more(world, session, shop)],
            "a",
        )

    text = served.get(f"/session/claude/{session}")[1]
    told = json.loads(run("show", session, "--json").out)

    assert ["claude-opus-4-8", "<b>x</b>"] == told["models"]
    assert re.findall(r'<span class="model"[^>]*>([^<]*)</span>', text) == ["claude-opus-4-8", "&lt;b&gt;x&lt;/b&gt;"]
    (inside,) = re.findall(r'<li class="step step-thought"[^>]*>(.*?)</li>', text, re.DOTALL)
    assert inside.strip().startswith("<details>"), "folded"
    assert "<strong>listeners</strong>" in inside
    assert SECRET not in inside
    assert "1 thought" in text
    assert "listeners" not in run("export", session, "--markdown").out


def _more(world, session: str, shop) -> list[dict]:
    """Return the records of a further answer at the end of a session."""
    last = json.loads(world.log_of(session).read_text().splitlines()[-1])
    (_, answer) = world.claude_records(session, shop, "and", "More.")
    return [answer | {"parentUuid": last["uuid"]}]


def test_a_sub_agent_whose_log_is_gone_is_said_to_be(served, world, shop):
    session = subagent_page(world, shop)
    way = f"/session/claude/{session}/agents/a1b2c3d"
    located = session_lookup.locate(session)
    (located.path.parent / session / "subagents/agent-a1b2c3d.jsonl").unlink()

    assert (404, True) == ((said := served.get(way))[0], "No such sub-agent" in said[1])
    assert "/agents/" not in served.get(f"/session/claude/{session}")[1]


@pytest.mark.parametrize("agent", thorough_except_first(READ_LOGS))
def test_a_session_of_an_agent_that_is_only_read_is_shown_with_its_calls_thoughts_and_family(served, shop, agent):
    session_id = READERS[agent].id_of(Path.home() / below_home(agent))
    lay_out(agent, str(shop))

    status, text = served.get(f"/session/{agent}/{session_id}")
    family, _ = served.get(f"/family/{agent}/{session_id}")

    assert (200, 200) == (status, family)
    assert all(said in text for said in ("Retry failed uploads", "First look at the file.", "pytest -q", "1 failed"))
    assert f"fork {session_id} --as claude" in re.sub("<[^>]*>", "", text)
