"""Authorization: invitations, tokens, projects and their members."""

from __future__ import annotations

import base64
from hashlib import sha256

import pytest

from smart_fork.errors import NotAuthenticated, NotFound, Usage, WrongVerb
from smart_fork.team.server import administration, auth


@pytest.fixture
def db(team):
    with team.pool.transaction() as connection:
        yield connection


@pytest.fixture
def name(db, team):
    name = f"dora-{team.mark}"
    auth.add_user(db, name)
    return name


def test_an_invitation_is_good_once(db, name):
    invitation = auth.invite(db, name)
    who, token, scope = auth.login(db, invitation, "laptop")

    assert (name, "write") == (who, scope)
    assert name == auth.token_owner(db, token).name
    with pytest.raises(NotAuthenticated, match="This invitation is invalid"):
        auth.login(db, invitation, "laptop")


def test_an_invitation_is_good_for_seven_days(db, name):
    invitation = auth.invite(db, name)
    db.execute("UPDATE invites SET expires_at = expires_at - interval '6 days 23 hours'")
    fresh = auth.login(db, invitation, "laptop")[1]
    old = auth.invite(db, name)
    db.execute("UPDATE invites SET expires_at = expires_at - interval '7 days'")

    assert auth.token_owner(db, fresh)
    with pytest.raises(NotAuthenticated):
        auth.login(db, old, "laptop")


def test_of_a_secret_the_hash_alone_is_stored(db, name):
    invitation = auth.invite(db, name)
    token = auth.login(db, invitation, "laptop")[1]
    random = base64.urlsafe_b64decode(token.removeprefix("sft_") + "=")
    tables = [str(db.execute(f"SELECT * FROM {table}").fetchall()) for table in ("users", "tokens", "invites")]  # noqa: S608

    assert 32 == len(random)
    stored = [row["hash"] for row in db.execute("SELECT hash FROM tokens")]
    assert sha256(token.encode()).digest() in stored
    for secret in (token, invitation, str(random), random.hex()):
        assert not any(secret in table for table in tables)


@pytest.mark.parametrize(
    "forged", ["", "sft_", "sft_AAAA", "sft_" + "A" * 43, "sft_" + "ä" * 43, "sfi_" + "A" * 43, "A" * 43]
)
def test_what_is_no_token_is_nobodys(db, forged):
    with pytest.raises(NotAuthenticated, match=r"Not authenticated\. Please run smart-fork team login first\."):
        auth.token_owner(db, forged)


def test_an_invitation_is_no_token_and_a_token_no_invitation(db, name):
    invitation = auth.invite(db, name)
    with pytest.raises(NotAuthenticated):
        auth.token_owner(db, invitation.replace("sfi_", "sft_"))
    token = auth.login(db, invitation, "laptop")[1]
    with pytest.raises(NotAuthenticated):
        auth.login(db, token.replace("sft_", "sfi_"), "laptop")


@pytest.mark.parametrize("end", ["revoked", "too old", "disabled"])
def test_a_token_ends(db, name, end):
    token = auth.login(db, auth.invite(db, name), "laptop")[1]
    invitation = auth.invite(db, name)
    number = auth.token_owner(db, token).token
    if end == "revoked":
        auth.revoke(db, number)
    elif end == "too old":
        db.execute("UPDATE tokens SET expires_at = now() WHERE id = %s", (number,))
    else:
        auth.disable_user(db, name)
        with pytest.raises(NotAuthenticated):
            auth.login(db, invitation, "laptop")

    with pytest.raises(NotAuthenticated):
        auth.token_owner(db, token)


@pytest.mark.parametrize("wrong", ["", "Dora", "d" * 33, "dora smith", "dora\n", "../x"])
def test_a_name_that_is_none_is_refused(db, wrong):
    with pytest.raises(Usage):
        auth.add_user(db, wrong)


def test_a_name_is_given_once(db, name):
    with pytest.raises(Usage, match="already"):
        auth.add_user(db, name)


