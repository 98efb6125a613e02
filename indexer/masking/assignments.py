"""Secrets that are recognized by the name to which they are assigned, in any programming language or format."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from indexer.lazy_compilation import late
from indexer.masking.rules import HIDDEN, NAME, Span, begun, ended, expanded
from indexer.masking.value_checks import (
    STEM_WORDS,
    Form,
    Noun,
    is_alone,
    is_hard,
    is_identity,
    is_number,
    is_secret,
    is_sentence,
    is_thrown_together,
    is_uuid,
    is_worded,
    placeholder,
)

#: Parts of names that hint at a secret, in lower case, each with the kind of secret.
STEMS = {
    b"pass": "password",
    b"pw": "password",
    b"secret": "secret",
    b"token": "token",
    b"key": "api-key",
    b"_pat": "token",
}
_EVERY_STEM = {**STEMS, **STEM_WORDS}
#: How a name with "pass" for a password may continue after it.
_PASS_ENDS = late(
    r"(?i)(?:w(?:or)?d|wort|_?phrase|code|e)?\d?"
    r"(?:[_.-]?(?:base64|b64|value|plain|text|clear|new|old|default|prod|dev|test|staging|live|bdd?|db|root|"
    r"admin|\d{1,2}))?"
)
_ESCAPED_LINE_ENDS = ("\\n", "\\r", "\\t")
#: Words before "key" in a name. Only after one of these, the name is that of a secret.
_KEY_OWNERS = tuple(
    b"api access secret private priv auth account client service signing encryption master db "
    b"subscription shared app application deploy webhook hmac jwt license functions function consumer "
    b"admin storage preshared integration ingest write server rest crypt cipher validation decryption machine "
    b"user session cookie "
    b"refresh developer dev prod ssh host openai anthropic stripe google maps azure github gitlab twilio "
    b"sendgrid mailgun datadog algolia pinecone mistral groq deepseek supabase firebase openweather sentry "
    b"grafana".split()
)
#: Words before "pass" in names of passwords. No ordinary word consists of one of these and "pass".
_PASS_OWNERS = tuple(b"key store user require db root admin smtp mail ftp sudo ssh".split())
#: Words that end with "pass" when one of these comes before it, such as "bypass".
_NO_PASS = tuple(b"by com sur tres over under multi single two one low high band first second render encom".split())
#: Words before "key" in names of environment variables that hold no secret.
_OPEN_KEYS = late(expanded("{open_key}"))
#: Names of tokens that only distinguish objects, and are no secret.
_TELLS_APART = late(
    r"(?i)(?:page|next|request|continuation|cursor|cancel\w*|sync|idempoten\w+|dedup\w*|lock|lease|"
    r"fencing|trace)[_-]?token"
)
#: A header's name of several words that ends with "key".
_HEADER = late(r"[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+){0,4}-(?i:key)")
#: Names that only say something about a secret, such as its length.
_ABOUT = late(expanded("{about_a_secret}"))
#: The characters of the part of a name before "pass" or "key".
_HEAD = string.ascii_letters + string.digits + "_.-"
_SEPARATOR = late(expanded("{separator}"))
#: Several words that form a password: with a digit or a sign, or four groups of four letters, as mail services give
#: them.
_WORDED = late(r"[a-z]{4}(?: [a-z]{4}){3}|(?=[^\n]*(?:[0-9]| [#&+*@] ))\S{2,20}(?: \S{1,20}){1,5}")
#: The new value in "old -> new".
_INSTEAD = late(r"[\"'][ ]{0,2}(?:->|=>)[ ]{0,2}[\"']([^\"'\n]{4,256})[\"']")
_ENDS_WORDS = late(r"[ \t]*(?:$|[\n;,)}]|[a-z_]+ -)")
_BARE = late(rf"[^\s\"'`\\<>\u3001\u3002\uff0c{HIDDEN}]{{1,4096}}+")
_INSIDE = {
    '"': late(rf"(?>(?:[^\"\\\s{HIDDEN}]|\\[^\snrt]){{1,4096}})"),
    "'": late(rf"(?>(?:[^'\\\s{HIDDEN}]|\\[^\snrt]){{1,4096}})"),
    "`": late(rf"[^`\s{HIDDEN}]{{1,4096}}+"),
}
#: What comes before a name that a blank parts from its value: commands that set variables, and definitions in Lisp.
_SETS = late(
    r"(?:(?:^|[\n;&|]|\\[nrt])[ \t]{0,8}(?:ENV|ARG|setenv|SetEnv|SETX|setx|set(?: -\w{1,4}){1,2}|fastcgi_param|"
    r"uwsgi_param)|"
    r"\((?:def\w{0,6}|setq|define))[ \t]{1,4}$"
)
_TOLD_TO_SET = late(
    r"(?i)(?:^|[\s;&|\"'(])(?:set|put|add|create|update|store|write|export|config(?: set)?|use|using|enter|try|"
    r"is|new|login)"
    r"(?:[ ]--?[\w-]{1,24}){0,3}[ \t\"']{1,4}(?:\S{0,60}[:/])?$|[{(\s]:$"
)
_FEW_WORDS = late(r"^\W{0,8}(?:[\w'-]{2,16} ){1,2}$")
#: How a table's cell ends.
_CELL_ENDS = late(r"[`*\"']{0,2}[ \t]{0,40}\|")
_CALLS = late(expanded("{calls}"))
_PAIRS = late(r"(?i)(?:name|key|id|property)\\{0,3}[\"']?\s{0,4}[:=]\s{0,4}\\{0,3}[\"']?$")
_PROPERTY = late(r"[a-z][\w.-]{3,80}")
#: Words for the place from which a program takes a password, as in "env:NAME".
_SOURCE = late(r"(?:pass|env|file|fd|stdin)(?::|$)")
_STATEMENT = late(r"[A-Z_]+|(?:key|store)Password")
_CODE_ENDS = late(r"[,;|(){}\[\]]")
_CODE = late(r"[\w)][(\[]\w{0,40}[)\]]|[,;]$|^[(\[{]")
_ACCOUNT = late(expanded("{account}"))
_WORD_BEFORE = late(r"[A-Za-z]{2,20} $")
_COMMENT = late(r"[ \t]{1,40}(?:#|//)[ \t]")
#: The file and line number that search programs print before each line.
_PLACE = late(r"^[\w./-]{1,60}:(?:\d{1,6}[:-])?[ \t]{0,16}")
_CALL = late(r"[\w.]+\(")
_NEXT_PARAMETER = late(r"&[A-Za-z0-9_.-]{1,64}=")
_UPPER_NAME = late(r"[A-Z][A-Z0-9_]*")
#: A user's or machine's name in the same line: the name beside it is then no mere label of a field.
_COMPANY = late(r"(?i)[\"']?(?:user(?:_?name)?|login|host|server|database|email)[\"']?\s{0,4}[:=]")


def assignments_in(
    text: str, lower: bytes, signs: AbstractSet[bytes], places: Mapping[bytes, list[int]]
) -> Iterator[Span]:
    """Yield the positions of secrets that are assigned to a name, such as `password = …`.

    `lower` is the text as lower-case bytes. `signs` are its words that hint at secrets, and `places` their positions.
    """
    for stem in _EVERY_STEM.keys() & signs:
        yield from _of_stem(text, lower, stem, places[stem])


def assigned_to(text: str, noun: Noun) -> Iterator[Span]:
    """Yield the secrets assigned to `noun`, a word with letters beyond ASCII that means a secret, such as "пароль"."""
    return _named(text, noun.start, noun.end, noun.kind)


def _of_stem(text: str, lower: bytes, stem: bytes, places: Iterable[int]) -> Iterator[Span]:
    done = 0
    for position in places:
        if position >= done and _may_name(text, lower, stem, position):
            for span in _named(text, position, position + len(stem), _EVERY_STEM[stem]):
                yield span
                # Names inside a very long value are not looked at: each would read the same characters again.
                done = span.end if span.end - span.start > 256 else done


def _named(text: str, position: int, end: int, kind: str) -> Iterator[Span]:
    """Yield the values assigned to a name. `position` and `end` limit the part of the name that hints at a secret."""
    match = _SEPARATOR.match(text, end)
    if (
        match
        and (match["sep"].strip() or match["quote"] or _may_set(text, position, match))
        and (value := _value_at(text, match))
    ):
        if kind == "password" and (words := _words_at(text, match, value)):
            yield Span(match.end(), NAME, words, kind)
        for span in _assigned(text, position, match, value, kind):
            yield span
            if match["quote"] and (instead := _INSTEAD.match(text, span.end)):
                yield Span(instead.start(1), NAME, instead.end(1), kind)


def _may_name(text: str, lower: bytes, stem: bytes, position: int) -> bool:
    """Return True if a short `stem` such as "pw" is a word at `position`, or begins one inside a name."""
    if stem == b"_pat":
        return not lower[position + 4 : position + 5].isalpha()
    if stem not in (b"pass", b"pw") or lower[position : position + 5] in (b"passw", b"passp"):
        return True
    if (
        stem == b"pw"
        and lower[position - 4 : position] in (b"bind", b"root", b"user")
        and not lower[position + 2 : position + 3].isalnum()
    ):
        return True
    if stem == b"pw" and lower[position + 2 : position + 3].isalnum() and lower[position + 2] != ord("d"):
        return False
    before = text[position - 1 : position] if position else ""
    if stem == b"pass" and lower.endswith(_PASS_OWNERS, 0, position):
        return True
    if stem == b"pass" and not lower[position + 4 : position + 5].isalnum():
        return not lower.endswith(_NO_PASS, 0, position)
    return (
        not before.isalnum() or text[position].isupper() or text[max(0, position - 2) : position] in _ESCAPED_LINE_ENDS
    )


def _may_set(text: str, stem: int, match: re.Match[str]) -> bool:
    """Return True if the word behind a name and a blank can be its value: it ends the line, or a command sets it."""
    rest = text[match.end() : ended(text, match.end(), 258)]
    if " " not in rest.strip(" \t,;\r"):
        return True
    earlier = text[max(0, stem - 108) : stem]
    return any(word in earlier for word in (" -", "--", "ENV", "ARG", "set", "SET", "Set", "_param"))


def _owns_line(text: str, stem: int, match: re.Match[str]) -> bool:
    """Return True if the line consists of a setting's name, a blank and one word, as Java and Redis write settings."""
    start = text.rfind("\n", max(0, stem - 80), stem) + 1
    name = text[start : match.end("suffix")].strip()
    return ("." in name or name == "requirepass") and _PROPERTY.fullmatch(name) is not None


