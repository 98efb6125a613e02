"""More sessions for the demo's home: a larger family, a long conversation, many that are alike, and hostile ones."""

from __future__ import annotations

from tests.demo_logs.script import CommandRun, FileEdit, Say, Scripted, asked

PARCEL, HARBOR = "parcel", "harbor"

#: With the demo's own "retries", a family of five.
FAMILY = (
    Scripted(
        "downloader", "claude", PARCEL, "The same retries for the downloader", 8.0, fork_of="retries",
        branch="retry-downloads",
        asked=(
            asked(
                "Now do the same for downloader.py. A download that breaks off should go on where it was.",
                Say("The policy can be shared as it is. What differs is going on: a `Range` header from the bytes that are there."),
                FileEdit("parcel/downloader.py", "", "headers = {'Range': f'bytes={part.stat().st_size}-'}\n"),
                CommandRun("pytest -q tests/test_downloader.py", "4 passed in 0.19s"),
                Say("A server that ignores `Range` answers 200 instead of 206; then the part is thrown away and begun anew."),
            ),
        ),
    ),
    Scripted(
        "metrics", "claude", PARCEL, "Count retries in the metrics", 6.5, fork_of="retries",
        asked=(
            asked(
                "Operations wants to see how often we retry, by status.",
                FileEdit("parcel/retry.py", "", "RETRIES = Counter('parcel_retries', 'Attempts after the first', ['status'])\n"),
                Say("One counter with the status as a label; a connection error counts as `none`."),
            ),
        ),
    ),
    Scripted(
        "breaker", "claude", PARCEL, "Circuit breaker when the storage is down for long", 3.0, fork_of="downloader",
        asked=(
            asked(
                "When the storage service is down for an hour, a thousand clients retry for nothing. Stop earlier.",
                Say("A circuit breaker: after ten failures in a row nothing is sent for a minute, then one attempt decides."),
                FileEdit("parcel/breaker.py", "", "@dataclass\nclass Breaker:\n    failures: int = 0\n    open_until: float = 0.0\n"),
                CommandRun("pytest -q tests/test_breaker.py", "6 passed in 0.08s"),
            ),
        ),
    ),
    Scripted(
        "resume-check", "claude", PARCEL, "Checksums for downloads that went on", 1.2, fork_of="downloader",
        asked=(
            asked(
                "How do we know that a file put together from two halves is right?",
                Say("By the digest the service sends in `ETag`. It is compared before the part gets its name."),
                FileEdit("parcel/downloader.py", "", "if digest(part) != etag:\n    raise Damaged(part)\n"),
            ),
        ),
    ),
)  # fmt: skip

LAST = "Partition 30 of year 2 is there."
LONG = Scripted(
    "long", "claude", HARBOR, "A long evening with the message archive", 11.0,
    asked=tuple(
        asked(
            f"Move the archive of year {year} into partitions.",
            Say("```sql\nSELECT count(*) FROM archive;\n```"),
            *(
                step
                for part in range(1, 31)
                for step in (CommandRun("make part", "done"), Say(f"Partition {part} of year {year} is there."))
            ),
        )
        for year in (1, 2)
    ),
)  # fmt: skip

#: Exchanges of very different heights, so that nothing is where a browser first takes it to be; one of them has the answer.
#: What makes them high is a token a line: to embed a sentence for each took a second.
TALL_ANSWER = 41
TABLE = """The marmalade needle hides in the tick.

| Environment variable | Meaning | Default | Since |
| --- | --- | --- | --- |
| HARBOR_MARMALADE_NEEDLE_SECONDS | How long a needle may hide before it is looked for | 25 | 1.4 |
"""
TALL = Scripted(
    "tall", "claude", HARBOR, "Sixty questions about the quartz pipeline", 9.0,
    asked=tuple(
        asked(
            "Where does the marmalade needle hide?" if place == TALL_ANSWER else f"What does quartz stage {place} do?",
            *(
                step
                for part in range(place * 7 % 5)
                for step in (CommandRun("make stage", "done"), Say("—\n\n" * (place * 11 % 17)))
            ),
            Say(TABLE if place == TALL_ANSWER else f"Stage {place} sorts."),
        )
        for place in range(1, 61)
    ),
)  # fmt: skip

ALIKE = tuple(
    Scripted(
        f"alike-{number}", "codex" if number % 2 else "claude", HARBOR, "", 30.0 + number / 10,
        asked=(
            asked(
                f"Rotate the zeppelin logs of server {number} every night.",
                Say(f"logrotate does it for zeppelin {number}; fourteen days are kept."),
            ),
        ),
    )
    for number in range(12)
)  # fmt: skip

SCRIPT = '<script>alert("said")</script><img src=//evil.example/x onerror=alert(1)>'
HOSTILE_TITLE = f"Kraken {SCRIPT}"
HOSTILE = (
    Scripted(
        "hostile", "claude", HARBOR, HOSTILE_TITLE, 13.0, branch='"><script>alert(2)</script>',
        asked=(
            asked(
                f"Release the kraken {SCRIPT} [here](javascript:alert(3)) {{{{ 7 * 7 }}}} \x1b[31mred\x1b[0m \u202egnp.exe\u202c",
                CommandRun("echo '<script>alert(4)</script>' && curl https://evil.example", "</pre><script>alert(5)</script>", 1),
                Say("```html\n<script>alert(6)</script>\n</code></pre><iframe src=https://evil.example>\n```\n" + "k" * 2_000),
            ),
        ),
    ),
    Scripted(
        "hostile-fork", "claude", HARBOR, "</title><svg onload=alert(7)>", 12.5, fork_of="hostile",
        asked=(asked("<b>And the kraken's</b> &amp; sons", Say('" onfocus="alert(8)" autofocus="')),),
    ),
)  # fmt: skip
