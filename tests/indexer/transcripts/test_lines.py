"""Reading lines that another program writes (F-156)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from indexer.safe_files import open_regular
from indexer.transcripts import lines
from indexer.transcripts.base import odd_files, regular_file, regular_files, stamp_of
from indexer.transcripts.lines import LineReader
from tests.support.cases import thorough_except_first
from tests.support.exhaustive import full_or_sample

PIECES = st.lists(
    st.sampled_from(
        [
            b'{"a":1}',
            b'{"b":"\xc3\xa4"}',
            b"{}",
            b"\n",
            b"\r\n",
            b" ",
            b"{",
            b"}",
            b'"',
            b"[1]",
            b"null",
            b"12",
            b"\x00",
            b"\xff",
            b"\xef\xbb\xbf",
            b'{"s":"\\ud83d"}',
            b'{"n":1e999}',
            b'{"n":NaN}',
            b"9" * 5000,
        ]
    )
    | st.binary(max_size=4),
    max_size=12,
).map(b"".join)


def read(path: Path, offset: int = 0, number: int = 0) -> tuple[list[tuple[int, bytes, object]], LineReader]:
    reader = LineReader(path, offset, number)
    return [(line.number, line.raw, line.record) for line in reader], reader


def records(path: Path) -> list[object]:
    return [record for _, _, record in read(path)[0]]


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "log.jsonl"


@given(data=PIECES)
def test_any_bytes_are_read_and_what_is_left_is_one_unfinished_line(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "log.jsonl"
    path.write_bytes(data)

    _, reader = read(path)

    assert reader.offset == reader.bytes_read <= len(data)
    assert b"\n" not in data[reader.offset :]
    seen = data[: reader.offset]
    assert reader.offset in (0, len(data)) or seen.endswith(b"\n")
    assert reader.lines == seen.count(b"\n") + (seen != b"" and not seen.endswith(b"\n"))


@given(data=PIECES, cut=st.integers(0, 60))
@example(data=b'{"a":1}\n{"b":2}\n', cut=7)
@example(data=b'{"a":1}{"b":2}\n', cut=7)
@example(data=b'{"a":1}x\n', cut=7)
def test_reading_in_two_parts_is_reading_at_once(tmp_path_factory, data, cut):
    folder = tmp_path_factory.mktemp("parts")
    whole, part = folder / "whole.jsonl", folder / "part.jsonl"
    whole.write_bytes(data)
    part.write_bytes(data[:cut])

    expected, at_once = read(whole)
    first, before = read(part)
    part.write_bytes(data)
    second, after = read(part, before.offset, before.lines)

    assert first + second == expected
    assert (after.offset, after.lines) == (at_once.offset, at_once.lines)
    assert [one.number for one in before.broken + after.broken] == [one.number for one in at_once.broken]


def test_a_torn_last_line_waits_for_its_rest(log):
    log.write_bytes(b'{"a":1}\n{"b":')
    found, reader = read(log)
    assert [record for *_, record in found] == [{"a": 1}]
    assert (reader.offset, reader.lines, reader.broken) == (8, 1, [])

    log.write_bytes(b'{"a":1}\n{"b":2}\n')
    assert read(log, reader.offset, reader.lines)[0] == [(2, b'{"b":2}', {"b": 2})]


def test_a_last_line_without_newline_counts_when_it_is_whole(log):
    log.write_bytes(b'{"a":1}\n{"b":2}')

    assert records(log) == [{"a": 1}, {"b": 2}]


def test_two_objects_on_one_line_are_two_records_each_with_its_own_bytes(log):
    """Seen in Claude Code 2.1 and Codex: the newline between two records is lost."""
    log.write_bytes(b'{"a":"\xc3\xa4"}{"b":2}\n')

    assert read(log)[0] == [(1, b'{"a":"\xc3\xa4"}', {"a": "ä"}), (1, b'{"b":2}', {"b": 2})]


def test_a_record_before_garbage_is_kept_and_the_line_reported(log):
    log.write_bytes(b'{"a":1}{"b\n{"c":3}\n')

    found, reader = read(log)

    assert [record for *_, record in found] == [{"a": 1}, {"c": 3}]
    assert [(one.path, one.number) for one in reader.broken] == [(log, 1)]


@pytest.mark.parametrize(
    "line", [b"not json", b'"text"', b"[1, 2]", b"null", b'{"n": NaN}', b'{"n": 1e999}', b"\xff\xfe{"]
)
def test_a_line_that_is_no_object_is_counted_with_its_number_and_a_reason(log, line):
    log.write_bytes(b'{"a":1}\n' + line + b'\n{"b":2}\n')

    found, reader = read(log)

    assert [record for *_, record in found] == [{"a": 1}, {"b": 2}]
    assert [one.number for one in reader.broken] == [2]
    assert reader.broken[0].reason


def test_blank_lines_are_no_defect(log):
    log.write_bytes(b'\n  \n\r\n\0\0\n{"a":1}\n\n')

    found, reader = read(log)

    assert found == [(5, b'{"a":1}', {"a": 1})]
    assert reader.broken == []


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (b'\xef\xbb\xbf{"a":1}', {"a": 1}),
        (b'\0\0{"a":1}\0', {"a": 1}),
        (b'{"a":1}\r', {"a": 1}),
        (b'{"a":"x\xffy"}', {"a": "x?y"}),
        (b'{"a":"x\0y"}', {"a": "x\0y"}),
        (b'{"a":"x\\u0000y"}', {"a": "x\0y"}),
        (b'{"a":"\\ud83d!","\\udc00":1}', {"a": "?!", "?": 1}),
        (b'{"a":"\xed\xa0\xbd"}', {"a": "???"}),
        (b'{"a":18446744073709551616}', {"a": 18446744073709551616.0}),
    ],
    ids=[
        "byte order mark",
        "NULs around",
        "CRLF",
        "not UTF-8",
        "raw NUL",
        "NUL",
        "half surrogates",
        "CESU",
        "huge integer",
    ],
)
def test_odd_bytes_inside_a_record_do_not_lose_it(log, line, record):
    log.write_bytes(line + b"\n")

    found, reader = read(log)

    assert [record for *_, record in found] == [record]
    json.dumps(found[0][2], ensure_ascii=False).encode()
    assert reader.broken == []


@pytest.mark.parametrize("line", [b'{"a":' * 5000 + b"1" + b"}" * 5000, b'{"n":' + b"9" * 5000 + b"}"])
def test_nesting_and_numbers_without_measure_are_broken_lines(log, line):
    log.write_bytes(line + b'\n{"a":1}\n')

    found, reader = read(log)

    assert [record for *_, record in found] == [{"a": 1}]
    assert [one.number for one in reader.broken] == [1]


@pytest.mark.thorough
def test_a_line_of_65_megabytes_counts_and_says_how_long_its_text_is(log):
    size = 65 * 1024 * 1024
    with log.open("wb") as file:
        file.write(b'{"a":1}\n{"b":"')
        file.seek(size, os.SEEK_CUR)
        file.write(b'"}\n{"c":3}\n')

    found, reader = read(log)

    text = f"[a text of {size:,} bytes, too long to be read]"
    assert [(number, record) for number, _, record in found] == [(1, {"a": 1}), (2, {"b": text}), (3, {"c": 3})]
    assert b"".join(line.source for line in LineReader(log)) == log.read_bytes()
    assert reader.broken == []
    assert reader.offset == log.stat().st_size


#: A sixteenth of a long line is read in the same way, where no longer one is read at once.
PART = full_or_sample(1, 16)


@pytest.mark.parametrize(
    ("piece", "times"),
    thorough_except_first([(b"\0", 70_000_000), (b'["a",', 3_500_000 // PART), (b"[", 17_000_000 // PART)]),
)
@pytest.mark.slow
def test_a_long_line_that_is_no_record_is_passed_over_and_counted(log, piece, times, monkeypatch):
    line = piece * times
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", lines.MAX_LINE_BYTES // PART)
    log.write_bytes(b'{"a":1}\n' + line + b'\n{"c":3}\n')

    found, reader = read(log)

    assert [(number, record) for number, _, record in found] == [(1, {"a": 1}), (3, {"c": 3})]
    assert [(one.number, one.reason) for one in reader.broken] == [(2, f"a line of {len(line) + 1} bytes")]
    assert reader.offset == log.stat().st_size


@pytest.mark.thorough
def test_a_long_line_that_has_grown_is_read_as_if_it_had_been_there_before(log):
    start = b'{"a":1}\n{"b":"' + b"x" * lines.MAX_LINE_BYTES
    log.write_bytes(start)
    before, reader = read(log)
    assert (len(before), reader.offset, reader.broken) == (1, 8, [])

    log.write_bytes(start + b'"}')
    now, grown = read(log, reader.offset, reader.lines)
    assert [record for *_, record in read(log)[0]] == [record for *_, record in (*before, *now)]

    log.write_bytes(start + b'"}\n{"c":3}\n')
    rest, _ = read(log, grown.offset, grown.lines)
    assert [(number, record) for number, _, record in rest] == [(3, {"c": 3})]


def test_a_huge_line_that_is_still_being_written_waits(log, monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 16)
    log.write_bytes(b'{"a":1}\n{"b":"' + b"x" * 40)
    found, reader = read(log)
    assert (len(found), reader.offset, reader.broken) == (1, 8, [])

    log.write_bytes(log.read_bytes() + b'"}\n{"c":3}\n')
    found, reader = read(log, reader.offset, reader.lines)
    assert [(number, record) for number, _, record in found] == [(2, {"b": "x" * 40}), (3, {"c": 3})]


@pytest.mark.thorough
def test_a_file_that_is_no_log_does_not_fill_the_memory_with_reports(log):
    log.write_bytes(b"x\n" * (lines.MAX_BROKEN + 5))

    _, reader = read(log)

    assert len(reader.broken) == lines.MAX_BROKEN
    assert reader.lines == lines.MAX_BROKEN + 5


def test_what_is_not_a_regular_file_is_an_error_at_once(tmp_path):
    """A FIFO would wait for a writer without end."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")

    for name in ("fifo", ".", "loop", "missing", "/dev/zero"):
        with pytest.raises(OSError):
            open_regular(tmp_path / name)


