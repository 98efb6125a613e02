"""The records of a session that are shared, step by step."""

from __future__ import annotations

import json
from dataclasses import replace
from unittest.mock import Mock

import pytest

from indexer import log_changes
from indexer.transcripts.model import Session
from smart_fork import config
from smart_fork.agents.portable_records import HOME, ROOT
from smart_fork.errors import Conflict, ForkRefused, NotFound, Unshareable, Usage
from smart_fork.sharing.canonical import NOTHING
from smart_fork.sharing.local_logs import ProjectLogs
from smart_fork.sharing.outgoing import IMAGES, NotSent, SentBefore, prepare
from smart_fork.sharing.tracking import Alias
from smart_fork.team.push_plan import tracked_parent
from tests.indexer.transcripts.records import SESSION, chained, enveloped, item, message, meta
from tests.smart_fork.team.outgoing_logs import NEW, assistant, claude, codex_log, one_call, result, sent, use, user

GITHUB = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" * 15_000}}


def configure(home, text):
    (home / ".smart-fork").mkdir(exist_ok=True)
    (home / ".smart-fork/config.toml").write_text(text)


# 1. What is refused


def test_up_to_the_last_finished_turn_goes(home, root):
    log = claude(
        home,
        root,
        user("u1", None, "one"),
        assistant("a1", "u1", "done"),
        user("u2", "a1", "two"),
        assistant("a2", "u2", use("t", "Bash", command="sleep")),
    )
    out, records = sent(log, root)

    assert ["u1", "a1"] == [record["uuid"] for record in records]
    assert {"unfinished exchanges": 2} == out.left_out


def test_a_session_without_an_answer_is_not_pushed(home, root):
    with pytest.raises(ForkRefused, match="no answer and no tool result"):
        prepare(claude(home, root, user("u1", None, "one")), "claude", root)


def test_a_log_that_has_lost_its_conversation_is_neither_read_nor_ahead(home, root):
    log = claude(home, root, user("u1", None, "one"), assistant("a1", "u1", "done"))
    tracked = Alias(platform="claude", files=(str(log),), local_digest=NOTHING)
    assert 2 == ProjectLogs(root).ahead(tracked)
    log.write_text("{}\n")

    with pytest.raises(NotFound, match="No conversation"):
        ProjectLogs(root).read(log, "claude")
    assert ProjectLogs(root).ahead(tracked) is None


def test_a_fork_of_a_log_that_does_not_end_where_it_was_shared_has_no_shared_parent(home, root):
    log = claude(home, root, user("u1", None, "one"), assistant("a1", "u1", "done"))
    parent = ProjectLogs(root).read(log, "claude")
    fork = ProjectLogs(root).records(replace(parent, session_id=NEW, parent_id=parent.session_id))
    tracked = Alias(platform="claude", files=(str(log),), local_count=2)
    project = Mock(logs=ProjectLogs(root), place=Mock(root=root))

    alias, since = tracked_parent(project, {"main": tracked}, fork)
    assert (tracked, 2) == (alias, since.count)
    assert tracked_parent(project, {"main": tracked.model_copy(update={"local_count": 1})}, fork) is None


def test_a_session_has_a_shared_parent_where_it_begins_with_its_records_or_says_the_same(home, root):
    log = claude(home, root, user("u1", None, "one"), assistant("a1", "u1", "done"))
    parent = ProjectLogs(root).read(log, "claude")
    here, project = ProjectLogs(root).records(parent), Mock(logs=ProjectLogs(root), place=Mock(root=root))
    fork = replace(parent, session_id=NEW, parent_id=parent.session_id)
    told_other = replace(fork, turns=tuple(replace(turn, text=f"{turn.text}!") for turn in fork.turns))
    tracked = Alias(platform="claude", files=(str(log),), local_count=2)
    begun = Alias(platform="claude", local_count=2, local_digest=here.digest(2))

    assert (begun, SentBefore(2, here.digest(2))) == tracked_parent(project, {"main": begun}, here)
    assert tracked_parent(project, {"main": tracked}, ProjectLogs(root).records(told_other)) is None


def test_what_a_person_has_forgotten_is_not_pushed(home, root):
    log = claude(home, root, *one_call(use("t", "Bash", command="ls"), "a.py"))
    log_changes.add_forgotten("claude", SESSION, "2026-07-01")

    with pytest.raises(NotSent, match="forgotten"):
        prepare(log, "claude", root)


