from __future__ import annotations

import contextlib
import random
from hashlib import sha256

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from smart_fork.errors import TooLarge, Unshareable
from smart_fork.sharing import canonical
from smart_fork.sharing.canonical import SEGMENT_BYTES, SEGMENT_RECORDS, START, Limits, encode, state_after
from smart_fork.team.segments import cut_segments, pack, unpack

CHANCE = random.Random(7)  # noqa: S311 - text that does not compress
SMALL = [encode({"n": number}) for number in range(1300)]
LARGE = [encode({"n": number, "text": CHANCE.randbytes(9000).hex()}) for number in range(60)]
MIXED = SMALL[:700] + LARGE + SMALL[700:]
PACKED = list(pack(MIXED))


def records_of(segments):
    return [record for one in segments for record in unpack(one.body, one.place.digest)]


def packed(raw: bytes, **options) -> tuple[bytes, str]:
    return zstandard.ZstdCompressor(**options).compress(raw), sha256(raw).hexdigest()


@pytest.mark.parametrize(
    "records", [[], SMALL[:1], SMALL, LARGE, MIXED], ids=["none", "one", "small", "large", "mixed"]
)
def test_records_come_out_of_segments_as_they_went_in(records):
    assert records == records_of(pack(records))


def test_a_segment_ends_after_so_many_records():
    assert [SEGMENT_RECORDS, SEGMENT_RECORDS, 1300 - 2 * SEGMENT_RECORDS] == [s.place.records for s in pack(SMALL)]


def test_a_segment_ends_with_the_record_that_fills_it():
    segments = list(pack(LARGE))

    assert len(segments) > 3
    for one in segments[:-1]:
        last = unpack(one.body, one.place.digest)[-1]
        assert one.place.raw_bytes - len(last) - 1 < SEGMENT_BYTES <= one.place.raw_bytes


def test_each_segment_says_where_it_stands():
    at, state = 0, START
    for one in pack(MIXED):
        assert (at, state) == (one.place.first_record, one.place.chain_start)
        at, state = one.place.end, state_after(unpack(one.body, one.place.digest), state)

    assert at == len(MIXED)


def test_all_segments_but_the_last_are_full():
    assert [True] * 2 + [False] == [one.place.full for one in pack(SMALL)]


