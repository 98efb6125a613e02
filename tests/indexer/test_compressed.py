"""A compressed copy of a file."""

import os
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.kept_logs import CompressedFile, DamagedCopyError, pieces, up_to_date
from tests.support.cases import parametrize_subtests

TEXT = st.binary(max_size=200) | st.sampled_from([b"", b"\n", b'{"type": "user"}\n' * 50])
FACTS = {"name": "0" * 16 + ".zst", "size": 1, "mtime_ns": 1, "inode": 1, "length": 1}
STEPS = st.lists(
    st.tuples(st.sampled_from(["grow", "cut", "replace", "change", "touch"]), TEXT, st.integers(0, 300)),
    max_size=14,
)


@given(steps=STEPS)
def test_any_sequence_of_growth_truncation_and_replacement_gives_back_the_exact_bytes(tmp_path_factory, steps):
    """D17."""
    folder = tmp_path_factory.mktemp("copy")
    source = folder / "log.jsonl"
    source.write_bytes(b"")
    copy = up_to_date(source, folder, None)
    for number, (what, data, place) in enumerate(steps):
        old = source.read_bytes()
        if what == "replace":
            source.unlink()
        changed = {
            "grow": old + data,
            "cut": old[:place],
            "replace": data,
            "change": old[:place] + data + old[place:],
        }
        source.write_bytes(changed.get(what, old))
        os.utime(source, ns=(number * 10**9, number * 10**9))
        before, copy = copy, up_to_date(source, folder, copy)
        assert old == b"".join(pieces(folder, before))  # what was true of it is still true
        if before.name != copy.name:
            (folder / before.name).unlink()
        assert source.read_bytes() == b"".join(pieces(folder, copy))
        assert copy == up_to_date(source, folder, copy)
        assert copy == CompressedFile.from_json(asdict(copy))
        assert 0o600 == (folder / copy.name).stat().st_mode & 0o777


def test_a_damaged_copy_is_noticed(tmp_path):
    source = tmp_path / "log"
    source.write_bytes(os.urandom(50_000))
    copy = up_to_date(source, tmp_path, None)
    whole = (tmp_path / copy.name).read_bytes()
    for damaged in (
        whole[:-9],
        whole[:100],
        b"",
        whole[:50] + bytes([whole[50] ^ 255]) + whole[51:],
        b"not zstd at all",
    ):
        (tmp_path / copy.name).write_bytes(damaged)
        with pytest.raises(DamagedCopyError):
            list(pieces(tmp_path, copy))
    (tmp_path / copy.name).write_bytes(whole)
    with pytest.raises(DamagedCopyError):
        list(pieces(tmp_path, replace(copy, size=49_999)))
    (tmp_path / copy.name).write_bytes(whole[:100])
    source.write_bytes(source.read_bytes() + b"more")
    assert source.read_bytes() == b"".join(pieces(tmp_path, up_to_date(source, tmp_path, copy)))


@parametrize_subtests(
    "facts", [{}, [], "name", FACTS | {"name": "../../x"}, FACTS | {"size": "x"}, FACTS | {"name": 1}, FACTS | {"x": 1}]
)
def test_facts_that_are_none_are_refused(facts):
    with pytest.raises((ValueError, TypeError)):
        CompressedFile.from_json(facts)
