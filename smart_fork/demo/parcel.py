"""The sessions about ``parcel``: a Python tool that sends delivery notes to a storage service and reports on them."""

# ruff: noqa: E501 - what people, agents and programs say is not wrapped

from __future__ import annotations

from smart_fork.demo.script import CommandRun, FileEdit, Read, Say, Scripted, asked

REPOSITORY = "parcel"

RETRIES = Scripted(
    "retries", "claude", REPOSITORY, "Retry with backoff in the uploader", 12.0,
    branch="retry-uploads",
    asked=(
        asked(
            "uploader.py gives up on the first 503 and the whole batch is lost. Add retry with exponential backoff.",
            Say("Let me look at how a file is sent today."),
            Read("parcel/uploader.py", (
                "def send(client, path):\n    with path.open('rb') as body:\n"
                "        response = client.put(f'/notes/{path.name}', content=body)\n    response.raise_for_status()"
            )),
            Say(
                "`send` raises on any status. Only some failures are worth another try: connection errors, timeouts, 429, 502, "
                "503 and 504. A 400 or 403 will not get better. I'll put the policy into a small `RetryPolicy` value and keep "
                "`send` free of sleeping, so that it can be tested without waiting."
            ),
            FileEdit("parcel/retry.py", "", (
                "@dataclass(frozen=True)\nclass RetryPolicy:\n    attempts: int = 5\n    base: float = 0.5\n    cap: float = 30.0\n\n"
                "    def delay(self, attempt: int, random=random.random) -> float:\n"
                "        return random() * min(self.cap, self.base * 2**attempt)\n"
            )),
            FileEdit(
                "parcel/uploader.py",
                "    response.raise_for_status()",
                "    if response.status_code in RETRYABLE:\n        raise Retryable(response)\n    response.raise_for_status()",
            ),
            Say("Full jitter spreads the clients out: after an outage they would otherwise all come back in the same second."),
        ),
        asked(
            "Write tests, but they must not really sleep.",
            FileEdit("tests/test_retry.py", "", (
                "def test_gives_up_after_five_attempts(flaky):\n    waits = []\n    with pytest.raises(Retryable):\n"
                "        with_retries(flaky(fails=9), RetryPolicy(), sleep=waits.append)\n    assert len(waits) == 4\n"
            )),
            CommandRun("pytest -q tests/test_retry.py", (
                "F..\nE   ValueError: read of closed file\nparcel/uploader.py:11: ValueError\n1 failed, 2 passed in 0.21s"
            ), 1),
            Say(
                "A real bug, found by the test: the second attempt sends the file object that the first one has already read to its end "
                "and closed. Every attempt must open the file again."
            ),
            FileEdit(
                "parcel/uploader.py",
                "    with path.open('rb') as body:\n        response",
                "    def attempt():\n        with path.open('rb') as body:\n            response",
            ),
            CommandRun("pytest -q tests/test_retry.py", "...\n3 passed in 0.14s"),
        ),
        asked(
            "The storage service sends Retry-After on 429. Respect it.",
            FileEdit(
                "parcel/retry.py",
                "    def delay(self, attempt: int, random=random.random) -> float:",
                "    def delay(self, attempt: int, asked_for: float | None = None, random=random.random) -> float:\n"
                "        if asked_for is not None:\n            return min(self.cap, asked_for)",
            ),
            Say("Retry-After may be seconds or an HTTP date; both are parsed, and the cap still holds so that nobody can park us."),
            CommandRun("pytest -q", "31 passed in 1.02s"),
        ),
        asked(
            "What if the same note is stored twice because the answer to the first attempt got lost?",
            Say(
                "Then a retry would store it again. PUT with the note's name is idempotent, but the service adds a version. I'll "
                "send an `Idempotency-Key` header, a hash of name and content, the same for all attempts of one file."
            ),
            FileEdit(
                "parcel/uploader.py",
                "client.put(f'/notes/{path.name}', content=body)",
                "client.put(f'/notes/{path.name}', content=body, headers={'Idempotency-Key': key})",
            ),
            CommandRun("pytest -q", "33 passed in 1.05s"),
            Say("Done: five attempts, full jitter, Retry-After up to 30 s, a fresh file handle and the same key for each attempt."),
        ),
    ),
)  # fmt: skip

SPREADSHEET = Scripted(
    "spreadsheet", "claude", REPOSITORY, "CSV export shows broken umlauts in Excel", 9.0,
    asked=(
        asked(
            "In the monthly CSV export 'Müller' becomes 'MÃ¼ller' when accounting opens it in Excel. In my editor it is fine.",
            Read("parcel/export.py", (
                "def write_report(rows, path):\n    with open(path, 'w') as file:\n        writer = csv.writer(file)\n"
                "        writer.writerows(rows)"
            )),
            Say(
                "The file is UTF-8 and correct. Excel takes a CSV without a byte order mark for Windows-1252, hence the two characters "
                "for one letter. Writing `utf-8-sig` puts the mark in front; editors and pandas accept it."
            ),
            FileEdit("parcel/export.py", "open(path, 'w')", "open(path, 'w', encoding='utf-8-sig', newline='')"),
            Say("`newline=''` also removes the blank line between rows on Windows."),
        ),
        asked(
            "Add a test with some nasty names.",
            FileEdit("tests/test_export.py", "", (
                "NAMES = ['Müller', 'Łukasz', 'Þór', '李雷', 'e\\u0301clair', 'O\"Neil; Söhne']\n\n\n"
                "def test_names_survive_the_round_trip(tmp_path):\n    write_report([[n] for n in NAMES], tmp_path / 'r.csv')\n"
                "    assert read_report(tmp_path / 'r.csv') == [[n] for n in NAMES]\n"
            )),
            CommandRun("pytest -q tests/test_export.py", (
                "E   UnicodeDecodeError: 'ascii' codec can't decode byte 0xef in position 0: ordinal not in range(128)\n1 failed in 0.08s"
            ), 1),
            Say("The reader relies on the locale, and the test container runs with `LANG=C`. It needs the encoding as well."),
            FileEdit("parcel/export.py", "open(path) as file", "open(path, encoding='utf-8-sig', newline='') as file"),
            CommandRun("LANG=C pytest -q tests/test_export.py", "1 passed in 0.05s"),
        ),
        asked(
            "A customer is called =SUM(A1:A9)+cmd. Is that a problem?",
            Say(
                "Yes, formula injection: a cell that starts with =, +, -, @ or a tab is evaluated when the sheet is opened. I'll put "
                "an apostrophe in front of such text cells, and leave real numbers alone."
            ),
            FileEdit("parcel/export.py", "writer.writerows(rows)", "writer.writerows([defused(cell) for cell in row] for row in rows)"),
            CommandRun("pytest -q tests/test_export.py", "3 passed in 0.06s"),
            Say("Such names arrive as text now, and amounts are still numbers."),
        ),
    ),
)  # fmt: skip