@settings(max_examples=settings.default.max_examples // 2)
@given(st.integers(0, len(MIXED)), st.integers(0, len(MIXED)))
def test_members_of_a_family_have_the_same_segments_up_to_where_they_part(parting, more):
    one = [s.place for s in PACKED]
    other = [s.place for s in pack(MIXED[:parting] + SMALL[1:more])]
    same = [place for place in one if place.end <= parting and place.full]

    assert same == other[: len(same)]


@settings(max_examples=settings.default.max_examples // 2)
@given(st.integers(0, len(MIXED)))
def test_going_on_from_the_open_segment_gives_what_packing_all_gives(count):
    before = [s.place for s in pack(MIXED[:count])]
    closed = [place for place in before if place.full]
    at = closed[-1].end if closed else 0
    start = state_after(MIXED[:at])

    assert [s.place for s in PACKED] == closed + [s.place for s in pack(MIXED[at:], at, start)]


@settings(max_examples=settings.default.max_examples // 2)
@given(st.integers(0, len(MIXED)))
def test_cutting_packs_one_segment_anew_and_gives_what_packing_the_beginning_gives(count):
    segments = PACKED
    bodies = {s.place: s.body for s in segments}
    asked = []
    kept, last = cut_segments([s.place for s in segments], count, lambda place: asked.append(place) or bodies[place])

    assert [s.place for s in pack(MIXED[:count])] == kept + ([last.place] if last else [])
    assert len(asked) <= 1


@pytest.mark.parametrize("number", range(len(PACKED)))
def test_a_cut_where_a_segment_ends_reads_and_packs_nothing(number):
    places = [s.place for s in PACKED]

    assert (places[: number + 1], None) == cut_segments(places, places[number].end, pytest.fail)


def test_a_segment_that_does_not_say_its_size_is_refused_for_that():
    with pytest.raises(Unshareable, match="does not say"):
        unpack(*packed(b"{}\n", write_content_size=False))


@pytest.mark.parametrize("count", [-1, len(SMALL) + 1])
def test_cutting_at_a_record_that_is_not_there_is_refused(count):
    with pytest.raises(Unshareable):
        cut_segments([s.place for s in pack(SMALL)], count, lambda place: b"")


def test_another_segment_than_the_named_one_is_refused():
    one, other, *_ = pack(SMALL)

    with pytest.raises(Unshareable, match="digest"):
        unpack(one.body, other.place.digest)


def test_a_bomb_is_refused_before_anything_is_made_of_it():
    with pytest.raises(TooLarge):
        unpack(*packed(b"\0" * (64 << 20)))


def test_what_compresses_too_well_is_refused_on_either_side():
    record = encode({"a": " " * (2 << 20)})

    with pytest.raises(TooLarge, match="200 times"):
        list(pack([record]))
    with pytest.raises(TooLarge, match="200 times"):
        unpack(*packed(record + b"\n"))


def test_a_screen_full_of_spaces_is_taken():
    record = encode({"a": " " * 900_000})

    assert [record] == records_of(pack([record]))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no frame",
        packed(b"{}\n")[0][:-1],
        packed(b"{}\n")[0] + b"more",
        packed(b"{}\n")[0] * 2,
        packed(b"{}\n", write_content_size=False)[0],
        b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd",
    ],
    ids=["empty", "other", "torn", "longer", "twice", "of unknown size", "skipped"],
)
def test_a_damaged_segment_is_refused(body):
    with pytest.raises(Unshareable):
        unpack(body, sha256(b"{}\n").hexdigest())


@given(st.binary(max_size=40))
def test_a_segment_with_any_byte_changed_is_refused_or_the_same(change):
    body, digest = packed(b'{"a":1}\n{"b":2}\n')
    for at in range(len(body)):
        changed = body[:at] + change + body[at + 1 :]
        with contextlib.suppress(Unshareable):
            assert [b'{"a":1}', b'{"b":2}'] == unpack(changed, digest)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"{}x",
        b"\n",
        b"{}\n\n",
        b"{}\r\n",
        b'{"b":1,"a":1}\n',
        b"{}\n" * (SEGMENT_RECORDS + 1),
        (encode({"a": "x" * SEGMENT_BYTES}) + b"\n") * 2,
    ],
    ids=["nothing", "cut off", "cut in another", "empty", "empty last", "CR", "not canonical", "too many", "too long"],
)
def test_a_segment_that_nobody_would_have_packed_is_refused(raw):
    with pytest.raises(Unshareable):
        unpack(*packed(raw))


def test_a_segment_with_the_longest_record_is_taken_and_no_longer_one(monkeypatch):
    nearly = [encode({"t": CHANCE.randbytes(SEGMENT_BYTES // 2 - 10).hex()})]
    longest = encode({"t": CHANCE.randbytes((1 << 19) - 4).hex()})
    limits = Limits(record_bytes=1 << 20)
    monkeypatch.setattr(canonical, "LIMITS", limits)
    [one] = pack([*nearly, longest])

    assert one.place.raw_bytes <= limits.segment_bytes
    assert len(one.body) <= limits.segment_body_bytes
    assert [*nearly, longest] == unpack(one.body, one.place.digest)
    monkeypatch.setattr(canonical, "LIMITS", Limits(record_bytes=1 << 19))
    with pytest.raises(TooLarge):
        unpack(one.body, one.place.digest)


def test_the_largest_segment_that_there_can_be_is_taken_and_a_record_of_one_byte_more_is_refused_in_a_sentence(
    monkeypatch,
):
    limits = Limits(record_bytes=1 << 16)
    monkeypatch.setattr(canonical, "LIMITS", limits)

    def record(size):
        half = (size - len(encode({"t": ""}))) // 2
        odd = "x" * ((size - len(encode({"t": ""}))) % 2)
        return encode({"t": CHANCE.randbytes(half).hex() + odd})

    before = [record(1 << 15) for _ in range(7)]
    before.append(record(SEGMENT_BYTES - 2 - sum(len(one) + 1 for one in before)))
    [one] = pack([*before, record(limits.record_bytes)])

    assert SEGMENT_BYTES + limits.record_bytes == one.place.raw_bytes <= limits.segment_bytes
    assert 9 == len(unpack(one.body, one.place.digest))
    with pytest.raises(TooLarge, match="65537 bytes") as refused:
        record(limits.record_bytes + 1)
    assert refused.value.message.endswith(".") or refused.value.hint