def test_nothing_goes_of_sub_agents(home, root):
    log = claude(home, root, *(r | {"teamName": "x"} for r in one_call(use("t", "Bash", command="ls"), "a.py")))

    with pytest.raises(NotSent, match="Sub-agents"):
        prepare(log, "claude", root)


def test_nothing_goes_from_a_directory_that_never_shares(home, root):
    log = claude(home, root, *one_call(use("t", "Bash", command="ls"), "a.py"))
    configure(home, '[team]\nnever = ["~/shop"]')

    with pytest.raises(NotSent, match="shop"):
        prepare(log, "claude", root)
    configure(home, '[team]\nnever = ["~/shop-2"]')
    prepare(log, "claude", root)


def test_a_log_that_is_gone_or_holds_no_conversation_is_said(home, root):
    with pytest.raises(NotFound, match="gone"):
        prepare(home / "x.jsonl", "claude", root)
    with pytest.raises(NotFound, match="No conversation"):
        prepare(claude(home, root, chained("summary", "s", None)), "claude", root)


# 2. The list of what may be sent


def test_of_claude_no_modes_hooks_snapshots_or_attachments_go(home, root):
    log = claude(
        home,
        root,
        {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {"x": "private-1"}},
        user("u1", None, "one", permissionMode="bypassPermissions", todos=["private-2"], hookInfos=["private-3"]),
        chained("attachment", "x", "u1", attachment={"type": "hook_success", "content": "private-4"}),
        assistant("a1", "x", {"type": "container_upload", "file_id": "private-5"}, "done", mode="private-6"),
    )
    _, records = sent(log, root)

    assert ["u1", "a1"] == [record["uuid"] for record in records]
    assert "private" not in json.dumps(records)
    assert "bypass" not in json.dumps(records)


def test_of_codex_nothing_goes_that_the_program_said_or_that_it_may_do(home, root):
    log = codex_log(
        home,
        NEW,
        meta(NEW, base_instructions="private-1", dynamic_tools=["private-2"]),
        enveloped("turn_context", cwd=str(root), approval_policy="private-3", sandbox_policy="private-4"),
        message("developer", "private-5"),
        message("user", "<environment_context>private-6</environment_context>"),
        item("ghost_snapshot", ghost_commit="private-7"),
        message("user", "one"),
        enveloped("event_msg", type="token_count", info={"total": 3}, rate_limits={"plan": "private-8"}),
        enveloped("event_msg", type="exec_command_end", stdout="private-9"),
        enveloped("compacted", message="m", replacement_history=[{"type": "message", "role": "developer", "content": []}]),
        item("function_call", call_id="c", name="shell", arguments='{"cmd":"ls"}'),
        item("function_call_output", call_id="c", output="a.py"),
        message("assistant", "done"),
    )  # fmt: skip
    out, records = sent(log, root, "codex")

    kinds = [record["payload"].get("type") for record in records]
    assert ["message", "token_count", None, "function_call", "function_call_output", "message"] == kinds
    assert [] == records[2]["payload"]["replacement_history"]
    assert "private" not in json.dumps(records)
    assert out.left_out["records outside the conversation"] == 5


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_what_is_sent_is_sent_as_it_is_again(agent):
    from smart_fork.agents import AGENTS
    from tests.indexer.transcripts.records import FIXTURES

    seen = 0
    for log in (FIXTURES / agent).glob("*.jsonl"):
        for line in log.read_text().splitlines():
            if kept := AGENTS.converter_of(agent).sent(json.loads(line)):
                assert kept == AGENTS.converter_of(agent).sent(kept)
                seen += 1
    assert seen > 20


# 3. Files that are withheld


