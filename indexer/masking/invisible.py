"""Characters that nobody sees, and those that pass for brackets and quotation marks."""

from __future__ import annotations

import re

#: Controls but line ends and tabs, formats, and all that Unicode has renderers leave out where they do not know it.
NEVER_SEEN = (
    "\0-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
INVISIBLE = re.compile(f"[{NEVER_SEEN}]")

#: What a model may read as the brackets of a tag, in pairs, and as a quotation mark.
BRACKETS = (
    "<>\uff1c\uff1e\ufe64\ufe65\u2039\u203a\u3008\u3009\u2329\u232a\u27e8\u27e9\u276c\u276d\u276e\u276f\u2770\u2771"
    "\u300a\u300b\u27ea\u27eb\u00ab\u00bb\u226a\u226b\u02c2\u02c3\u1438\u1433\u22d6\u22d7\u29fc\u29fd\ufe3f\ufe40"
    "\ufe3d\ufe3e\u227a\u227b"
)
QUOTES = (
    '"\u201c\u201d\u201e\u201f\u2018\u2019\u201a\u201b\uff02\uff07\u2032\u2033\u2034\u2035\u2036\u2037\u02ba\u02bc'
    "\u02dd\u02ee\u00b4\u275b\u275c\u275d\u275e\u275f\u2760\u2e42\u300c\u300d\u300e\u300f\u301d\u301e\u301f\uff62"
    "\uff63\u05f3\u05f4"
)
