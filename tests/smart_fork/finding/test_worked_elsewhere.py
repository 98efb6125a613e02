"""Tests that a session is found from every repository it worked in, only by its work there."""

from __future__ import annotations

import contextvars
import json
import shutil
from dataclasses import replace

import pytest

from indexer.pipeline import document_of
from indexer.project import project_of
from indexer.safe_files import index_db
from indexer.store.sqlite import Store
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.request_fields import Options
from smart_fork.errors import NotFound
from smart_fork.finding import project_places
from smart_fork.finding.recent import list_recent, recent_sessions
from smart_fork.finding.session_lookup import locate
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import ForkRequest
from smart_fork.system import call_context
from tests.smart_fork.world import Did, git

ASKED, DONE = "> Have the mailer sign its messages", "The mailer signs with DKIM."
BEFORE = ("> Feed the llamas of the zoo", "The llamas have eaten.")


def claude(world, began, *steps, moved=None, said=BEFORE):
    """Write a session that begins in one folder and then does this; `moved` is the agent's directory afterwards."""
    session = world.worked("claude", began, *said, ASKED, *steps, DONE)
    records = [json.loads(line) for line in world.log_of(session).read_text().splitlines()]
    for record in records[len(said) :]:
        record["cwd"] = str(moved or began)
    world.write_claude(session, began, records)
    return session


def edits(world, shop, began):
    return claude(world, began, Did("Edit", {"file_path": f"{shop}/mailer.py", "old_string": "a", "new_string": "b"}))


def goes_there(world, shop, began):
    return claude(world, began, Did("Bash", {"command": f"cd {shop} && pytest -q"}, "3 passed"))


def commits_from_outside(world, shop, began):
    return claude(world, began, Did("Bash", {"command": f"git -C '{shop}' commit -am Sign"}, "[main 1234567] Sign"))


def writes_with_a_shell(world, shop, began):
    return claude(world, began, Did("Bash", {"command": f"cat > {shop}/mailer.py <<'EOF'\nsign()\nEOF"}))


def fails_its_tests(world, shop, began):
    return claude(world, began, Did("Bash", {"command": f"cd {shop}; pytest"}, "Exit code 1\n1 failed", failed=True))


def is_moved_there(world, shop, began):
    return claude(world, began, moved=shop)


def in_a_worktree_that_is_gone(world, shop, began):
    git(shop, "worktree", "add", "-q", "-f", world.home / "shop-signing")
    shutil.rmtree(world.home / "shop-signing", ignore_errors=True)
    project_places.note([str(shop)])  # as when any session of it is read
    return claude(world, began, Did("Write", {"file_path": f"{world.home}/shop-signing/mailer.py", "content": "b"}))


def has_it_as_its_commands_directory(world, shop, began):
    ran = Did(
        "exec_command", {"cmd": "pytest -q", "workdir": str(shop)}, "Process exited with code 0\nOutput:\n3 passed"
    )
    return world.worked("codex", began, *BEFORE, ASKED, ran, DONE)


def patches_it(world, shop, began):
    patch = f"*** Begin Patch\n*** Update File: {shop}/mailer.py\n@@\n-a\n+b\n*** End Patch\n"
    return world.worked("codex", began, *BEFORE, ASKED, Did("apply_patch", patch), DONE)


def goes_on_there(world, shop, began):
    session = world.worked("codex", began, *BEFORE, ASKED, DONE)
    *first, asked, done = world.log_of(session).read_text().splitlines()
    turn = {"timestamp": world.now(), "ordinal": 90, "type": "turn_context", "payload": {"cwd": str(shop)}}
    world.log_of(session).write_text("\n".join([*first, json.dumps(turn), asked, done]) + "\n")
    return session


WAYS = (
    edits, goes_there, commits_from_outside, writes_with_a_shell, fails_its_tests, is_moved_there,
    in_a_worktree_that_is_gone, has_it_as_its_commands_directory, patches_it, goes_on_there,
)  # fmt: skip