def _value_at(text: str, match: re.Match[str]) -> re.Match[str] | None:
    quote = match["quote"] or ""
    inside = _INSIDE[quote] if len(quote) == 1 else _BARE
    return inside.match(text, match.end())


def _words_at(text: str, match: re.Match[str], value: re.Match[str]) -> int:
    """Return the end of a quoted password of several words, of which `value` is the first; 0 for anything else."""
    quote = match["quote"]
    if not quote or len(quote) > 1 or text[value.end() : value.end() + 1] != " ":
        return 0
    end = text.find(quote, value.end(), match.end() + 80)
    words = text[match.end() : max(end, 0)]
    if (
        "\n" in words
        or not _WORDED.fullmatch(words)
        or not is_worded(words)
        or is_sentence(words)
        or placeholder(words)
    ):
        return 0
    return end if _ENDS_WORDS.match(text, end + 1) or (match["sep"] == "=" and text[match.start() - 1].isupper()) else 0


def _assigned(text: str, stem: int, match: re.Match[str], value: re.Match[str], kind: str) -> Iterator[Span]:
    """Yield the position of the assigned `value` if it is a secret of this `kind`."""
    name_start = stem - _length_of_head(text[max(0, stem - 48) : stem])
    if text[name_start - 1 : name_start + 1] in _ESCAPED_LINE_ENDS and stem > name_start:
        name_start += 1
    # A section and a name in it.
    if text[name_start - 1 : stem] == ":" and text[name_start - 2 : name_start - 1].isalpha():
        name_start -= 1 + _length_of_head(text[max(0, stem - 48) : stem - 1])
    name, suffix = text[name_start : match.end("suffix")], match["suffix"]
    if name.startswith("--") and match["sep"].strip() == ":":  # a variable of a style sheet
        return
    if text.rfind("arn:", max(0, name_start - 60), name_start) > text.rfind(" ", 0, name_start):
        return
    called = f"{_word_before(text, name_start)}{name}"
    if suffix and _ABOUT.search(suffix) and not _is_secret_id(text, name, name_start, value[0]):
        return
    word = text[stem : match.end("suffix")]
    if not (
        _names(called, word, kind, match) or _is_of_an_account(text, called, match) or _is_key(called, word, value[0])
    ):
        return
    form = _form(text, name, name_start, match, value)
    if form is None:
        return
    words, how = form
    amazon = "aws" in name.lower() or "accesskey" in name.lower().replace("_", "")
    if not _TELLS_APART.search(name) and is_secret(words, kind, how, amazon=amazon):
        yield Span(value.start(), NAME, value.start() + len(words), kind)


