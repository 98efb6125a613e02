"""A text in several parts of a log is masked as one text before it is shared."""

import base64
import json

import pytest

from tests.indexer.masking.invented_secrets import ALNUM, KEY_BEGIN, KEY_END, made_up
from tests.indexer.transcripts.records import SESSION, item, message, meta
from tests.smart_fork.team.outgoing_logs import assistant, claude, codex_log, one_call, result, sent, use, user

BODY = [made_up(64, ALNUM + "+/", seed) for seed in range(11, 17)]
KEY = [KEY_BEGIN.format("RSA "), *BODY, KEY_END.format("RSA ")]
TEXT = "\n".join(KEY)
NUMBERED = "\n".join(f"{number:6}\u2192{line}" for number, line in enumerate(KEY, 1))


def hunk(*lines: str) -> dict:
    return {"oldStart": 1, "oldLines": len(lines), "newStart": 1, "newLines": len(lines), "lines": list(lines)}


def edited(**told: object) -> tuple[dict, ...]:
    return one_call(use("t", "Edit", file_path="id_rsa"), "done", toolUseResult=told)


FORMS = {
    "a patch that puts it there": edited(structuredPatch=[hunk(*(f"+{line}" for line in KEY))]),
    "a patch that takes it away": edited(structuredPatch=[hunk(*(f"-{line}" for line in KEY))]),
    "the lines around a change": edited(structuredPatch=[hunk("-old", "+new", *(f" {line}" for line in KEY))]),
    "a patch in the midst of it": edited(
        originalFile=TEXT, structuredPatch=[hunk(f" {BODY[2]}", f"-{BODY[3]}", f"+{made_up(64)}", f" {BODY[4]}")]
    ),
    "lines that follow each other": one_call(use("t", "Write", lines=KEY), "done"),
    "objects with a line each": one_call(use("t", "Grep"), [{"type": "text", "text": line} for line in KEY]),
    "a numbered listing": one_call(use("t", "Read", file_path="id_rsa"), NUMBERED),
    "a text in a text": one_call(use("t", "Call", arguments=json.dumps(json.dumps({"key": TEXT}))), "done"),
    "lines in a text": one_call(
        use("t", "Call", arguments=json.dumps({"lines": [f"+{line}" for line in KEY]})), "done"
    ),
    "base64": one_call(use("t", "Bash", command=f"echo {base64.b64encode(TEXT.encode()).decode()} | base64 -d"), "ok"),
    "a part that was read before": (
        user("u1", None, "please"),
        assistant("a1", "u1", use("t", "Read", file_path="id_rsa")),
        result("r1", "a1", "t", NUMBERED),
        assistant("a2", "r1", use("e", "Edit", file_path="id_rsa", old_string=BODY[3], new_string="")),
        result("r2", "a2", "e", "done"),
        assistant("a3", "r2", "done"),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_no_line_of_a_private_key_leaves_in_any_form(home, root, form):
    out, records = sent(claude(home, root, *FORMS[form]), root)
    left = json.dumps(records)

    assert out.masked["private-key"]
    assert not [line for line in BODY if line in left]
    assert base64.b64encode(TEXT.encode()).decode()[40:80] not in left


def test_no_line_of_a_private_key_leaves_in_a_codex_patch(home, root):
    patch = "*** Begin Patch\n*** Add File: id_rsa\n" + "".join(f"+{line}\n" for line in KEY) + "*** End Patch"
    call = item(
        "function_call",
        name="shell",
        call_id="c1",
        arguments=json.dumps({"command": ["apply_patch", *patch.split("\n")]}),
    )
    done = item(
        "function_call_output", call_id="c1", output=json.dumps({"output": "\n".join(f" {line}" for line in KEY)})
    )
    about = meta(SESSION, cwd=str(root))
    log = codex_log(home, SESSION, about, message("user", "please"), call, done, message("assistant", "done"))
    _, records = sent(log, root, "codex")

    assert not [line for line in BODY if line in json.dumps(records)]