@pytest.mark.parametrize(
    ("given", "output"),
    [
        ({"file_path": "{root}/keys/a.pem"}, "LEAK"),
        ({"command": "cat keys/a.pem"}, "LEAK"),
        ({"command": "cd web && cat '../shop/keys/a b.pem' | head"}, "LEAK"),
        ({"command": "cat ./prod.env;ls"}, "LEAK"),
        ({"command": "ls keys"}, "LEAK"),
        ({"path": "~/shop/keys/a.pem"}, "LEAK"),
        ({"command": "grep -r pass ."}, "src/a.py:1:x\nkeys/a.pem:3:LEAK"),
        ({"command": "git diff"}, "diff --git a/prod.env b/prod.env\n+++ b/prod.env\n+LEAK"),
    ],
    ids=str,
)
def test_a_call_that_names_a_withheld_file_and_what_it_gave_back_stay_here(home, root, given, output):
    (root / ".smartforkignore").write_text("# never\nkeys/\n*.env\n!example.env\n")
    here = {name: text.format(root=root) for name, text in given.items()}
    log = claude(home, root, *one_call(use("t1", "Bash", **here), output, toolUseResult={"stdout": output}))
    out, records = sent(log, root)

    call, back = records[1]["message"]["content"][0], records[2]
    assert ("t1", "Bash") == (call["id"], call["name"])
    assert ("t1", "[WITHHELD]", "[WITHHELD]") == (
        back["message"]["content"][0]["tool_use_id"],
        back["message"]["content"][0]["content"],
        back["toolUseResult"],
    )
    if output == "LEAK":
        assert dict.fromkeys(given, "[WITHHELD]") == call["input"]
    assert "LEAK" not in json.dumps(records)
    assert out.withheld


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("cat example.env", "KEPT"),
        ("cat src/keys.py", "KEPT"),
        ("cat /srv/keys/a.pem", "KEPT"),
        ("ls -a", "keys\nprod.env\nKEPT"),
    ],
)
def test_other_calls_go_as_they_are(home, root, command, output):
    (root / ".smartforkignore").write_text("/keys/\n*.env\n!example.env\n")
    out, records = sent(claude(home, root, *one_call(use("t1", "Bash", command=command), output)), root)

    assert "KEPT" in json.dumps(records)
    assert () == out.withheld


def test_codex_arguments_stay_json_when_they_are_withheld(home, root):
    (root / ".smartforkignore").write_text("*.pem")
    log = codex_log(
        home,
        NEW,
        meta(NEW, cwd=str(root)),
        message("user", "one"),
        item("function_call", call_id="c", name="shell", arguments='{"cmd":["cat","a.pem"],"timeout":3}'),
        item("function_call_output", call_id="c", output="LEAK"),
        item("custom_tool_call", call_id="d", name="apply_patch", input="*** Update File: a.pem\n+LEAK"),
        item("custom_tool_call_output", call_id="d", output="LEAK"),
        message("assistant", "done"),
    )
    _, records = sent(log, root, "codex")

    assert {"cmd": ["[WITHHELD]", "[WITHHELD]"], "timeout": 3} == json.loads(records[1]["payload"]["arguments"])
    assert ["c", "c", "d", "d"] == [record["payload"]["call_id"] for record in records[1:5]]
    assert "LEAK" not in json.dumps(records)


@pytest.mark.parametrize("text", ["x" * 400, "a\n" * 40_000])
def test_a_file_that_cannot_be_kept_to_stops_everything(home, root, text):
    (root / ".smartforkignore").write_text(text)
    log = claude(home, root, *one_call(use("t1", "Bash", command="ls"), "x"))

    with pytest.raises(Usage, match="smartforkignore"):
        prepare(log, "claude", root)


def test_a_link_in_its_place_is_not_followed(home, root):
    (home / "other").write_text("")
    (root / ".smartforkignore").symlink_to(home / "other")

    with pytest.raises(Usage, match="smartforkignore"):
        prepare(claude(home, root, *one_call(use("t1", "Bash", command="ls"), "x")), "claude", root)


def test_a_folder_in_its_place_stops_everything_and_is_said_to_be_none(home, root):
    (root / ".smartforkignore").mkdir()

    with pytest.raises(Usage, match="smartforkignore is not a file"):
        prepare(claude(home, root, *one_call(use("t1", "Bash", command="ls"), "x")), "claude", root)


# 4. Images


def test_images_are_left_out_unless_they_are_asked_for(home, root):
    shown = {"type": "image", "file": {"base64": "AAAA" * 100, "type": "image/png", "originalSize": 300}}
    log = claude(
        home,
        root,
        user("u1", None, [{"type": "text", "text": "look"}, PNG]),
        assistant("a1", "u1", use("t", "Read", file_path="a.png")),
        result("r1", "a1", "t", [PNG]) | {"toolUseResult": shown},
        assistant("a2", "r1", "a cat: data:image/gif;base64," + "R0lG" * 30),
    )
    out, records = sent(log, root)

    note = {"type": "text", "text": "[image dropped: png, 123 kB]"}
    assert [{"type": "text", "text": "look"}, note] == records[0]["message"]["content"]
    assert [note] == records[2]["message"]["content"][0]["content"]
    assert "[image dropped: png, 300 bytes]" == records[2]["toolUseResult"]
    assert "a cat: [image dropped: gif, 90 bytes]" == records[3]["message"]["content"][0]["text"]
    assert 4 == out.left_out[IMAGES]
    assert PNG in sent(log, root, images=True)[1][0]["message"]["content"]


