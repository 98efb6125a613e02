"""Secrets in sentences: somebody tells a password, a key or a code, in one of many languages."""

from __future__ import annotations

from indexer.masking.phrase import QUOTE, Phrase, by_sign
from indexer.masking.spans import HIDDEN

#: What a password is called, as it is searched for in bytes: every character beyond ASCII is a question mark there.
_ANCHORS = (
    "pass|pw|kennwort|zugangscode|contrase|senha|parola|wachtwoord|heslo|adgangskode|kodeord|salasana|"
    "jelsz|lozinka|geslo"
)
_NOUN = (
    r"(?i:pass(?:wor[dt]|phrase|code|e|ord(?:et)?|(?=[ ](?:is|was)[ ]))|kennwort|zugangscode|contrase\w{1,3}a|senha|"
    r"parola(?: d'ordine| chiave)?|wachtwoord|heslo|adgangskode(?:n)?|kodeord(?:et)?|salasana|jelsz\w{1,2}|"
    r"lozinka|geslo|(?<![a-z])pw(?= ))"
)
#: The same in words of which no byte is seen, and what they are known by.
_NOUN_BEYOND = (
    "(?:\u5bc6\u7801|\u5bc6\u78bc|\u53e3\u4ee4|\u30d1\u30b9\u30ef\u30fc\u30c9|\ube44\ubc00\ubc88\ud638|"
    "(?i:\u043f\u0430\u0440\u043e\u043b\\w{1,2}|has\u0142o|l\u00f6senord(?:et)?|m\u1eadt kh\u1ea9u|\u015fifre))"
)
BEYOND_ASCII = {
    word: "".join(c if c.isascii() else "?" for c in word).encode()
    for word in (
        "\u043e\u043a\u0435\u043d",
        "\u9a8c\u8bc1\u7801",
        *("\u0430\u0440\u043e\u043b", "\u5bc6\u7801", "\u5bc6\u78bc", "\u53e3\u4ee4", "\u30d1\u30b9\u30ef\u30fc\u30c9"),
        *("\ube44\ubc00\ubc88\ud638", "as\u0142o", "\u00f6senord", "\u1eadt kh\u1ea9u", "\u015fifre"),
    )
}
#: A noun behind it makes it a word of a program: what is said of that is no password.
_NO_WORD = (
    r"(?![A-Za-z0-9_./(\[]|[ -](?:hash|manager|polic|field|reset|length|file|store|strength|prompt|check|column|table|"
    r"type|generator|validat|encod|input|change(?!d)|rotation|expir|database|hint|protect|authent|grant|flow|"
    r"module|form))"
)
_NOW = r"(?: (?:now|jetzt|maintenant|ahora|agora|adesso|still))?"
#: What stands between the noun and what it is.
_IS = (
    r"(?=[ ,?:=\u2192\u2014\u2013\uff1a\u662f\u4e3a\u306f\ub294\uc740>-])(?:[?,]?[ ](?:is|was|are|to|it's|it is|ist|"
    rf"war|(?:should|must|will) be|(?:set|changed|reset) to|becomes|lautet|este|est|c'est|es|era|\u00e9|\u00e8|"
    rf"\u00e4r|er){_NOW}:?[ ]|"
    r"[ ]?(?::(?!//)|->|=>|\u2192|\u2014|\u2013|\uff1a)[ ]{0,3}|"
    "[ ]?[\u662f\u4e3a\u306f\ub294\uc740][ ]?)"
)
_ENDS = rf"\s\"'`,;<>{HIDDEN}"
#: What is no word: a letter and a digit. A full stop behind it is the sentence's.
_TOLD = (
    rf"(?:{QUOTE}|\*\*|[\u00ab\u201e\u201c\u300c] ?)?((?=[^{_ENDS}]{{0,62}}?[0-9])(?=[^{_ENDS}]{{0,62}}?[A-Za-z])"
    rf"[^{_ENDS}(\[{{][^{_ENDS}]{{4,62}}[^{_ENDS}.:)\]*\\])"
)
_GAP = rf"(?:[^\n.;!?={HIDDEN}]|\.(?=\w)){{0,80}}?"
_WORDS = r"[a-z]{3,10}(?:[ -][a-z]{3,10}){2,11}"
_KEYS = "api key|api-key|secret key|access key|d'api|cl? api|schl|clave|chave|chiave"
_KEY = (
    r"(?i:api[ -]?key|access[ -]key|secret[ -]key|cl[\u00e9e]f? (?:d'|de l')?api|clave (?:de )?(?:la )?api|"
    r"chave (?:de|da|do) api|chiave api|api-schl\u00fcssel|"
    r"schl\u00fcssel (?:f\u00fcr|der|des|zu[rm]?) [^\n.;!?]{0,20}?api)"
)


def _after(words: str) -> str:
    """A pattern of the place right behind one of these words."""
    return "(?i:" + "|".join(f"(?<={word})" for word in words.split("|")) + ")"