def _length_of_head(earlier: str) -> int:
    return len(earlier) - len(earlier.rstrip(_HEAD))


def _is_secret_id(text: str, name: str, name_start: int, value: str) -> bool:
    """Return True for a ``secret_id`` (of HashiCorp Vault), which is a secret although other ids are none."""
    if name.lower().replace("_", "").replace("-", "") != "secretid":
        return False
    return is_uuid(value) or "role" in _line(text, name_start)


def _is_of_an_account(text: str, name: str, match: re.Match[str]) -> bool:
    """Return True if the name is only "key", but lines nearby describe an account, so that the key is a secret."""
    near = text[max(0, match.start() - 240) : match.end() + 160]
    if match["sep"].strip() == ":" and not match["quote"]:
        return False
    return (
        name.lower() in ("key", "app_key") and match["sep"].strip() in ("=", ":") and _ACCOUNT.search(near) is not None
    )


def _word_before(text: str, position: int) -> str:
    """Return the word that completes a name, such as "API" before "key", or ""."""
    found = _WORD_BEFORE.search(text[max(0, position - 24) : position])
    return found[0].replace(" ", "_") if found else ""


def _names(name: str, word: str, kind: str, match: re.Match[str]) -> bool:
    if kind == "password":
        if name == "PASS" and match["sep"].strip() == ":" and not match["quote"]:  # so tests say that they passed
            return False
        lower = word.lower()
        return not lower.startswith("pass") or _PASS_ENDS.fullmatch(word[4:]) is not None
    if kind != "api-key" or not word.lower().startswith("key"):
        return True
    before = name.lower().rstrip()[: len(name) - len(word)].rstrip("_-.:")
    if before.encode("ascii", "replace").endswith(_KEY_OWNERS):
        return not _OPEN_KEYS.search(name)
    if _OPEN_KEYS.search(name):
        return False
    if match["sep"].strip() == ":" and _HEADER.fullmatch(name):
        return True
    return _UPPER_NAME.fullmatch(name) is not None and "_" in name and match["sep"].strip() in ("=", ":")