SPREADSHEET_FORK = Scripted(
    "spreadsheet-fork", "claude", REPOSITORY, "Semicolon-separated export for German Excel", 4.0,
    fork_of="spreadsheet",
    asked=(
        asked(
            "Now accounting in Munich gets everything in one column. Let the delimiter depend on the customer's locale.",
            Say("German Excel splits at semicolons, because the comma is its decimal mark. The customer record has a locale."),
            FileEdit("parcel/export.py", "csv.writer(file)", "csv.writer(file, delimiter=DELIMITERS.get(locale.language, ','))"),
            CommandRun("pytest -q tests/test_export.py", "5 passed in 0.07s"),
        ),
        asked(
            "And write decimals with a comma there.",
            FileEdit("parcel/export.py", "str(amount)", "format_decimal(amount, locale=locale)"),
            Say("`format_decimal` from Babel, which parcel already uses for its invoices. Thousands are not grouped in the export."),
        ),
    ),
)  # fmt: skip

REVIEW = Scripted(
    "review", "claude", REPOSITORY, "Review of the changes since the last release", 2.0,
    automated=True,
    asked=(
        asked(
            "Review the changes since v1.4.0. Answer with a list of problems, most severe first.",
            CommandRun("git log --oneline v1.4.0..HEAD", "a41c09e Retry uploads with backoff\n77d02b1 Export with a byte order mark"),
            Say("1. The retry policy's cap is not configurable. 2. `defused` has no test for a leading tab. Nothing else."),
        ),
    ),
)  # fmt: skip

SETTINGS = Scripted(
    "settings", "codex", REPOSITORY, "", 16.0,
    asked=(
        asked(
            "Migrate our settings from parcel.ini to TOML. Existing installations must go on working.",
            CommandRun("cat parcel/settings.py", "parser = configparser.ConfigParser()\nparser.read(home / 'parcel.ini')"),
            Say(
                "Plan: read `parcel.toml` with tomllib when it exists; otherwise read the old ini, write the TOML beside it once, and "
                "say so on stderr. The ini file stays where it is, so going back to the old version is possible."
            ),
            FileEdit("parcel/settings.py", "", "def load(home: Path) -> Settings:\n    file = home / 'parcel.toml'\n    if file.exists():\n"
                 "        return Settings(**tomllib.loads(file.read_text('utf-8')))\n    return migrated(home)"),
        ),
        asked(
            "ini has only strings. How do you get types?",
            Say("From the fields of the `Settings` dataclass: an int field is parsed with int(), a bool accepts yes/no/on/off."),
            CommandRun("python -m pytest -q tests/test_settings.py", (
                "E   tomllib.TOMLDecodeError: Invalid value (at line 3, column 9)\n1 failed, 6 passed in 0.11s"
            ), 1),
            Say("A Windows path: backslashes in a basic TOML string are escapes. The writer must use literal strings for paths."),
            FileEdit("parcel/settings.py", "f'\"{value}\"'", "literal(value)"),
            CommandRun("python -m pytest -q tests/test_settings.py", "7 passed in 0.10s"),
        ),
        asked(
            "Two processes may start at the same time after the update.",
            Say("The new file is written under a temporary name and moved into place with os.replace; both would write the same."),
            FileEdit("parcel/settings.py", "file.write_text(text)", "write_atomically(file, text)"),
            CommandRun("python -m pytest -q", "41 passed in 1.30s"),
            Say("Done. The old ini file is read once and stays where it is."),
        ),
    ),
)  # fmt: skip

SETTINGS_FORK = Scripted(
    "settings-fork", "codex", REPOSITORY, "", 6.0,
    fork_of="settings",
    asked=(
        asked(
            "Environment variables should override the file: PARCEL_TIMEOUT for timeout and so on.",
            Say("Same parsing as the migration, since variables are strings too. An unknown PARCEL_ name is an error with a suggestion."),
            FileEdit("parcel/settings.py", "return Settings(**values)", "return Settings(**values | from_environment(os.environ))"),
            CommandRun("python -m pytest -q tests/test_settings.py", "12 passed in 0.12s"),
        ),
        asked(
            "Show in `parcel settings` where each value comes from.",
            FileEdit("parcel/cli.py", "print(name, value)", "print(name, value, origin, sep='\\t')"),
            Say("Each value now carries its origin: default, parcel.toml with the line number, or the variable's name."),
        ),
    ),
)  # fmt: skip

SESSIONS = (RETRIES, SPREADSHEET, SPREADSHEET_FORK, REVIEW, SETTINGS, SETTINGS_FORK)