def test_only_regular_files_are_listed_by_name_those_in_linked_folders_last(tmp_path):
    for name in ("b/2.jsonl", "a/1.jsonl", "a/1.txt", "a/deep/3.jsonl", "elsewhere/4.jsonl"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text("{}")
    (tmp_path / "tree/elsewhere").rename(tmp_path / "elsewhere")
    (tmp_path / "tree/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "tree/again").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "tree/a2").symlink_to("a")
    (tmp_path / "tree/up").symlink_to("..")
    (tmp_path / "elsewhere/circle").symlink_to(tmp_path / "tree")
    (tmp_path / "tree/a/0.jsonl").symlink_to(tmp_path / "elsewhere/4.jsonl")
    (tmp_path / "tree/a/loop.jsonl").symlink_to("loop.jsonl")
    (tmp_path / "tree/a/gone.jsonl").symlink_to("gone")
    (tmp_path / "tree/a/folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "tree/a/fifo.jsonl")
    Path(os.fsdecode(os.fsencode(tmp_path / "tree/a") + b"/\xff")).mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "tree/a") + b"/\xff.jsonl")).write_text("{}")

    found = list(regular_files(tmp_path / "tree", "claude", depth=1))

    assert [file.path.relative_to(tmp_path / "tree").as_posix() for file in found] == [
        "a/0.jsonl",
        "a/1.jsonl",
        "b/2.jsonl",
        "again/4.jsonl",
    ]
    assert {file.size for file in found} == {2}
    assert {file.location for file in found} == {
        str(path)
        for path in (tmp_path / "tree").glob("*/*.jsonl")
        if regular_file(str(path), "claude", [(tmp_path / "tree", 1)])
    }
    again = "a link to a folder that is listed already, or that these logs are in"
    assert {str(tmp_path / "tree" / name): again for name in ("a2", "linked", "up")}.items() <= dict(
        odd_files(tmp_path / "tree", (".jsonl",), 1)
    ).items()


