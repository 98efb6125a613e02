"""Secrets that are known by the words around them: headers, addresses, commands, statements, files of programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache

from indexer.masking.spans import HIDDEN, PHRASE, Span, lines_at, monotone, placeholder, positions_of
from indexer.masking.values import is_base64_pair, is_mixed, is_opaque, is_strong, looks_random
from indexer.patterns import late
from indexer.shapes import dataclass

_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "any": lambda value: True,  # noqa: ARG005
    "hard": lambda value: is_mixed(value) and is_strong(value),
    "mixed": is_mixed,
    "opaque": is_opaque,
    "pair": is_base64_pair,
    "random": lambda value: looks_random(value, lenient=True),
    "strong": is_strong,
}


@dataclass(frozen=True, slots=True, eq=False)  # told apart as objects: their long texts are compared nowhere
class Phrase:
    """Words with a secret between them. In lower case a text has one of `anchors`; the group is the secret.

    `whole`: more than a line is looked at. `least` is how a value must look beside being no placeholder.
    """

    kind: str
    anchors: str
    pattern: str
    least: str = "any"
    whole: bool = False


_Q = r"\\{0,3}[\"'`]"
_IDENTITY = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_VALUE = (
    rf"(?:'([^'\n{HIDDEN}]{{3,256}}+)'|\"([^\"\n{HIDDEN}]{{3,256}}+)\"|"
    rf"([^\s\"'`|;&<>(){HIDDEN}-][^\s\"'`|<>{HIDDEN}]{{2,256}}+))"
)
_PROGRAM = r"(?:(?<![A-Za-z0-9_.-])|(?<=\\[nrt]))"
_GAP = rf"(?:[^\S\n]+[^\s|;&{HIDDEN}]{{1,200}}+){{0,16}}?[^\S\n]+"


def _command(programs: str, option: str, order: str = "") -> Phrase:
    """Programs, what they are told to do, and the options behind which a password stands."""
    told = rf"{_GAP}{order}" if order else ""
    pattern = rf"{_PROGRAM}(?:{programs})(?:\.exe)?{told}{_GAP}(?:{option}){_VALUE}"
    return Phrase("password", programs, pattern)


#: These are known by several literals.
_PIPED = (
    Phrase(
        "password",
        "sudo|password-stdin|passwd",
        rf"(?:echo|printf)\s+(?:-n\s+|-e\s+|'%s'\s+)?{_VALUE}\s*\|"
        r"\s*(?:sudo -S|sudo\s+passwd|passwd|[^|\n]{0,120}-stdin)",
    ),
    Phrase(
        "password",
        "chpasswd",
        r"(?:echo|printf)\s+[\"']?[\w.-]{1,64}:([^\s\"'|]{3,128})[\"']?\s*\|\s*(?:sudo\s+)?chpasswd",
    ),
    Phrase("password", "htpasswd", rf"htpasswd\s+-[a-zA-Z]*b[a-zA-Z]*\s+(?:\S+\s+){{1,2}}{_VALUE}"),
)
_PASSWORD_FILE = (
    Phrase(
        "password",
        ":5432:|:6432:|:*:",
        r"(?m:^)\s{0,8}[^\s:#]{1,256}:(?:\d{4,5}|\*):[^\s:]{1,128}:[^\s:]{1,128}:([^\s:]{3,256}+)(?m:$)",
    ),
)
_WORDS = (
    Phrase(
        "recovery-phrase",
        "mnemonic|phrase",
        rf"(?i:mnemonic|seed|recovery)(?i:[ _-]?(?:phrase|words))?(?:{_Q})?"
        rf"(?:\s{{0,4}}(?:[:=]|is:?)\s{{0,4}}(?:{_Q})?|\s{{1,4}}(?:{_Q}))"
        r"((?:[a-z]{3,8} ){11,23}[a-z]{3,8})",
    ),
)
_SIGNATURE = (
    Phrase(
        "signature", "signature=|sig=", r"[?&](?:amp;)?(?:[A-Za-z-]{0,20}[Ss]ignature|sig)=([A-Za-z0-9%+/=_-]{32,}+)"
    ),
)
#: Before a name and a password between a colon.
_PAIR = rf"[bB]?(?:{_Q})[^\"'`:\s{HIDDEN}]{{1,64}}:([^\"'`\s{HIDDEN}]{{4,128}}+)(?:{_Q})"
_ENCODED = (
    Phrase(
        "password", "btoa(|b64encode(|buffer.from(", rf"(?:btoa|b64encode|Buffer\.from)\(\s{{0,4}}{_PAIR}", "strong"
    ),
    Phrase(
        "password",
        " base64",
        r"(?:echo|printf)\s+(?:-n\s+)?[\"']?[\w.@-]{1,64}:([^\s\"'|]{4,128})[\"']?\s*\|\s*base64",
        "strong",
    ),
)
#: What other languages call a password.
_ABROAD = "mot de passe|contrase|senha|wachtwoord|kennwort|parola|heslo"
_PASSWORDS_ABROAD = (
    Phrase(
        "password",
        _ABROAD,
        rf"(?i:mot de passe|contrase\w{{1,3}}a|senha|wachtwoord|kennwort|parola|heslo)(?:{_Q})?"
        rf"\s{{0,3}}[:=]\s{{0,3}}(?:{_Q})?([^\s\"'`,;]{{6,64}})",
        "mixed",
    ),
)
#: By a literal that a text has in which some of these are.
PHRASES: Mapping[bytes, tuple[Phrase, ...]] = {
    b"auth": (
        Phrase(
            "authorization",
            "authorization",
            r"(?i:authorization)\\{0,3}[\"']?\s{0,4}[:=,]\s{0,4}\\{0,3}[\"'`]?"
            r"(?i:basic|bearer|token|digest|apikey|api-key|ssws|bot|key|oauth|splunk|geniekey|negotiate)"
            r"\s{1,4}(?:token=\\?\"?|(?!username=))([A-Za-z0-9._~+/=:|%-]{8,}+)",
        ),
        Phrase(
            "authorization",
            "authorization",
            r"(?i:authorization)\\{0,3}[\"']?\s{0,4}[:=]\s{0,4}\\{0,3}[\"'`]?(?:[A-Za-z][A-Za-z-]{1,24}\s{1,4})?"
            r"([A-Za-z0-9._~+/=:-]{16,}+)",
            "random",
        ),
        Phrase(
            "docker-auth",
            "auth",
            rf"auth(?<![A-Za-z0-9]auth)(?:{_Q})?\s{{0,4}}[:=]\s{{0,4}}(?:{_Q})?([A-Za-z0-9+/]{{6,}}+={{0,2}})",
            "pair",
        ),
        Phrase(
            "password",
            "auth(|auth=(|auth = (|auth: [|login(|entials(|ation(|token(",
            rf"(?i:auth|\.login|credentials?|authentication(?:token)?)\s{{0,4}}(?:[=:]\s{{0,4}})?[(\[]\s{{0,40}}"
            rf"{_Q}[^\"'\n{HIDDEN}]{{1,80}}{_Q}\s{{0,4}},\s{{0,40}}{_Q}([^\"'\\\s{HIDDEN}]{{4,128}}){_Q}\s{{0,40}}[)\],]",
            "strong",
        ),
        Phrase("ngrok-token", "authtoken ", r"ngrok\s[^\n]{0,80}?authtoken\s+([A-Za-z0-9_]{40,}+)"),
        Phrase("snyk-token", "snyk auth", rf"snyk auth\s+({_IDENTITY})"),
        Phrase("authorization", "basic ", r"(?i:(?<![a-z])basic)\s{1,4}([A-Za-z0-9+/]{8,}+={0,2})", "pair"),
    ),
    b"bearer": (
        Phrase(
            "authorization",
            "bearer",
            r"(?i:bearer)\s{1,4}(?=[A-Za-z._~+/-]{0,64}[0-9])([A-Za-z0-9._~+/=-]{20,}+)",
        ),
    ),
    b"://": (
        Phrase(
            "password-in-url",
            "://",
            rf"://[^\s/:@\"'`<>\[\]{{}}\\{HIDDEN}]{{0,128}}:([^\s/\"'`<>\[\]{{}}\\{HIDDEN}]{{1,256}})@",
        ),
        Phrase("password-in-url", "://", r"://([A-Za-z0-9_-]{20,256}+)@", "random"),
        Phrase(
            "webhook",
            "hooks.zapier.com|maker.ifttt.com",
            r"(?:hooks\.zapier\.com/hooks/catch/\d{4,12}/|maker\.ifttt\.com/trigger/[^/\s]{1,60}/(?:json/)?with/key/)"
            r"([A-Za-z0-9_-]{6,}+)",
        ),
        Phrase(  # signs that should have been escaped
            "password-in-url",
            "postgres|mysql|mariadb|mongodb|redis|amqp|mssql|sqlserver",
            r"(?:postgres(?:ql)?|mysqlx?|mariadb|mongodb|rediss?|amqps?|mssql|sqlserver)(?:\+[a-z0-9_]{1,20})?://"
            rf"[^\s/:@\"'`{HIDDEN}]{{0,128}}:(?!\d{{1,5}}/)([^\s\"'`{HIDDEN}]{{3,200}}?)@[\w.-]{{1,100}}(?:[:/]|(?![\w.@-]))",
        ),
        Phrase(
            "cookie",
            " -b| --cookie",
            r"curl\s[^\n|;]{0,300}?(?:-b|--cookie)[ =]?[\"']?(?:[\w.-]{1,64}=[^;\s\"']{0,200};\s{0,2}){0,8}?"
            r"[\w.-]{1,64}=([^\s;,\"'\\]{16,}+)",
            "random",
        ),
        Phrase(
            "cookie", "session=", r"(?<![A-Za-z0-9])[A-Za-z0-9_.-]{0,40}session=([A-Za-z0-9%+/=_.-]{32,}+)", "opaque"
        ),
        Phrase("sonar-token", "sonar.login", rf"sonar\.login(?:{_Q})?\s{{0,4}}[:=,]\s{{0,4}}(?:{_Q})?([0-9a-f]{{40}})"),
        *_SIGNATURE,
        Phrase("api-key", "key=|appid=|app_id=", r"[?&](?:key|app_?key|app_?id)=([A-Za-z0-9_-]{20,}+)", "random"),
    ),
    b"&sig": _SIGNATURE,
    b"thin:": (Phrase("password", "thin:", r"thin:[\w.$-]{1,64}/([^\s@\"'/]{3,128})@"),),
    b"psk": (
        Phrase("password", "psk", r"(?:^|[\s{;,#\\n])psk\s{0,4}=\s{0,4}\\{0,3}\"([^\"\\\n]{8,63})\\{0,3}\""),
        Phrase(
            "password",
            "psk",
            r"(?:^|[\s{;,#\\n])(?:psk\s{0,4}=\s{0,4}|wpa-psk\s{1,4})([^\s\"'\\]{8,64})(?=\s|\\n|\"|$)",
            "strong",
        ),
    ),
    b"nmcli": (
        Phrase(
            "password",
            "nmcli",
            rf"nmcli\s[^\n]{{0,200}}?\s(?:password|wifi-sec\.psk|802-11-wireless-security\.psk)\s+{_VALUE}",
        ),
    ),
    b"/user:": (
        Phrase("password", "net use", rf"net use\s[^\n]{{0,200}}?/user:[^\s{HIDDEN}]{{1,64}}\s+{_VALUE}", "strong"),
        Phrase(
            "password",
            "net use",
            rf"net use\s(?:\S{{1,3}}\s)?\\\\[^\s{HIDDEN}]{{1,128}}\s+([^\s/{HIDDEN}]\S{{3,128}})\s+/user:",
            "strong",
        ),
    ),
    b"asplaintext": (
        Phrase(
            "password",
            "securestring",
            rf"(?i:ConvertTo-SecureString)\s+(?i:-String\s+)?(?:{_Q})([^\"'`\n]{{4,128}})(?:{_Q})",
        ),
    ),
    b"btoa": _ENCODED,
    b"b64encode": _ENCODED,
    b"buffer.from": _ENCODED,
    b"| base64": _ENCODED,
    b"login:": (
        Phrase(
            "password",
            "login:",
            r"(?i:(?<![a-z])log-?in)\s{0,2}[:=]\s{0,2}[^\s/]{2,64}\s/\s([^\s/]{6,64})",
            "hard",
        ),
    ),
    b"codecov": (Phrase("token", "codecov", rf"codecov[^\n]{{0,120}}?\s(?:-t|--token)[ =]?({_IDENTITY})"),),
    **dict.fromkeys((word.encode() for word in _ABROAD.split("|")), _PASSWORDS_ABROAD),
    b"cookie": (
        Phrase(
            "cookie",
            "cookie",
            r"(?<![a-z0-9])[a-z0-9_.-]{0,40}(?i:sess|sid|auth|token|jwt|remember)[A-Za-z0-9_.-]{0,40}=([^\s;,\"'\\]{16,}+)",
            "random",
        ),
    ),
    b"pass": (
        Phrase(
            "password",
            "pass",
            rf"(?i:pass(?:word)?)(?:{_Q})?\s{{0,4}}[:=]\s{{0,4}}(?:{_Q})([a-z]{{4}}(?: [a-z]{{4}}){{3}})(?:{_Q})",
        ),
        Phrase(
            "password",
            "word is|code is|phrase is|word was|wort ist",
            rf"(?i:pass(?:word|code|phrase|wort) (?:is|was|ist))[ :]{{1,2}}(?:{_Q})?([^\s\"'`,]{{6,64}})",
            "mixed",
        ),
        Phrase(
            "password",
            "phrase",
            rf"(?i:pass_?phrase)(?:{_Q})?\s{{0,4}}[:=]\s{{0,4}}(?:{_Q})"
            rf"((?!\w+ your)[a-z]{{3,10}}(?:[ -][a-z]{{3,10}}){{3,11}})(?:{_Q})",
        ),
        Phrase(
            "password",
            "wpa_passphrase",
            rf"wpa_passphrase\s+(?:\"[^\"\n]{{1,64}}\"|'[^'\n]{{1,64}}'|[^\s{HIDDEN}]{{1,64}}+)\s+{_VALUE}",
            "strong",
        ),
        Phrase(
            "password",
            "machine ",
            rf"machine\s+\S{{1,256}}+(?:\s+(?:login|account|user)\s+\S{{1,256}}+){{0,2}}\s+passw(?:or)?d\s+"
            rf"([^\s{HIDDEN}]{{3,256}}+)",
            whole=True,
        ),
        Phrase(
            "password",
            "password '|password='|password = '|password=n'|password for",
            r"(?i:with|encrypted|set|login|role|user|superuser|for)\s[^\n;]{0,120}?(?i:password)(?:\s{0,4}=\s{0,4}|\s{1,4})"
            r"(?i:password\s{0,2}\(\s{0,2})?[EN]?'([^'\n]{3,256})'",
        ),
        *_PIPED,
    ),
    b"| sudo": _PIPED,
    b"secret": (
        Phrase("secret", "aws configure", rf"aws configure set\s+aws_(?:secret_access_key|session_token)\s+{_VALUE}"),
        Phrase("secret", "gh secret", rf"gh secret set\s+\S+\s+(?:-b|--body)[ =]{_VALUE}"),
    ),
    b"sqlplus": (
        Phrase(
            "password",
            "sqlplus|sqlldr",
            r"(?:sqlplus|sqlldr)\s+(?:-\w+\s+)*[\"']?[\w.$-]{1,64}/([^\s@\"'/]{3,128})(?=@|[\"']|\s|$)",
        ),
    ),
    b"identified": (
        Phrase(
            "password",
            "identified",
            rf"(?i:identified\s+(?:with\s+[\w'\"]{{1,60}}\s+)?by)\s+(?i:password\s+|values\s+)?(?:{_Q})([^\s\"'`\\]{{3,256}})(?:{_Q})",
        ),
        Phrase("password", "identified by", r"IDENTIFIED BY\s+([^\s\"'`;,.()]{6,256}+)", "mixed"),
    ),
    b":5432:": _PASSWORD_FILE,
    b":6432:": _PASSWORD_FILE,
    b":*:": _PASSWORD_FILE,
    b"mnemonic": _WORDS,
    b"phrase": _WORDS,
    b"key": (
        Phrase(
            "vault-key",
            "unseal key",
            r"(?i:unseal key)s?(?: \d)?(?: \(\w{1,10}\))?\s{0,4}[:=]\s{0,4}([A-Za-z0-9+/=]{40,}+)",
        ),
        Phrase(
            "heroku-key", "heroku", r"(?i:heroku)[^\n]{0,60}?([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"
        ),
    ),
    b"</": (
        Phrase(
            "password",
            "word>|ecret>|token>|key>",
            r"(?i:password|passwd|passphrase|secret|secretkey|token|api-?key|accesskey)(?:\s[^<>\n]{0,200})?>\s{0,40}"
            r"([^<>\s]{4,512}+)\s{0,40}</",
            "strong",
            whole=True,
        ),
    ),
}
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
    _command("zip|unzip|unrar|rar", "-P ?|-hp"),
    _command("7z|7za|7zr", "-p"),
    _command("openssl", r"-(?:pass|passin|passout)[ =]pass:|-k "),
    _command("gpg|gpg2", "--passphrase[ =]"),
    _command("ssh-keygen", "-N "),
    _command("keytool|jarsigner", "-(?:storepass|keypass|deststorepass|srcstorepass)[ =]"),
    _command("lftp|ncftp", r"-u ?[^\s,]{1,64},"),
    _command("xfreerdp|rdesktop", "/p:|-p "),
    _command("snowsql|beeline|clickhouse-client|cqlsh|vsql|influx|rabbitmqadmin", "-p ?|--password[ =]"),
)
#: What names of programs are made of, with blanks for all other bytes.
_NAMES = bytes(
    byte if chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "_.-") else 32 for byte in range(256)
)


def phrases_in(text: str, lower: bytes, signs: Collection[bytes]) -> Iterator[Span]:
    """The secrets in `text`, which is `lower` with one byte a character and no capitals, and has these of its signs."""
    for phrase in dict.fromkeys(phrase for sign in signs for phrase in PHRASES.get(sign, ())):
        for anchor in _anchors(phrase):
            if anchor in lower:
                lines = [(0, len(text))] if phrase.whole else lines_at(lower, positions_of(lower, anchor))
                yield from _found(phrase, text, lines)


def commands_in(text: str, lower: bytes) -> Iterator[Span]:
    """The secrets behind options of commands."""
    if options := [found.start() for found in OPTION.finditer(lower)]:
        lines = lines_at(lower, options)
        said = b"\n".join([lower[start:end] for start, end in lines])
        if not _words_in(said).isdisjoint(_by_program()):
            for phrase in dict.fromkeys(_by_program()[found[1]] for found in _programs().finditer(said)):
                yield from _found(phrase, text, lines)


@cache
def _anchors(phrase: Phrase) -> tuple[bytes, ...]:
    return tuple(anchor.encode() for anchor in phrase.anchors.split("|"))


@cache
def _pattern(phrase: Phrase) -> re.Pattern[str]:
    """Compiled where one of its anchors is in a text."""
    return re.compile(phrase.pattern)


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


def _found(phrase: Phrase, text: str, lines: list[tuple[int, int]]) -> Iterator[Span]:
    for start, end in lines:
        for match in _pattern(phrase).finditer(text, start, end):
            group = match.lastindex
            if (
                group
                and HIDDEN not in match[group]
                and not monotone(match[group])
                and not placeholder(match[group])
                and _CHECKS[phrase.least](match[group])
            ):
                yield Span(match.start(group), PHRASE, match.end(group), phrase.kind)