def _is_key(name: str, word: str, value: str) -> bool:
    """Return True if a name such as "deploy key" has a random `value`. `word` is the part that hints at a secret."""
    if word.lower() != "key" or len(name) == len(word) or _OPEN_KEYS.search(name):
        return False
    value = value.rstrip(",;)")
    return is_uuid(value) or (is_number(value) and len(value) != 40) or (len(value) >= 12 and is_thrown_together(value))


def _form(  # noqa: PLR0912 - one case for each way to write it
    text: str, name: str, name_start: int, match: re.Match[str], value: re.Match[str]
) -> tuple[str, Form] | None:
    """Return the text of an assigned `value`, and how it is written (see `Form`); `None` if it cannot be a secret."""
    words, separator, quote = value[0], match["sep"], match["quote"]
    earlier = text[max(0, name_start - 60) : name_start]
    after = text[value.end() : value.end() + 1]
    closed = not after or after in "\"'`\\"
    if separator.startswith((">", "</")):
        return (words, "string") if after == "<" else None
    if "{" in separator:
        return (words, "entry") if closed else None
    if not separator.strip() and name.startswith("-") and _SOURCE.match(words):
        return None
    if not separator.strip() and not name.startswith("-") and not (quote and _STATEMENT.fullmatch(name)):
        return _behind_blank(text, name, name_start, match, value)
    if separator.strip() in ("->", "-->") and _line_before(text, name_start).strip(" \t*`|-"):
        return None  # two names in a row of other things
    if separator.strip() == "|":
        first = _line_before(text, name_start).strip(" `*")
        row = (first == "|" and _CELL_ENDS.match(text, value.end())) or (not first and after in ("", "\n", "\r"))
        return (words, "entry") if row and is_hard(words) else None
    if (
        separator[:1] == ":"
        and "\n" in separator
        and separator.rstrip().endswith((":", "t:"))
        and separator.count(":") > 1
    ):
        return (words, "entry") if after in ("", "\n", "\r", '"', "'", " ") else None
    if "alue" in separator and "efault" not in separator:
        if not _PAIRS.search(earlier):
            return None
        return words.rstrip("/>"), "literal" if _UPPER_NAME.fullmatch(name) else "entry"
    if separator.startswith(",") and name.startswith("--"):
        return (words, "literal") if quote and closed else None
    if separator.startswith((",", "(")):
        constant = _UPPER_NAME.fullmatch(name) and "_" in name and is_hard(words)
        called = separator[0] == "(" or constant or _CALLS.search(earlier)
        return (words, "entry") if called and quote and after and closed else None
    if not quote:
        return _bare(text, name, name_start, match, value)
    if not closed:  # a string with blanks in it is a sentence about the secret
        return None
    if (earlier[-1:] == quote and not match["close"] and separator[-1] not in quote + " ") or words[:2] in ("'$", '"$'):
        return None  # the end of a string, to which something is added
    if name.startswith("--") or (separator == "=" and _UPPER_NAME.fullmatch(name)):
        return words, "literal"
    return words, "string" if "=" in separator or _COMPANY.search(_line(text, name_start)) else "entry"


