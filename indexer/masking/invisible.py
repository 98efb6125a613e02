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
BRACKETS = "<>＜＞﹤﹥‹›〈〉〈〉⟨⟩❬❭❮❯❰❱《》⟪⟫«»≪≫˂˃ᐸᐳ⋖⋗⧼⧽︿﹀︽︾≺≻"  # noqa: RUF001
QUOTES = '"“”„‟‘’‚‛＂＇′″‴‵‶‷ʺʼ˝ˮ´❛❜❝❞❟❠⹂「」『』〝〞〟｢｣׳״'  # noqa: RUF001
