"""The file ``.smartforkignore``: its patterns mean what they mean to git, and none takes long."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from indexer.transcripts.model import UsedTool
from smart_fork.agents.portable_records import HomePlace
from smart_fork.errors import Usage
from smart_fork.sharing.ignore_file import IGNORE_FILE, ignore_rules
from tests.support.cases import thorough_except_first
from tests.support.exhaustive import full_or_sample

#: A pattern in its parts, and paths of the same few letters: so they often nearly match.
PARTS = st.lists(st.sampled_from(["*", "**", "a", "b", "?", "[ab]", "ab", "\\*"]), min_size=1, max_size=6)
PATTERNS = st.lists(PARTS.map("".join), min_size=1, max_size=5).map("/".join)
LINES = st.tuples(st.sampled_from(["", "!", "/", "**/"]), PATTERNS, st.sampled_from(["", "/", "/**", " "])).map("".join)
NAMES = st.lists(st.text("ab*.", min_size=1, max_size=6), min_size=1, max_size=5).map("/".join)


def spec_of(folder, *lines):
    (folder / IGNORE_FILE).write_text("\n".join(lines))
    return ignore_rules(HomePlace(str(folder), "/home/ada"))


@given(lines=st.lists(LINES, min_size=1, max_size=3), names=st.lists(NAMES, min_size=1, max_size=5))
@settings(max_examples=full_or_sample(400, 100), deadline=None)
@pytest.mark.slow
def test_patterns_match_the_names_that_they_match_in_gitignore(tmp_path_factory, lines, names):
    folder = tmp_path_factory.getbasetemp()
    known = GitIgnoreSpec.from_lines(lines)
    ours = spec_of(folder, *lines)

    for name in (*names, *(f"{one}/" for one in names)):
        expected = known.match_file(name)
        assert expected == (ours is not None and ours._spec.match_file(name)), (lines, name)


SLOW = {
    "eight stars and a name of 50 characters": ("*a" * 8 + "b", "a" * 50),
    "stars without end and a long name": ("*a" * 149 + "b", "a" * 990),
    "folders at any depth": ("/".join(["**/a"] * 58) + "/b", "/".join(["a"] * 490)),
    "stars in folders at any depth": ("/".join(["**/*a*a*a"] * 25) + "/b", "/".join(["aaaa"] * 190)),
    "marks between stars": ("*?[ab]" * 40 + "c", "ab" * 490),
    "classes between stars": ("*[!c]" * 50 + "c", "ab" * 490),
}


@pytest.mark.parametrize(("pattern", "name"), thorough_except_first(SLOW.values()), ids=SLOW)
def test_no_pattern_takes_long(tmp_path, pattern, name):
    """In a process that the system ends after five seconds of CPU time."""
    (tmp_path / IGNORE_FILE).write_text(pattern)
    script = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (5, 5))\n"
        "from indexer.transcripts.model import UsedTool\n"
        "from smart_fork.agents.portable_records import HomePlace\n"
        "from smart_fork.sharing.ignore_file import ignore_rules\n"
        "found = ignore_rules(HomePlace(sys.argv[1], '/home/ada'))\n"
        "print(repr(found.named_by(UsedTool('1', '', {'file_path': sys.argv[2]}), sys.argv[1])))\n"
    )

    command = [sys.executable, "-c", script, str(tmp_path), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (0, "''") == (done.returncode, done.stdout.strip()), done.stderr


def test_a_pattern_of_many_stars_withholds_what_it_names(tmp_path):
    found = spec_of(tmp_path, "*a*b*c*d*e*f*g*h*i*.pem", "**/x/**/y*z/**/k*.key")

    def named(path):
        return found.named_by(UsedTool("1", "", {"file_path": path}), str(tmp_path))

    assert "keys/a-b-c-d-e-f-g-h-i-1.pem" == named("keys/a-b-c-d-e-f-g-h-i-1.pem")
    assert "p/x/q/y1z/r/s/k9.key" == named("p/x/q/y1z/r/s/k9.key")
    assert "" == named("p/x/q/y1/r/s/k9.key")


@pytest.mark.parametrize("pattern", ["*[!a]*/[!a]", "a[!b]*.", "a[.-0]a*."])
def test_a_class_matches_no_slash_as_in_git(tmp_path, pattern):
    assert not spec_of(tmp_path, pattern)._spec.match_file("a./a/.")


def test_classes_withhold_what_they_name(tmp_path):
    found = spec_of(tmp_path, "*[!a-y]*[xz]*.k[ei]y", "\\[x]*")

    matched = [name for name in ("q/az1z.key", "aa.kay", "z-x.kiy", "[x]1", "x1") if found._spec.match_file(name)]
    assert ["q/az1z.key", "z-x.kiy", "[x]1"] == matched


def test_a_line_that_is_too_long_is_refused_with_its_length(tmp_path):
    with pytest.raises(Usage, match="a line of 301 characters, 300 at most"):
        spec_of(tmp_path, "a" * 301)