def test_numbers_of_files_that_need_64_bits_are_stored():
    """Network and FUSE file systems give such inodes."""

    def stamp(moment: int, inode: int) -> tuple[int, int, int]:
        return stamp_of(SimpleNamespace(st_size=5, st_mtime_ns=moment, st_ino=inode))

    for moment, inode in ((1 << 64, 7), (7, (1 << 64) - 3), (1 << 64, (1 << 64) - 3)):
        assert all(abs(number) < 1 << 63 for number in stamp(moment, inode))
        assert stamp(moment, inode) != stamp(moment, inode - 1)
    assert (5, -7, 7) == stamp(-7, 7)  # before 1970


def test_folders_that_cannot_be_listed_are_passed_over(tmp_path):
    (tmp_path / "file").write_text("")

    assert [] == list(regular_files(tmp_path / "missing", "claude"))
    assert [] == list(regular_files(tmp_path / "file", "claude"))


class Ticking:
    """A clock that goes on by one with each look at it."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def test_a_look_at_a_long_log_ends_when_its_time_is_over_and_ends_there_again(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LOOK_BYTES", 30)
    path = tmp_path / "long.jsonl"
    path.write_bytes(b"".join(b'{"number": %3d}\n' % number for number in range(100)))
    with lines.bounded(clock=Ticking()):
        first, again = LineReader(path), LineReader(path)
        numbers = [line.record["number"] for line in first]
        assert numbers == [line.record["number"] for line in again]

    assert [*range(len(numbers))] == numbers
    assert 2 < len(numbers) < 20
    assert path.stat().st_size == first.offset + first.left == again.offset + again.left
    assert 100 == sum(1 for _ in LineReader(path))


def test_some_of_a_log_is_read_however_late_it_is(tmp_path):
    path = tmp_path / "short.jsonl"
    path.write_bytes(b'{"number": 1}\n' * 5)
    with lines.bounded(clock=iter(range(0, 10_000, 100)).__next__):
        reader = LineReader(path)
        assert (5, 0) == (sum(1 for _ in reader), reader.left)