#: A key, a token or a secret that belongs to something.
_OWNERS = (
    "api|access|secret|signing|encryption|private|client|webhook|bot|auth|refresh|session|jwt|master|license|"
    "service|deploy|"
    "admin|app|shared|smtp|db|database|stripe|github|gitlab|slack|openai|new|our|my|your|the"
)
_OWNED = rf"{_after(_OWNERS)} (?i:secret(?: key)?|token|key|pass)"
_IT_IS = rf"{_NO_WORD}{_GAP}{_IS}{_TOLD}"
#: The word right before a password that is told without a verb: "and password …".
_LAST = (
    *("with", "mit", "avec", "con", "com", "and", "und", "et", " e", " y", ",", "/", ";", "#"),
    *("the", "das", "mot de", " la", " le", " a", " o", " il"),
)
_BESIDE = "|".join(f"(?<={word} )" for word in _LAST)
#: What a key is, beside being told: it stands in commas, or alone in the next line.
_KEY_IS = rf"(?:{_IS}|,[ ]|:[ \t]{{0,4}}\n\s{{0,12}})"
#: How a program of a test types it into a field.
_TYPED = (
    rf"(?:word|wort|wd)?[\"'`\])\s\\]{{1,8}}(?:,\s{{0,4}}|\.(?:fill|type|[sS]end_?[kK]eys|[sS]et_?[vV]alue|"
    rf"press\w{{0,12}}|enter\w{{0,8}}|input|"
    rf"write)\(\s{{0,4}})(?:{QUOTE})([^\"'`\s\\{HIDDEN}]{{4,128}})(?:{QUOTE})\s{{0,4}}[,)]"
)
#: Numbers that let somebody in.
_LETS_IN = (
    r"verif|confirm|best\w{1,2}tig|sicherheit|zugang|secur|s\w{1,2}curit|segur|sicurezz|acc[e\u00e8]s|login|log-in|"
    r"sign-in|auth|time|einmal|2fa|mfa|sms|pin|otp|unlock|entsperr|door|gate|alarm|lock|entry|safe|building"
)
_PIN = (
    r"(?<!\w)(?:PIN|pin|OTP|TAN)(?: code)?|(?<=(?i:code)\s)(?i:pin)|(?<!\w)(?i:passcode|otp)|"
    rf"(?i:(?:{_LETS_IN})\w{{0,12}}[ -]?code|c(?:ode|\u00f3digo|odigo|odice) d(?:e|i|'|"
    rf"o)[ ]?(?:la )?(?:{_LETS_IN})\w{{0,12}})"
)
#: A password that is told, in whatever order.
_PASSWORDS = (
    Phrase(
        "password",
        _ANCHORS,
        rf"{_NOUN}(?:{_IT_IS}|{_NO_WORD}[^\n.;!?]{{0,30}}?[ ](?:I|we) (?:typed|used|entered|gave)[ ]{_TOLD}|{_TYPED})",
        "told",
        begins=True,
    ),
    Phrase("password", _ANCHORS, rf"(?:{_BESIDE}){_NOUN}{_NO_WORD}[ ]{_TOLD}", "told", begins=True),
    Phrase(  # what stands alone in the next line
        "password",
        "password",
        rf"(?i:password){_NO_WORD}[^\n{HIDDEN}]{{0,120}}?:[ \t]{{0,4}}\n\s{{0,12}}([^{_ENDS}]{{8,64}}+)[ \t]*(?:\n|\Z)",
        "hard",
        begins=True,
    ),
    Phrase(
        "password",
        "password|passwort|passphrase|passcode",
        rf"(?:^|\s)(?:{QUOTE})?([^{_ENDS}]{{6,64}}+)(?:{QUOTE})? (?:(?i:as|is|was|als|ist) |\()(?i:(?:the|an?|"
        rf"our|my|its|das|sein) )?(?:\w+ ){{0,2}}{_NOUN}",
        "told",
        words="password passwort passphrase passcode",
    ),
    Phrase(
        "password",
        "password|passwort",
        rf"(?i:passwor[dt])[^\n:{HIDDEN}]{{0,60}}:[ \t]{{1,4}}(?=[^\s\"'`])([^\s{HIDDEN}]{{8,64}}+)[ \t]*(?:\n|\Z)",
        "dense",
        begins=True,
        words="password passwort",
    ),
    Phrase(
        "password",
        "phrase:|phrase =|phrase=",
        rf"phrase[ ]{{0,2}}[:=][ ]{{0,2}}({_WORDS})[ \t]*(?:$|\n|\Z)",
        "worded",
        begins=True,
        words="passphrase",
    ),
    Phrase(
        "password",
        "phrase|wifi|wi-fi|wlan",
        rf"(?i:passphrase|wi-?fi|wlan)[^\n\"'`]{{0,50}}?(?:{QUOTE})({_WORDS})(?:{QUOTE})",
        "worded",
        words="passphrase wifi wi wlan",
    ),
    Phrase(
        "password",
        _ANCHORS,
        rf"{_NOUN}{_NO_WORD}{_GAP}{_IS}(?:{QUOTE})((?=(?:[a-z]+[ -]){{3}}){_WORDS})(?:{QUOTE})",
        "worded",
        begins=True,
    ),
    Phrase(
        "password",
        "wifi|wi-fi|wlan",
        rf"(?i:wi-?fi|wlan)[ -]{_NOUN}{_IS}(?:{QUOTE})?([^{_ENDS}]{{8,63}})",
        "worded",
        words="wifi wi wlan",
    ),
)
ABROAD = Phrase(
    "password", "", rf"(?:{_NOUN_BEYOND}|(?i:\u0442\u043e\u043a\u0435\u043d))(?:{_IT_IS}|[ ]{_TOLD})", "told"
)
_OTHERS = (
    Phrase(
        "password",
        "creds|credentials|basic auth|zugangsdaten|identifiants|credenciales|credenciais|credenziali|inloggegevens",
        r"(?i:credentials|creds|basic auth|zugangsdaten|identifiants|credenciales|credenciais|credenziali|"
        r"inloggegevens)"
        r"(?: are| is| sind| sont| son| s\u00e3o| sono| zijn)?[^\n:/;.]{0,30}?[: ]\s{0,2}[\w.@+-]{2,64}\s?[/:]\s?(?!/)"
        rf"{_TOLD}",
        "told",
        words="creds credentials basic zugangsdaten identifiants credenciales credenciais credenziali inloggegevens",
    ),
    Phrase(
        "password",
        " / ",
        r"(?i:(?<![a-z])(?:(?:log-?in|wi-?fi|wlan|user|account)\s{0,2}[:=]|(?:(?:logged |log |sign )?in as|user|"
        r"account|use|with|as|try|is|mit|avec|con|"
        r"com)))\s{1,2}[^\s/]{2,64}\s/\s([^\s/]{6,64})",
        "hard",
        words="logged login wifi wi wlan user account use try mit avec",
    ),
    Phrase(
        "token",
        "token |secret |api key |access key |secret key ",
        r"(?i:(?<![\w-])(?:token|(?:api|access|secret) key|secret)) ([0-9a-f]{32,}+|[A-Za-z0-9_-]{20,}+)(?![\w.(/-])",
        "key",
        begins=True,
        words="token key secret",
    ),
    Phrase(
        "password",
        "u:|user:|u=|user=",
        rf"(?<!\w)(?i:u(?:ser(?:name)?)?)\s?[:=]\s?[^\s,;]{{2,64}}[,;]?\s+(?i:p(?:w|ass)?)\s?[:=]\s?{_TOLD}",
        "told",
        begins=True,
        words="u user",
    ),
    Phrase(
        "api-key",
        _KEYS,
        rf"{_KEY}{_GAP}{_KEY_IS}(?:{QUOTE})?([A-Za-z0-9_/+-]{{20,}}+=?)(?![.(\w])",
        "random",
        reach=120,
        words="api secret",
    ),
    Phrase(
        "secret",
        " secret| token| key| pass",
        rf"{_OWNED}(?!\w){_GAP}(?:{_IS}|[ ]=[ ]|[ ](?={QUOTE})){_TOLD}",
        "chosen",
        begins=True,
        words="secret token key pass",
    ),
    *(
        Phrase(
            kind,
            kind,
            rf"{noun}(?!\w){_GAP}{_IS}(?:{QUOTE})?([A-Za-z0-9_-]{{20,}}+)(?![(\w]|\.\w)",
            "opaque",
            begins=True,
        )
        for kind, noun in (("token", "(?<!page_)(?i:token)"), ("secret", "(?<=[a-z] )(?i:secret)"))
    ),
    Phrase(
        "password",
        "pin |pin:|passcode|code: |code i|code was|code lautet|code est|code d|digo de|codice d|otp|tan |is your",
        rf"(?:{_PIN})(?: (?:of|for|on|f\u00fcr|du|pour|para) [^\n.]{{1,30}})?"
        rf"(?::| (?:is|was|ist|est|es|\u00e8|\u00e9|lautet){_NOW}:?|(?<=OTP)|(?<=TAN)) [\"']?(\d{{4,8}})(?!\d|[.:]\d)|"
        r"(?<![\w.])(?:[A-Z]-)?(\d{4,8}) (?i:is|ist|est|es) (?i:your|ihr|dein|votre|ton|tu|"
        r"su) [^\n.]{0,40}?(?i:code|c\u00f3digo)",
        words="pin passcode code codes digo codice otp tan zugangscode sicherheitscode tigungscode",
    ),
)
#: By a literal that a text has in which some of these are.
PROSE = by_sign(*_PASSWORDS, *_OTHERS)