def test_who_is_not_there_is_not_found(db, team):
    for ask in (auth.invite, auth.disable_user):
        with pytest.raises(NotFound, match="User not found: nemo"):
            ask(db, "nemo")
    with pytest.raises(NotFound, match="Token not found"):
        auth.revoke(db, 0)
    with pytest.raises(NotFound, match="Project not found"):
        auth.set_member(db, "example.org/none", "nemo", "reader")


@pytest.mark.parametrize("needed", ["read", "write", "admin"])
@pytest.mark.parametrize("scope", ["read", "write", "admin"])
def test_a_token_does_what_it_is_for(db, name, scope, needed):
    person = auth.token_owner(db, auth.login(db, auth.invite(db, name, scope), "laptop")[1])
    order = ["read", "write", "admin"]
    if order.index(scope) >= order.index(needed):
        person.needs(needed)
        return
    with pytest.raises(WrongVerb):
        person.needs(needed)


def test_an_admin_is_one_with_an_admins_token_alone(db, team):
    name = f"root-{team.mark}"
    auth.add_user(db, name, admin=True)

    assert not auth.token_owner(db, auth.login(db, auth.invite(db, name, "write"), "laptop")[1]).admin
    assert auth.token_owner(db, auth.login(db, auth.invite(db, name, "admin"), "laptop")[1]).admin


def test_the_first_pusher_makes_the_project_and_is_its_maintainer(team):
    alice, bob = team.add("alice"), team.add("bob")
    key = team.key + "/new"
    with team.pool.transaction(alice.id) as db:
        assert "maintainer" == auth.project_to_push(db, alice, key).role
        assert "maintainer" == auth.project_to_push(db, alice, key).role
        with pytest.raises(NotFound, match="Project not found"):
            auth.project_to_push(db, bob, key)


def test_where_admins_make_projects_nobody_else_does(team):
    alice, root = team.add("alice"), team.add("root", admin=True)
    with team.pool.transaction(alice.id) as db:
        with pytest.raises(NotFound):
            auth.project_to_push(db, alice, team.key + "/new", anybody=False)
        assert "maintainer" == auth.project_to_push(db, root, team.key + "/new", anybody=False).role


def test_a_project_of_others_is_answered_as_one_that_is_not_there(team):
    team.add("alice")
    stranger = team.add("stranger", None)
    with team.pool.transaction(stranger.id) as db:
        texts = set()
        for key in (team.key, "example.org/nothing"):
            with pytest.raises(NotFound) as refused:
                auth.project(db, stranger, key)
            texts.add((refused.value.message.replace(key, "KEY"), refused.value.hint))
    assert 1 == len(texts)


def test_a_member_is_one_until_an_admin_says_otherwise(team):
    team.add("alice")
    assert "writer" == team.project("alice").role
    with team.pool.transaction() as db:
        auth.set_member(db, team.key, team.people["alice"].name, "reader")
    assert "reader" == team.project("alice").role
    with team.pool.transaction() as db:
        auth.set_member(db, team.key, team.people["alice"].name, None)
    with pytest.raises(NotFound):
        team.project("alice")


def test_who_is_disabled_gets_no_invitation_that_nobody_could_use(db, name):
    auth.disable_user(db, name)
    with pytest.raises(Usage, match="is disabled"):
        auth.invite(db, name)


def test_who_is_added_to_a_project_reads_and_writes_it_and_the_first_maintains_it(db, team):
    key = f"example.org/new/{team.mark}"
    first, second = (
        administration.add(db, f"{name}-{team.mark}", admin=False, project=key) for name in ("erik", "fay")
    )

    assert ("maintainer", "writer") == (first["project_role"], second["project_role"])
    for told in (first, second):
        _, token, _ = auth.login(db, told["invite"], "laptop")
        assert told["project_role"] == auth.project(db, auth.token_owner(db, token), key).role


def test_nobody_is_added_whose_project_is_none(db, team):
    with pytest.raises(Usage):
        administration.add(db, f"gus-{team.mark}", admin=False, project="shop")
    assert not any(one["name"] == f"gus-{team.mark}" for one in administration.users(db))