@pytest.mark.parametrize("begun", ["beside", "above"])
@pytest.mark.parametrize("works", WAYS)
def test_it_is_found_from_there_by_what_it_did_there(world, shop, works, begun):
    began = world.repository("zoo") if begun == "beside" else world.home
    session = works(world, shop, began)
    [unread] = list_recent("all", str(shop), 10).sessions
    [hit] = world.find("mailer sign messages", shop)["results"]
    [listed] = list_recent("all", str(shop), 10).sessions
    assert {hit["session_id"], unread.session_id, listed.session_id} == {session}
    assert {hit["title"], unread.title, listed.title} == {ASKED.removeprefix("> ")}
    assert {hit["began_in"], unread.began_in, listed.began_in} == {str(began)}
    assert hit["working_directory"] == str(began)  # there its agent finds it
    assert "llama" not in json.dumps(world.find("feed the llamas of the zoo", shop)["results"])


def test_from_its_own_place_and_from_everywhere_it_is_one_session_as_it_was(world, shop):
    zoo = world.repository("zoo")
    edits(world, shop, zoo)
    for where in ({"project": zoo}, {"project": zoo, "all_projects": True}):
        [hit] = world.find("feed the llamas", **where)["results"]
        assert (hit["title"], hit.get("began_in")) == ("Feed the llamas of the zoo", None)


def reads(world, shop, began):
    return claude(
        world, began, Did("Read", {"file_path": f"{shop}/mailer.py"}), Did("Grep", {"pattern": "sign", "path": str(shop)}),
        Did("Bash", {"command": f"cd {shop} && cat mailer.py && git log; grep -rn sign {shop}; git -C {shop} status"}),
    )  # fmt: skip


def speaks_of_it(world, shop, began):
    return world.worked("claude", began, f"> Have the mailer in {shop} sign its messages", f"cd {shop}; edit mailer.py")


def edits_one_whose_name_is_longer(world, shop, began):
    return edits(world, world.repository("shop-old"), began)


def edits_one_of_its_name(world, shop, began):
    return edits(world, world.repository("other/shop"), began)


def was_refused(world, shop, began):
    said = "The user doesn't want to proceed with this tool use."
    return claude(world, began, Did("Write", {"file_path": f"{shop}/x.py", "content": "b"}, said, failed=True))


def looks_from_there_and_comes_back(world, shop, began):
    session = reads(world, shop, began)
    records = [json.loads(line) for line in world.log_of(session).read_text().splitlines()]
    records[-3]["cwd"] = str(shop)
    world.write_claude(session, began, records)
    return session


LOOK_ALIKES = (
    reads, speaks_of_it, edits_one_whose_name_is_longer, edits_one_of_its_name, was_refused,
    looks_from_there_and_comes_back,
)  # fmt: skip


@pytest.mark.parametrize("works", LOOK_ALIKES)
def test_what_only_looks_like_work_there_is_not_found_from_there(world, shop, works):
    works(world, shop, world.repository("zoo"))
    assert list_recent("all", str(shop), 10).sessions == ()
    assert world.ids("mailer sign messages", shop) == []
    assert list_recent("all", str(shop), 10).sessions == ()


def test_what_it_did_in_each_of_two_repositories_stays_there(world, shop):
    zoo, farm = world.repository("zoo"), world.repository("farm")
    fed = Did("Write", {"file_path": f"{farm}/hens.py", "content": "feed()"})
    claude(world, zoo, Did("Write", {"file_path": f"{shop}/mailer.py", "content": "b"}), said=("> Feed the hens", fed))
    assert [hit["title"] for hit in world.find("hens or mailer", farm)["results"]] == ["Feed the hens"]
    assert [hit["title"] for hit in world.find("hens or mailer", shop)["results"]] == [ASKED.removeprefix("> ")]


@pytest.mark.slow
def test_one_that_goes_on_stays_in_the_list(world, shop):
    zoo = world.repository("zoo")
    session = claude(world, zoo, moved=shop, said=(*BEFORE, f"> {'straw ' * 90_000}", "So much straw."))
    assert world.ids("mailer", shop) == [session]
    with world.log_of(session).open("a") as log:
        more = world.claude_records(session, zoo, "Feed them again", "They have eaten.")
        log.writelines(json.dumps(one) + "\n" for one in more)
    assert [one.session_id for one in list_recent("all", str(shop), 10).sessions] == [session]


