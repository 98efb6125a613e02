"""What of a session goes into a fork and what does not: values, as everybody is shown them."""

from __future__ import annotations

from typing import Literal

from indexer.masking import Masked
from indexer.values import Value, rare, record

#: How much of an exchange is kept: all; all, with long results shortened; what was asked, done and answered, without
#: what was only looked at; what was asked and answered; nothing.
Kept = Literal["whole", "shortened", "part", "words", "nothing"]


@record
class SelectedExchange(Value):
    """One exchange: `number`, from 1, as ``--keep`` takes it, `message` as ``show`` numbers its first message.

    `tokens` is what all of it takes, `kept_tokens` what is kept of it. `why` says what it is kept for.
    """

    number: int
    message: int
    title: Masked
    tokens: int
    kept: Kept
    kept_tokens: int
    why: str = rare("")


@record
class Selection(Value):
    """What a fork within a budget has. `tokens` is what it loads beside its agent's own instructions and tools,
    `whole_tokens` what all of the session would.

    `new_from` is the first message that is dropped or shortened: before it a fork by the session's own agent sends what
    the session has sent, which may come from the cache. `smallest` says that nothing smaller can be kept, though it is
    above the budget; `whole` that all of it is forked.
    """

    session_id: str
    budget: str
    tokens: int
    whole_tokens: int
    kept: int
    left_out: int
    smallest: bool = rare(default=False)
    whole: bool = rare(default=False)
    new_from: int | None = rare()
    notes: tuple[str, ...] = rare(())
    exchanges: tuple[SelectedExchange, ...]
