"""Texts of the evaluation set: templates that are filled with invented values, equal ones for an equal seed.

A template has ``⟦kind:argument⟧`` for a secret and ``⟨kind:argument⟩`` for a value that is no secret.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ALNUM = string.ascii_letters + string.digits
ALPHABETS = {
    "an": ALNUM,
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "b64": ALNUM + "+/",
    "u64": ALNUM + "-_",
    "d": string.digits,
    "la": string.ascii_lowercase + string.digits,
    "UA": string.ascii_uppercase + string.digits,
    "b32": string.ascii_uppercase + "234567",
    "pw": ALNUM + "!#%*+-_?@^~",
}
_WORDS = (
    "amber basin cactus dragon ember falcon glacier harbor indigo jungle kernel lantern meadow nickel orchid "
    "pepper quartz ribbon saddle timber umbrella velvet walnut yellow zephyr copper marble thunder willow sunset"
)
WORDS = tuple(re.findall(r"\w+", _WORDS))
HOLE = re.compile(r"⟦([^⟦⟧]+)⟧|⟨([^⟨⟩]+)⟩")


@dataclass(frozen=True)
class Sample:
    context: str
    text: str
    #: The pieces that must not be seen.
    secrets: tuple[str, ...]


def samples(path: Path, seed: int) -> Iterator[Sample]:
    """Return the samples of a file, filled with values of `seed`."""
    for number, (context, template) in enumerate(_templates(path.read_text(encoding="utf-8"))):
        yield filled(template, random.Random(f"{seed} {number} {template}"), context)  # noqa: S311


def _templates(text: str) -> Iterator[tuple[str, str]]:
    for section in text.split("%% ")[1:]:
        head, _, body = section.partition("\n")
        form, _, context = head.partition(": ")
        for template in body.split("\n\n" if form == "blocks" else "\n"):
            if template.strip():
                yield context, template.strip("\n")


def filled(template: str, chance: random.Random, context: str = "") -> Sample:
    """Return a template with values in its holes."""
    secrets: list[str] = []

    def value(hole: re.Match[str]) -> str:
        kind, _, argument = (hole[1] or hole[2]).partition(":")
        made = _made(kind, argument, chance)
        if hole[1]:
            secrets.append(made)
        return made

    return Sample(context, HOLE.sub(value, template), tuple(secrets))


def _made(kind: str, argument: str, chance: random.Random) -> str:
    if kind in ALPHABETS:
        return "".join(chance.choices(ALPHABETS[kind], k=int(argument)))
    return COMPOSED[kind](argument, chance)


def _human(_: str, chance: random.Random) -> str:
    """Return a password as people think them up."""
    word, other = chance.sample(WORDS, 2)
    return chance.choice(
        (
            f"{word.capitalize()}{chance.randint(10, 9999)}!",
            f"{word}-{other}{chance.randint(10, 99)}",
            f"{word.capitalize()}#{chance.randint(1000, 9999)}",
            f"{word}{other.capitalize()}_{chance.randint(1, 999)}",
        )
    )


def _plain(_: str, chance: random.Random) -> str:
    """Return a password of one or two words and a number, as people mention it in passing."""
    one, other = (word.capitalize() for word in chance.sample(WORDS, 2))
    number = chance.randint(10, 99)
    return chance.choice(
        (
            f"{one}_{number}",
            f"{one}{number}",
            f"{one}!{number}",
            f"{one}-{other}{number % 10}",
            f"{one}.{other}{number}",
        )
    )


def _said(_: str, chance: random.Random) -> str:
    """Return a password of several words as people tell it, joined in many ways, some with a word of field names."""
    one, other, third = (word.capitalize() for word in chance.sample(WORDS, 3))
    number, small = chance.randint(10, 99), chance.choice(("du", "of", "les"))
    return chance.choice(
        (
            *(
                f"{one}{other}_{number}",
                f"{one}{other}_{small}_{number}",
                f"{one}-Secret-{third}",
                f"{one}-{other}-{third}",
            ),
            *(
                f"{one}{number}62m",
                f"{one.lower()}{number}{other.lower()}",
                f"{one}@{other}{number}",
                f"{one}.{other}.{number}",
            ),
            *(
                f"Secret-{one}-{number}k",
                f"{one.lower()}-{other.lower()}-{number}",
                f"{number}34-{one.lower()}-{other.lower()}",
            ),
            *(f"{one}-for-{other}", f"Passw0rd-{one}", f"{one}${other}", f"{one.lower()}.{other.lower()}.{number}87"),
            *(f"{number}56{one}!", f"correct{one.lower()}{number}{other.lower()}", f"{one}+{other.lower()}+{number}"),
        )
    )


def _base64(length: str, chance: random.Random) -> str:
    return base64.b64encode(chance.randbytes(int(length))).decode()


def _uuid(_: str, chance: random.Random) -> str:
    digits = chance.randbytes(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def _claims(_: str, chance: random.Random) -> str:
    claims = json.dumps({"sub": str(chance.randint(1, 10**9)), "iat": 1763900000})
    return base64.urlsafe_b64encode(claims.encode()).decode().rstrip("=")


def _wif(_: str, chance: random.Random) -> str:
    """Return a Bitcoin wallet's private key with its checksum."""
    raw = b"\x80" + chance.randbytes(32) + b"\x01"
    number = int.from_bytes(raw + hashlib.sha256(hashlib.sha256(raw).digest()).digest()[:4])
    letters = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    out = ""
    while number:
        number, digit = divmod(number, 58)
        out = letters[digit] + out
    return out


COMPOSED: dict[str, Callable[[str, random.Random], str]] = {
    "human": _human,
    "plain": _plain,
    "said": _said,
    "b64p": _base64,
    "uuid": _uuid,
    "jwt": _claims,
    "wif": _wif,
    "words": lambda count, chance: "-".join(chance.sample(WORDS, int(count))),
    "groups": lambda count, chance: " ".join(
        "".join(chance.choices("bcdfghjklmnpqrstvwxz", k=4)) for _ in range(int(count))
    ),
    "bytes": lambda count, chance: ", ".join(f"0x{byte:02x}" for byte in chance.randbytes(int(count))),
    "escaped": lambda count, chance: "".join(f"\\x{byte:02x}" for byte in chance.randbytes(int(count))),
    "phrase": lambda count, chance: " ".join(chance.sample(WORDS, int(count))),
    "b64of": lambda text, chance: base64.b64encode((text % _human("", chance)).encode()).decode(),
}