def _behind_blank(
    text: str, name: str, name_start: int, match: re.Match[str], value: re.Match[str]
) -> tuple[str, Form] | None:
    """Return a value behind a name and a blank, and how it is written (see `Form`); `None` if it is no secret."""
    words, quote, after = value[0], match["quote"], text[value.end() : value.end() + 1]
    if _SETS.search(text[max(0, name_start - 60) : name_start]):
        return words, "literal"
    if not quote and after in ("", "\n") and _owns_line(text, match.start(), match):
        return words, "line"
    before = _PLACE.sub("", _line_before(text, name_start))
    told = (
        _TOLD_TO_SET.search(before) or not before.strip(" \t+>`|#-") or (_FEW_WORDS.search(before) and "pass" in name)
    )
    over = after == quote[-1:] if quote else after in ("", "\n", "\r")
    return (words, "line") if told and over and is_alone(words) and not is_identity(words) else None


def _bare(text: str, name: str, name_start: int, match: re.Match[str], value: re.Match[str]) -> tuple[str, Form] | None:
    """Return a value without quotes, and how it is written (see `Form`); `None` if it is no secret."""
    words, separator, after = value[0], match["sep"], text[value.end() : value.end() + 1]
    if separator[-2:] in ("q(", "q{", "q["):
        return _CODE_ENDS.split(words)[0], "string"
    earlier = text[max(0, name_start - 60) : name_start]
    before = earlier[-1:]
    words = _NEXT_PARAMETER.split(words, maxsplit=1)[0]
    after = "" if _COMMENT.match(text, value.end()) else after
    called = before == ";" and _CALL.match(words)
    if name.startswith("-") or (
        not called and separator == "=" and (_UPPER_NAME.fullmatch(name) or (before and before in "?&;-"))
    ):
        return (words.split(";")[0] if before == ";" else words).rstrip(";,)"), "literal"
    indent = _PLACE.sub("", earlier.rpartition("\n")[2])
    quoted = before in ('"', "'", "\\")
    alone = not indent.strip(" \t-*>|#+").strip("\"'-+ ") or quoted or earlier.endswith(_ESCAPED_LINE_ENDS)
    if separator.strip(" \t*|>+-\n") == ":" and alone and after != " ":
        if _CODE_ENDS.search(words) and (_CODE.search(words) or not any(map(str.isdigit, words))):
            return None
        return words, "string" if "_" in name and _UPPER_NAME.fullmatch(name) else "entry"
    cut = _CODE_ENDS.search(words)
    if cut and cut[0] == "}" and earlier.endswith("${"):  # what is taken where a variable is not set
        return words[: cut.start()], "line"
    if cut and (cut[0] in "([{" or not cut.start()):
        return None
    words = words[: cut.start()] if cut else words
    tight = separator == "=" and (not cut or cut[0] == ";") and not before.strip("\"' \t\n;|(\\")
    if (tight and (not after or after in "\n\r\"'\\< ")) or (alone and not cut and after != " "):
        return words, "line"
    return words, "code"


def _line_before(text: str, position: int) -> str:
    return text[begun(text, position, 200) : position]


def _line(text: str, position: int) -> str:
    return text[begun(text, position, 200) : ended(text, position, 300)]