def rows_of(home):
    store = Store(index_db())
    try:
        return store.db.execute("SELECT count(*) FROM sessions WHERE home NOT NULL").get
    finally:
        store.close()


def test_read_on_it_is_what_it_is_when_it_is_read_again(world, shop):
    zoo = world.repository("zoo")
    session = edits(world, shop, zoo)
    log = world.log_of(session)
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:2]))
    assert world.ids("mailer", shop) == []
    log.write_text("".join(lines))
    grown = world.find("mailer", shop)["results"]
    index_db().unlink()
    again = world.find("mailer", shop)["results"]
    assert [hit["session_id"] for hit in grown] == [session]
    assert grown == again


def test_with_the_session_goes_what_it_did_elsewhere(world, shop):
    zoo = world.repository("zoo")
    session = edits(world, shop, zoo)
    assert world.ids("mailer", shop) == [session]
    world.write_claude(session, zoo, world.claude_records(session, zoo, "Feed the llamas", "They have eaten."))
    assert world.ids("mailer", shop) == []
    assert rows_of(world.home) == 0
    world.log_of(session).unlink()
    edits(world, shop, zoo)
    assert len(world.ids("mailer", shop)) == 1
    store = Store(index_db())
    for agent, name, _ in store.sources():
        store.forget_session(agent, name)
    assert store.db.execute("SELECT count(*) FROM chunks JOIN parts ON parts.id = part").get <= 1
    store.close()
    assert rows_of(world.home) == 0


def test_what_is_shared_of_a_repository_is_not_what_was_begun_elsewhere(world, shop):
    edits(world, shop, world.repository("zoo"))
    assert recent_sessions([*READERS], project_of(shop), 10).sessions == []


def test_what_somebody_else_says_in_a_repository_is_no_sign_for_another_one(world, shop):
    session = edits(world, shop, world.repository("zoo"))
    read = READERS["claude"].read(world.log_of(session)).session
    assert len(document_of(read, READERS)[0].guests) == 1
    assert document_of(replace(read, received=True), READERS)[0].guests == ()


def test_a_fork_of_it_works_where_it_was_begun_and_says_so(world, shop, monkeypatch):
    zoo = world.repository("zoo")
    session = edits(world, shop, zoo)
    for place, told in ((shop, True), (zoo, False)):
        monkeypatch.chdir(place)
        planned = fork_session(ForkRequest(session, Options("go on", place="process"), dry_run=True))
        said = f"It worked in {shop}, but began in {zoo}: the fork works there"
        assert (planned.cwd, any(said in one for one in planned.warnings)) == (str(zoo), told)


def test_who_may_read_one_repository_alone_sees_only_what_was_done_there(world, shop):
    session = edits(world, shop, world.repository("zoo"))

    def ask():
        call_context.limit_to(call_context.permitted([str(shop)]))
        found = world.find("mailer sign, or feed llamas", shop)["results"]
        with pytest.raises(NotFound):
            locate(session)
        return found

    [hit] = contextvars.copy_context().run(ask)
    assert (hit["session_id"], hit["can_fork"]) == (session, False)
    assert "may not read" in hit["warning"]
    assert "llama" not in json.dumps(hit).lower()


def test_who_wrote_a_line_is_known_where_the_line_is(world, shop):
    (shop / "mailer.py").write_text("signature = sign_with_dkim(message, selector)\n")
    wrote = Did("Write", {"file_path": f"{shop}/mailer.py", "content": (shop / "mailer.py").read_text()})
    session = claude(world, world.repository("zoo"), wrote)
    git(shop, "add", "mailer.py")
    git(shop, "-c", "user.name=Nia", "-c", "user.email=nia@example.org", "commit", "-qm", "Sign")
    assert world.ids("", shop, lines=(f"{shop}/mailer.py:1",)) == [session]
