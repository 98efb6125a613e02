from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_fork.errors import Usage
from smart_fork.sharing.canonical import check_key, project_key
from tests.support.cases import parametrize_subtests


@parametrize_subtests(
    "remote",
    [
        "git@github.com:acme/shop.git",
        "git@GitHub.com:acme/shop",
        "github.com:acme/shop.git",
        "git@github.com:/acme/shop.git",
        "https://github.com/acme/shop.git",
        "https://github.com/acme/shop/",
        "https://github.com//acme//shop",
        "https://alice:tok%40en@github.com/acme/shop.git",
        "https://github.com:443/acme/shop?ref=main#readme",
        "HTTPS://GITHUB.COM./acme/shop.git",
        "https://github.com/acme/shop.git.git",
        "http://github.com:8080/acme/shop",
        "ssh://git@github.com:22/acme/shop.git",
        "ssh://github.com/acme/shop",
        "git+ssh://git@github.com/acme/shop",
        "git://github.com/acme/shop.git",
        "https://github.com/acme/%73hop.git",
        "  git@github.com:acme/shop.git\n",
    ],
)
def test_all_ways_to_write_a_remote_are_one_project(remote):
    assert "github.com/acme/shop" == project_key(remote)


@parametrize_subtests(
    ("remote", "key"),
    [
        ("git@gitlab.example.org:group/sub/group/app.git", "gitlab.example.org/group/sub/group/app"),
        ("ssh://git@[2001:DB8::1]:2222/srv/app.git", "[2001:db8::1]/srv/app"),
        ("git@[::1]:srv/app.git", "[::1]/srv/app"),
        ("https://git.example.org/~alice/app", "git.example.org/~alice/app"),
        ("https://dev.azure.com/acme/My%20Project/_git/app", "dev.azure.com/acme/My Project/_git/app"),
        ("https://bücher.example/läden/app", "xn--bcher-kva.example/läden/app"),
        ("https://github.com/Acme/Shop", "github.com/Acme/Shop"),
        ("https://github.com/acme/.github", "github.com/acme/.github"),
        ("server:app.git", "server/app"),
    ],
)
def test_a_remote_keeps_what_tells_it_from_others(remote, key):
    assert key == project_key(remote)
    assert key == check_key(key)


HOSTILE = [
    "",
    " ",
    "/srv/git/app.git",
    "./app",
    "../app",
    "~/app",
    "file:///srv/git/app.git",
    "C:\\code\\app",
    "C:/code/app",
    "\\\\server\\share\\app",
    "ext::sh -c 'touch /tmp/x'",
    "fd::17",
    "-oProxyCommand=touch:app",
    "ssh://-oProxyCommand=touch/app",
    "https://github.com",
    "https://github.com/",
    "https:///acme/shop",
    "https://github.com/acme/../../etc",
    "https://github.com/%2e%2e/shop",
    "https://github.com/acme%2f..%2fshop",
    "https://github.com/acme/shop%00",
    "https://github.com/acme/\x1b[31mshop",
    "https://github.com/acme/shop%0a",
    "https://github.com/%ff/shop",
    "https://git..hub.com/acme/shop",
    "https://github.com/a\u202eb/shop",
    "https://git hub.com/acme/shop",
    "https://github.com/a/" + "x" * 300,
    "https://github.com/a" * 1000,
    "javascript://github.com/acme/shop",
    "https://github.com/.git",
    "host:...",
]


@parametrize_subtests("remote", HOSTILE)
def test_what_is_no_place_on_a_network_is_refused(remote):
    with pytest.raises(Usage):
        project_key(remote)


@parametrize_subtests(
    "key",
    [
        "",
        "github.com",
        "GitHub.com/a/b",
        "github.com/a/b.git",
        "github.com//a",
        "/a/b",
        "a/../b",
        "github.com/a/",
        "github.com:22/a",
    ],
)
def test_a_key_that_no_remote_has_is_refused(key):
    with pytest.raises(Usage):
        check_key(key)


@given(
    st.text(max_size=60)
    | st.from_regex(r"(https|ssh)://[a-z@:%.]{1,9}/[a-z./%@:]{0,12}")
    | st.from_regex(r"[a-z@.:/-]{1,20}")
)
def test_whatever_becomes_a_key_stays_that_key_and_is_no_path_upwards(remote):
    try:
        key = project_key(remote)
    except Usage:
        return
    assert key == project_key(f"https://{key}") == check_key(key)
    assert not {"", ".", ".."} & set(key.split("/"))
    assert key.isprintable()
