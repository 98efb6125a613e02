"""Whether a result is still in its model's cache, as `find` prints it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from tests.smart_fork.cli.test_commands import DONE, RETRY


def test_a_session_is_cached_as_long_as_its_log_says(run, world, shop):
    told, sent = {}, (datetime.now(UTC) - timedelta(minutes=37)).replace(microsecond=0)
    for name, usage in (("hour", {"ephemeral_1h_input_tokens": 9}), ("unsaid", {})):
        records = world.claude_records(name * 8, shop, f"{RETRY} {name}", DONE)
        for record in records:
            record["timestamp"] = sent.isoformat()
        records[1]["message"]["usage"] = {"input_tokens": 900, "cache_creation": usage}
        world.write_claude(name * 8, shop, records)

    done = run("find", RETRY, "--explain")
    for one in json.loads(run("find", RETRY, "--explain", "--json").out)["results"]:
        told[one["session_id"][:4]] = one["price"], one["explain"].get("cache")

    assert done.out.count("cached") == 1
    assert "900 tokens (still cached for about 23 minutes)" in done.out
    assert "Its log says that the cache lives 1 h; last request: 37 min ago" in done.out
    assert "lives" not in run("find", RETRY).out
    assert ({"tokens": 900, "tokens_at_match": 900, "instructions": 880}, None) == told["unsa"]
    price, why = told["hour"]
    assert price["cached"]
    assert f"{sent + timedelta(hours=1):%FT%T}.000Z" == price["cached_until"]
    assert {"seconds": 3600, "last_request": f"{sent:%FT%T}.000Z"} == why