def test_of_codex_as_well(home, root):
    url = "data:image/jpeg;base64," + "AAAA" * 100
    log = codex_log(
        home,
        NEW,
        meta(NEW, cwd=str(root)),
        item("message", role="user", content=[{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": url}]),
        enveloped("event_msg", type="user_message", message="look", images=[url], local_images=["/home/ada/cat.png"]),
        message("assistant", "a cat"),
    )  # fmt: skip
    out, records = sent(log, root, "codex")

    assert {"type": "input_text", "text": "[image dropped: jpeg, 300 bytes]"} == records[0]["payload"]["content"][1]
    assert ["[image dropped: jpeg, 300 bytes]"] == records[1]["payload"]["images"]
    assert "cat.png" not in json.dumps(records)
    assert 2 == out.left_out[IMAGES]


# 5. Paths


def test_paths_of_this_machine_become_marks_also_in_the_title(home, root):
    log = claude(home, root, *one_call(use("t", "Bash", command=f"cat {root}/a.py {home}/.bashrc"), "x"))
    out, records = sent(log, root)

    assert f"cat {ROOT}/a.py {HOME}/.bashrc" == records[1]["message"]["content"][0]["input"]["command"]
    assert ROOT == records[0]["cwd"]
    assert str(home).encode() not in b"".join(out.records)


# 6. Secrets


@pytest.mark.parametrize("went_out", [False, True])
def test_a_title_has_no_secret_that_only_the_words_around_it_tell_in_what_was_said(home, root, went_out):
    """Also if the messages around it were pushed before."""
    said = [user("u", None, "The database password is hunter2, please rotate it"), assistant("a", "u", "done")]
    named = {"type": "custom-title", "customTitle": "Rotate hunter2 to hunter22"}
    log = claude(home, root, *said, named)
    since = prepare(log, "claude", root).local if went_out else None
    out = prepare(log, "claude", root, since=since)

    assert "Rotate [REDACTED:password] to hunter22" == out.title
    assert "Call it [REDACTED:password]" == out.plain("Call it hunter2")


@pytest.mark.parametrize(
    "given",
    [
        {"command": f"curl -H 'Authorization: Bearer {GITHUB}'"},
        {"name": GITHUB},
        {"id": GITHUB},
        {GITHUB: 1},
        {"data": GITHUB},
        {"type": GITHUB},
        {"password": "hunter2-Orion9"},
        {"env": [{"name": "DB_PASSWORD", "value": "hunter2-Orion9"}]},
        {"argv": ["mysql", "--password", "hunter2-Orion9"]},
        {"text": json.dumps({"db": {"password": "hunter2-Orion9"}})},
        {"deep": {"er": [{"api_key": "hunter2-Orion9-aa77bb"}]}},
    ],
    ids=str,
)
def test_a_secret_is_masked_in_whatever_a_tool_was_given(home, root, given):
    log = claude(home, root, *one_call(use("t", "Do") | {"input": given}, "x", toolUseResult=given))
    out, records = sent(log, root)

    assert GITHUB not in json.dumps(records)
    assert "hunter2" not in json.dumps(records)
    assert "[REDACTED:" in json.dumps(records[1])
    assert "[REDACTED:" in json.dumps(records[2])
    assert sum(out.masked.values()) >= 2
    assert not any(GITHUB in shown or "hunter2" in shown for some in out.samples.values() for shown in some)


def test_codex_arguments_stay_json_when_they_are_masked(home, root):
    given = json.dumps({"cmd": ["login", "--token", GITHUB], "note": 'a "quoted" \\ line\n'})
    log = codex_log(
        home,
        NEW,
        meta(NEW, cwd=str(root)),
        message("user", "one"),
        item("function_call", call_id="c", name="shell", arguments=given),
        item("function_call_output", call_id="c", output=json.dumps({"output": f"token={GITHUB}", "metadata": {}})),
        message("assistant", "done"),
    )
    _, records = sent(log, root, "codex")

    assert 'a "quoted" \\ line\n' == json.loads(records[1]["payload"]["arguments"])["note"]
    assert "[REDACTED:" in json.loads(records[2]["payload"]["output"])["output"]
    assert GITHUB not in json.dumps(records)


def test_signed_thinking_with_a_secret_goes_whole_and_other_thinking_stays_byte_for_byte(home, root):
    kept = {"type": "thinking", "thinking": f"in {root}", "signature": "c2ln"}
    log = claude(
        home,
        root,
        user("u1", None, "one"),
        assistant("a1", "u1", {"type": "thinking", "thinking": f"the token is {GITHUB}", "signature": "c2ln"}),
        assistant("a2", "a1", kept, {"type": "thinking", "thinking": GITHUB, "signature": "c2ln"}, "done"),
    )
    out, records = sent(log, root)

    assert ["u1", "a2"] == [record["uuid"] for record in records]
    assert [kept, {"type": "text", "text": "done"}] == records[1]["message"]["content"]
    assert (1, 2) == (out.left_out["thoughts with a secret"], sum(out.masked.values()))


def test_encrypted_reasoning_stays_and_one_that_tells_a_secret_goes_with_it(home, root):
    log = codex_log(
        home,
        NEW,
        meta(NEW, cwd=str(root)),
        message("user", "one"),
        item("reasoning", id="rs_1", summary=[{"type": "summary_text", "text": "fine"}], encrypted_content="gAAA" * 20),
        item("reasoning", id="rs_2", summary=[{"type": "summary_text", "text": GITHUB}], encrypted_content="gAAA" * 20),
        enveloped("event_msg", type="agent_reasoning", text=GITHUB),
        message("assistant", "done"),
    )
    _, records = sent(log, root, "codex")

    assert [None, "rs_1", None] == [record["payload"].get("id") for record in records]
    assert "gAAA" * 20 == records[1]["payload"]["encrypted_content"]


def test_an_id_that_looks_like_a_secret_stops_everything(home, root):
    log = claude(home, root, *one_call(use(GITHUB, "Bash", command="ls"), "x"))

    with pytest.raises(Unshareable, match=r"Record 2: .* masked: id"):
        prepare(log, "claude", root)


def test_own_patterns_are_masked_and_what_is_allowed_is_not(home, root):
    log = claude(home, root, *one_call(use("t", "Bash", command=f"x ACME-123456 {GITHUB} {GITHUB[:-4]}zzzz"), "x"))
    configure(home, f'[team]\nredact = ["ACME-[0-9]{{6}}"]\nallow = ["{GITHUB}"]')
    out, records = sent(log, root)

    given = f"x [REDACTED:own-pattern] {GITHUB} [REDACTED:github-token]"
    assert given == records[1]["message"]["content"][0]["input"]["command"]
    assert {"own-pattern": 1, "github-token": 1} == out.masked


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[team]\nredacts = []", 'unknown key "redacts" in [team]. Known: never, redact, allow, auto_fork'),
        ("[team]\nredact = 'x'", "redact must be a list of texts"),
        ("[team]\nredact = ['[']", "is not a pattern"),
        ("[team]\nredact = ['x*']", "the empty text"),
        ("[team]\nallow = [3]", "allow"),
        ("[team]\nauto_fork = 'yes'", "auto_fork"),
        ("team = 3", "team must be a section, not 3"),
    ],
)
def test_a_setting_that_is_none_is_said_in_a_sentence_of_ours(home, text, said):
    configure(home, text)

    with pytest.raises(Usage, match=said.replace("[", r"\[")) as refused:
        config.sharing_rules()
    assert "pydantic" not in str(refused.value.message)


# Again


def test_only_what_is_new_goes_the_second_time(home, root):
    first = [user("u1", None, "one"), assistant("a1", "u1", GITHUB)]
    more = [user("u2", "a1", "two"), assistant("a2", "u2", "done")]
    before, _ = sent(claude(home, root, *first), root)
    out, records = sent(claude(home, root, *first, *more), root, since=before.local)

    assert ["u2", "a2"] == [record["uuid"] for record in records]
    assert (3, 4) == out.numbers
    assert not out.masked
    assert () == prepare(claude(home, root, *first, *more), "claude", root, since=out.local).records


@pytest.mark.parametrize("now", ["other", "gone"])
def test_what_went_out_before_and_is_another_here_now_is_refused(home, root, now):
    first = [user("u1", None, "one"), assistant("a1", "u1", "done")]
    more = [user("u2", "a1", "two"), assistant("a2", "u2", "done")]
    before, _ = sent(claude(home, root, *first, *more), root)
    log = (
        claude(home, root, *first) if now == "gone" else claude(home, root, *first, more[0], assistant("a2", "u2", "x"))
    )

    with pytest.raises(Conflict, match="have changed here"):
        prepare(log, "claude", root, since=before.local)


def test_what_is_prepared_says_of_which_session(home, root):
    out, _ = sent(claude(home, root, *one_call(use("t", "Edit", file_path=f"{root}/a.py"), "x")), root)

    assert isinstance(out.session, Session)
    assert (f"{root}/a.py",) == out.files
    assert out.size == sum(map(len, out.records))
