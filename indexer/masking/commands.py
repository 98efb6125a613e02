"""Commands with a password behind an option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from indexer.masking.phrase import VALUE, Phrase, found_at
from indexer.masking.spans import HIDDEN, Span, lines_at
from indexer.patterns import late

_PROGRAM = r"(?:(?<![A-Za-z0-9_.-])|(?<=\\[nrt]))"
_GAP = rf"(?:[^\S\n]+[^\s|;&{HIDDEN}]{{1,200}}+){{0,16}}?[^\S\n]+"


def _command(programs: str, option: str, order: str = "") -> Phrase:
    """Programs, what they are told to do, and the options behind which a password stands."""
    told = rf"{_GAP}{order}" if order else ""
    pattern = rf"{_PROGRAM}(?:{programs})(?:\.exe)?{told}{_GAP}(?:{option}){VALUE}"
    return Phrase("password", programs, pattern)


#: Commands with an option of a letter or two behind which a password may stand.
OPTION = late(rb" -(?:[a-z]{0,3}u|[pawnk]|hp|-pass|-user|-auth|-proxy-user|pass|storep|keyp|destst|srcst)")
COMMANDS = (
    _command("mysql|mysqldump|mysqladmin|mysqlimport|mariadb|mariadb-dump|mycli", "-p"),
    _command("sshpass", "-p ?"),
    _command("redis-cli", "-a ?|--pass[ =]"),
    _command("mongo|mongosh|mongodump|mongorestore|mongoexport|mongoimport", "-p[ =]?|--password[ =]"),
    _command("docker|podman|helm|az|skopeo|buildah|oc|nerdctl", "-p |--password[ =]", "login"),
    _command("curl|wget", r"(?:-[a-zA-Z]{0,8}u|--user|-U|--proxy-user)[ =]?[\"']?[^\s:\"'$<{]{1,64}:"),
    _command("http|https|xh|hey|siege", r"(?:-a|-A|--auth)[ =][\"']?[^\s:\"'$<{]{1,64}:"),
    _command("ldapsearch|ldapadd|ldapmodify|ldapwhoami|ldappasswd|ldapdelete", "-w ?"),
    _command("smbclient|rpcclient|wmic|smbmap", r"-U ?[\"']?[^\s%\"']{1,64}%|-p ?"),
    _command("sqlcmd|bcp|osql|isql", "-P ?"),
    _command("mosquitto_pub|mosquitto_sub", "-P ?|--pw[ =]"),
    _command("twine", "-p ?|--password[ =]"),
    _command("zip|unzip|unrar|rar", "-P ?|-hp"),
    _command("7z|7za|7zr", "-p"),
    _command("openssl", r"-(?:pass|passin|passout)[ =]pass:|-k "),
    _command("gpg|gpg2", "--passphrase[ =]"),
    _command("ssh-keygen", "-N "),
    _command("keytool|jarsigner", "-(?:storepass|keypass|deststorepass|srcstorepass)[ =]"),
    _command("lftp|ncftp", r"-u ?[^\s,]{1,64},"),
    _command("xfreerdp|rdesktop", "/p:|-p "),
    _command(
        "veracrypt|truecrypt|snowsql|beeline|clickhouse-client|cqlsh|vsql|influx|rabbitmqadmin", "-p ?|--password[ =]"
    ),
)
#: What names of programs are made of, with blanks for all other bytes.
_NAMES = bytes(
    byte if chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "_.-") else 32 for byte in range(256)
)


def commands_in(text: str, lower: bytes) -> Iterator[Span]:
    """The secrets behind options of commands."""
    if options := [found.start() for found in OPTION.finditer(lower)]:
        lines = lines_at(lower, options)
        said = b"\n".join([lower[start:end] for start, end in lines])
        if not _words_in(said).isdisjoint(_by_program()):
            for phrase in dict.fromkeys(_by_program()[found[1]] for found in _programs().finditer(said)):
                yield from found_at(phrase, text, lines)


def _words_in(said: bytes) -> set[bytes]:
    """What may be names of programs in it: this is much faster than the search for them."""
    for not_of_the_name in (b".exe", b"\\n", b"\\r", b"\\t") if b"\\" in said or b".exe" in said else ():
        said = said.replace(not_of_the_name, b" ")
    return set(said.translate(_NAMES).split())


@cache
def _by_program() -> dict[bytes, Phrase]:
    return {program.encode(): phrase for phrase in COMMANDS for program in phrase.anchors.split("|")}


@cache
def _programs() -> re.Pattern[bytes]:
    longest_first: list[bytes] = sorted(_by_program(), key=len, reverse=True)
    names = b"|".join(longest_first)
    return re.compile(rb"(?:(?<![a-z0-9_.-])|(?<=\\[nrt]))(" + names + rb")(?:\.exe)?[ \t]")
