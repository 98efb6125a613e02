"""Texts in logs: text that agents and smart-fork inject, a session's title and other names, and a person's answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice, takewhile
from typing import ClassVar

from indexer.json_values import dicts_in, text_in
from indexer.lazy_compilation import late
from indexer.masking import NOTHING, Masked, beginning, joined, mask, mask_cut, shorten
from indexer.transcripts.line_hashes import line_shape
from indexer.transcripts.model import Turn

TITLE_CHARACTERS = 100
#: Maximum number of other names by which a session is found; the last ones are kept.
MAX_OTHER_NAMES = 20
#: Maximum length of a name.
_MAX_NAME_CHARACTERS = 1000
#: Maximum number of prompts in which a topic is looked for, and number of characters of each.
_MAX_PROMPTS, _PROMPT_CHARACTERS = 20, 4000

_COMMAND = late(r"/[\w:.-]+(?=\s|$)")
_PLACEHOLDERS = late(r"\[(?:Image|Pasted text|Request interrupted)[^\]\n]*\]")
#: A path by itself, also one that is quoted, named with ``@``, or has escaped spaces.
_PATH = late(r"""(?P<quote>["'`]?)@?(?:file://|~?/|\.{1,2}/|[A-Za-z]:[\\/]|@)(?:\\.|[^\s"'`])*(?(quote)(?P=quote))""")
_QUOTED_PATH = late(r"""\s*(["'`])(?:file://|~?/|\.{1,2}/|[A-Za-z]:[\\/])[^"'`\n]*\1\s*""")
_FILE = late(r"(?:[\w.-]+/)*[\w-]+\.\w{1,5}|(?:[\w.-]+/)+[\w.-]*")
#: The few words before a plan or document with headings; below, a heading without the word "plan".
_HEADED = late(r"(?:[^\w#\n]*+\w++){0,5}[^\w#\n]*:[ \t]*\n[\s`~*=_-]*(?:markdown|md)?\s*#")
_HEADING = late(r"^[ \t]*#{1,6}[ \t]+(?:(?:\w+ )?plan:[ \t]+)?([^\n]+)", re.MULTILINE | re.IGNORECASE)
#: Number of lines at each end of a long prompt that are looked at; minimum of words in a sentence; minimum share of
#: letters in it. Below, beginnings of lines of outputs.
_MAX_END_LINES, _SENTENCE_WORDS, _WORDS_SHARE = 60, 3, 0.8
_OUTPUT = late(
    r"\W*(?:\w*error|warning|info|debug|trace(?:back)?|\w*exception|fatal|panic|at|note|hint)\b", re.IGNORECASE
)
#: The mark at the beginning of a heading, a quotation or a list item.
_MARKUP = late(r"(?m)^[ \t]*(?:#{1,6}|>+|[-*+])(?:[ \t]+|$)|^[ \t]*(?:`{3,}|~{3,})[^\n]*$|^[ \t]*[-=*_]{3,}[ \t]*$")
#: Number of characters of a script without spaces that count as two words.
_DENSE_NAME = 4
_WORD = late(r"[^\W_]+(?:'[^\W\d_]+)?")
#: Scripts without spaces between words. In them, one character is most of a word.
_DENSE = late(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af\u0e00-\u0e7f]")
#: Words that greet, agree, thank, or ask to continue. A prompt of only these has no topic.
_EMPTY_WORDS = """
    a again ah ahead all alright an and are as at back be both can continue continuing could cool did do done
    exactly fine for from how get go going good great hello hey hi hiya hmm hm i if in is it job just k keep kindly
    last left let let's lets lgtm like likewise me my nah need next nice no nope now of off ok okay on once our oh
    ping please pls previous proceed ready really redo resume right same session sgtm should so start stop sure test
    testing thank thanks that that's the then there this thx to today try up us wait what why who when huh want was
    we well were what's where will with would y yeah yep yes yo you your conversation chat exit quit clear help
    morning evening afternoon hallo ja nein bitte danke weiter weitermachen mach guten tag bonjour salut oui non
    merci continuer continuez hola sí si gracias continúa continua sigue por favor ciao grazie olá oi sim obrigado
    привет да нет спасибо продолжай
    你好 您好 继续 繼續 請繼續 请继续 好 好的 是 是的 对 谢谢 謝謝 嗨
    はい 続けて 続けてください こんにちは ありがとう ありがとうございます 안녕 안녕하세요 계속 네
"""
_EMPTY = frozenset(_EMPTY_WORDS.split())
#: What refers to something without naming it: addresses, and words as in "review the changes of this branch".
_POINTING = late(r"(?i:https?://\S+|\b(?:branch|changes|comments?|conflicts|fix|merge|open|pull|review)\b)")
#: What an agent writes if it could not reach its model.
_FAILURE = r"\[?(?:API Error|Invalid API key|Request timed out|Credit balance|Prompt is too long)\b"
FAILED = late(_FAILURE, re.IGNORECASE)
#: Titles that agents make in that case, and other empty titles.
_NO_NAME = late(rf"{_FAILURE}|Error:|Untitled|New (?:chat|conversation|session)\b", re.IGNORECASE)


def title_of(named: str, prompts: Iterable[str] = (), *, by_agent: str = "") -> Masked:
    """Return a session's title: a person's name for it, else the agent's, else the first of `prompts` with a topic."""
    if named.strip():
        return _title(named)
    if _is_a_name(by_agent):
        return _title(by_agent)
    asked = [prompt for prompt in islice(prompts, _MAX_PROMPTS) if prompt.strip()]
    first = next(filter(says_something, asked), asked[0] if asked else "")
    return _title(_without_markup(beginning(masked_name(_asked(first)), _PROMPT_CHARACTERS))) if first else NOTHING


def _asked(prompt: str) -> str:
    """Return the question in a long prompt, without pasted text before or behind it; all of the prompt if unclear."""
    if len(prompt) <= _PROMPT_CHARACTERS:
        return prompt
    lines = [line for line in prompt[:_PROMPT_CHARACTERS].splitlines()[:_MAX_END_LINES] if line.strip()]
    ending = [line for line in prompt[-_PROMPT_CHARACTERS:].splitlines()[-_MAX_END_LINES:] if line.strip()]
    again = Counter(map(line_shape, (*lines, *ending)))
    before = list(takewhile(lambda line: _is_sentence(line, again), lines))
    if before and len(before) < len(lines) and again[line_shape(lines[len(before)])] > 1:
        return "\n".join(before)
    if before or not ending:
        return prompt
    asked = list(takewhile(lambda line: _is_sentence(line, again), reversed(ending)))
    return "\n".join(reversed(asked)) or prompt


def _is_sentence(line: str, lines: Mapping[str, int]) -> bool:
    """Return True if a line looks written by a person. `lines` counts the lines of each shape (see `line_shape`)."""
    line = line.strip()
    words = sum(one.isalpha() or one.isspace() for one in line)
    said = len(line.split()) >= _SENTENCE_WORDS or (not line.isascii() and _DENSE.search(line) is not None)
    alone = lines[line_shape(line)] == 1 and not _OUTPUT.match(line)
    return said and alone and words >= _WORDS_SHARE * len(line) and says_something(line)


def also_called(title: Masked, names: Iterable[str]) -> Masked:
    """Return those of `names` that are not a session's `title`, one a line. They are searched, but not shown."""
    others = dict.fromkeys(_title(name) for name in names if _is_a_name(name))
    others.pop(title, None)
    return joined("\n", [*others][-MAX_OTHER_NAMES:])


def says_something(prompt: str) -> bool:
    """Return True if a prompt has a topic: it is more than a greeting, a number, a key, a command or a path."""
    text = _PLACEHOLDERS.sub(" ", prompt[:_PROMPT_CHARACTERS]).strip()
    text = _COMMAND.sub("", text, count=1) if _COMMAND.match(text) else text
    text = "" if _QUOTED_PATH.fullmatch(text) or _FILE.fullmatch(text) else _PATH.sub(" ", text)
    return any(_is_key_word(word.lower()) for word in _WORD.findall(text))


def headline_of(title: Masked, turns: Sequence[Turn]) -> Masked:
    """Return what a session did in `turns` (the last commit's subject, or a prompt) if its title is vague, else ""."""
    commits = (one.commit for turn in reversed(turns) for one in reversed(turn.tool_results) if one.commit)
    prompts = (title_of("", (turn.text,)) for turn in turns if turn.prompt)
    said = naming_work(title, chain(commits, islice(filter(None, prompts), _MAX_PROMPTS)))
    return NOTHING if said == title else Masked(said)


def naming_work(title: str, others: Iterable[str]) -> str:
    """Return `title` if it names work (see `names_work`), else the first of `others` that does, or that has a topic."""
    if names_work(title):
        return title
    said = list(others)
    return next(filter(names_work, said), "") or next(filter(says_something, said), title)


def names_work(title: str) -> bool:
    """Return True if a title names work: at least two key words, no question and no command of an agent."""
    if title.endswith(("?", "\uff1f")) or _COMMAND.match(title) or not says_something(title):
        return False
    words = [word for word in _WORD.findall(_POINTING.sub(" ", title)) if _is_key_word(word.lower())]
    return len(words) > 1 or any(len(word) >= _DENSE_NAME and _DENSE.search(word) for word in words)


def last_names(names: Iterable[str], name: str) -> list[str]:
    """Return the newest names of a session: `names`, then `name`. A `name` that is too long is not added."""
    fits = [name] if len(name) <= _MAX_NAME_CHARACTERS else []
    return [*(one for one in names if one != name), *fits][-MAX_OTHER_NAMES:]


def _is_a_name(text: str) -> bool:
    return any(map(str.isalpha, text)) and not _NO_NAME.match(text.strip())


def _is_key_word(word: str) -> bool:
    if word in _EMPTY:
        return False
    letters = sum(character.isalpha() for character in word)
    return letters >= (2 if not word.isascii() and _DENSE.search(word) else 3)


def _without_markup(prompt: str) -> str:
    """Return a prompt without marks of headings, lists and pasted text; unchanged if nothing is left."""
    text = _PLACEHOLDERS.sub("", prompt).strip()
    if _HEADED.match(text):
        text = next(filter(names_work, _HEADING.findall(text)), text)
    return _MARKUP.sub("", text).strip() or prompt


def _title(text: str) -> Masked:
    return shorten(masked_name(text), TITLE_CHARACTERS)


def masked_name(text: str) -> Masked:
    """Mask the name of a session, including a secret at its end that the agent has truncated."""
    return mask_cut(text) if text.endswith(("…", "...")) else mask(text)


#: The tag of smart-fork's hints to an agent. An agent that repeats a hint has not said it.
RECALL_TAG = "smart-fork-recall"
#: The tag of the note in a copy on what was left out.
LEFT_OUT_TAG = "smart-fork-left-out"
#: The tag of the note before a fork's first prompt on what has changed.
NEWS_TAG = "smart-fork-news"
#: The tag of the text before a handed-over session.
HANDOVER_TAG = "smart-fork-handover"
_REMINDER = "system-reminder"
#: Tags whose whole element is injected text. Seen in Claude Code 1.0-2.1 and Codex 0.34-0.169.
_INJECTED = (
    _REMINDER, "local-command-stdout", "local-command-stderr", "local-command-caveat", "command-name",
    "command-message", "bash-input", "bash-stdout", "bash-stderr", "task-notification", "teammate-message",
    "ide_opened_file", "ide_selection", "ide_diagnostics", "user-prompt-submit-hook", "environment_context",
    "user_instructions", "permissions instructions", "INSTRUCTIONS", "turn_aborted", "skill", "skills_instructions",
    "app-context", "subagent_notification", "collaboration_mode", "user_action", "recommended_plugins",
    "personality_spec", "model_switch", "multi_agent_mode", "apps_instructions", "plugins_instructions",
    "hook_prompt", "hook_context", RECALL_TAG, LEFT_OUT_TAG, NEWS_TAG, HANDOVER_TAG,
)  # fmt: skip
_OPENING = {tag: late(rf"<{tag}(?:\s[^<>]*)?>") for tag in _INJECTED}
#: An opening tag of injected text that is never closed. It counts only at the beginning of a message, because elsewhere
#: a person writes about it.
_UNCLOSED = re.compile(rf"<(?:{'|'.join(_INJECTED)})(?:\s[^<>]*)?>")
#: A command of smart-fork that a person has given. Its name is kept, to recognize it as a question to smart-fork.
_OUR_COMMAND = re.compile(
    r"<command-name>\s*(/(?:mcp__)?[\w-]{0,40}smart[-_]fork[\w-]{0,40}(?:__|:)[\w-]{1,40})[^<]{0,40}</command-name>\s*"
)
_ARGUMENTS = re.compile(r"</?command-args>")
_AGENTS_MD = re.compile(r"^# AGENTS\.md instructions for [^\n]*\n", re.MULTILINE)
_WORKER_MARK = re.compile(r"<![\w-]{0,40}(?:session|worker)[\w-]{0,40}:[^<>]*!>|\[worker-done:[^\]]*\]", re.ASCII)
_IDE_CONTEXT = re.compile(
    r"\A# Context from my IDE setup:.*?^## My request for [^\n:]{1,40}:", re.DOTALL | re.MULTILINE
)
#: The beginning of a hook's message, as agents pass it on.
_HOOK = re.compile(
    r"(?:[A-Z][a-zA-Z]{3,40}(?::\S+)? )?(?:operation blocked by hook|"
    r"hook (?:feedback|success|additional context|blocking error|stopped continuation))\b[^\n:]*:",
    re.ASCII,
)
#: The line that Claude Code 2.1.5 to 2.1.49 writes below the element for the end of a background task.
_TASK_ENDED = re.compile(
    r"(</task-notification>)\s*(?:Read the output file to retrieve the result|Full transcript available at): [^\n]*"
)
#: The tags around a long paste, as Claude Code 2.1.332 logs it and sends it to the model. The paste itself is a
#: person's text.
_PASTED = re.compile(r'(?:\n\n)?<pasted_content id="\w{1,40}">\n|\n</pasted_content id="\w{1,40}">(?:\n\n)?')
_BLANK_LINES = re.compile(r"\n{3,}")
#: Maximum number of passes. Removing an element can join the halves of another one.
_PASSES = 8

#: Beginnings of messages that no person wrote.
_NOT_A_PERSON = (
    "Caveat: The messages below were generated by the user while running local commands",
    "[Request interrupted",  # as Claude Code notes that a person has stopped it
    "Operation stopped by hook:",
    "This session is being continued from a previous conversation",
    "Summarize the task tool output above and continue with your task.",
)


def strip_boilerplate(text: str) -> str:
    """Return a person's own words in `text`, without text that agents inject. Nothing in it is executed or resolved."""
    for _ in range(_PASSES):
        shorter = _strip_once(text)
        if shorter == text:
            break
        text = shorter
    injected = text.startswith(_NOT_A_PERSON) or _UNCLOSED.match(text) or _HOOK.match(text)
    return "" if injected else text


def strip_recall(text: str) -> str:
    """Return an agent's own words in `text`, without the hints (notes on other sessions) of smart-fork in them."""
    return _without_elements(text, RECALL_TAG).strip()


def strip_reminders(text: str) -> str:
    """Return a tool's output without the reminders that the agent's program adds to it."""
    return _without_elements(text, _REMINDER).strip()


def _strip_once(text: str) -> str:
    if text.startswith("# Context from my IDE setup:"):
        text = _IDE_CONTEXT.sub("", text)
    if "</" in text:
        text = _OUR_COMMAND.sub(r"\1 ", text)
        if "</task-notification>" in text:
            text = _TASK_ENDED.sub(r"\1", text)
        for tag in _INJECTED:
            text = _without_elements(text, tag)
        text = _ARGUMENTS.sub("", text)
        if "</pasted_content id=" in text:
            text = _PASTED.sub("", text)
    if "<!" in text or "[worker-done:" in text:
        text = _WORKER_MARK.sub("", text)
    if "# AGENTS.md instructions for" in text:
        text = _AGENTS_MD.sub("", text)
    return _BLANK_LINES.sub("\n\n", text).strip()


def _without_elements(text: str, tag: str) -> str:
    """Return `text` without the elements ``<tag>``…``</tag>``, removed in one pass."""
    closing = f"</{tag}>"
    if closing not in text:
        return text
    *closed, rest = text.split(closing)
    kept = []
    for part in closed:
        opening = _OPENING[tag].search(part)
        kept.append(part[: opening.start()] if opening else part + closing)
    return "".join(kept) + rest


_MAX_QUESTIONS, _QUESTION_CHARACTERS = 20, 1000
#: Results in which a program reports that no person answered.
_NO_ANSWER = late(
    r"(?i)\s*(?:[\[<{](?!answer>)|error|failed|cannot|(?:the )?user (?:has )?(?:did|not|dismissed|declined|skipped|"
    r"cancel|submitted|wants to (?:chat|talk|discuss|clarify))|no (?:answer|response)"
    r"|(?:question|request) (?:was )?(?:timed|cancel))"
)
#: What precedes an answer to a single question.
_SAID = late(r"\s*(?:<answer>\s*|(?:The )?[Uu]ser (?:has )?(?:responded|selected|answered|chose|replied): ?)")

#: The questions of one call, stored until the answer comes: id, heading and text of each.
Questions = list[list[str]]
#: Pairs of a question and a person's answer. In a refusal, the question is empty.
Said = Iterable[tuple[str, str]]


class PersonAnswers:
    """The rules that find a person's words in one agent's tool results. By default, a result answers one question."""

    #: Names of tools that ask a person; below, of those that propose a plan.
    asking: ClassVar[re.Pattern[str]] = late(r"(?i)ask_?user\w*|ask_?question|question")
    planning: ClassVar[re.Pattern[str]] = late(r"(?i)exit_?plan_?mode")
    #: What precedes a person's words in a refusal; below, what the program adds behind them.
    refused: ClassVar[re.Pattern[str]] = late(
        r"(?:The user rejected|Plan rejected|Permission denied|Denied by)[^\n]{0,300}?"
        r"(?:[Uu]ser feedback|the following feedback): "
    )
    behind: ClassVar[re.Pattern[str] | None] = None
    #: Answers that mean that there is none.
    none: ClassVar[tuple[str, ...]] = ("",)

    def asked_by(self, tool: str, given: object) -> Questions | None:
        """Return the masked questions that a call asks a person; empty for a plan, `None` for any other call."""
        if self.planning.fullmatch(tool):
            return []
        if not self.asking.fullmatch(tool) or not isinstance(given, Mapping):
            return None
        listed = dicts_in(given.get("questions")) or [dict(given)]
        return [
            [mask(text_in(one.get("id"))), mask(text_in(one.get("header"))), mask(_question(one))]
            for one in listed[:_MAX_QUESTIONS]
        ]

    def words_in(self, output: str, questions: Questions | None, *, failed: bool) -> Masked:
        """Return a person's words in the result of a call, each answer after its question.

        If `questions` (from `asked_by`) are `None`, a person can only have refused the call.
        """
        if not failed and questions is None:
            return NOTHING
        said: Said
        if refused := self.refused.match(output):
            words = output[refused.end() :]
            behind = self.behind.search(words) if self.behind else None
            said = self.refusal(words[: behind.start()] if behind else words)
        elif failed or not questions:
            return NOTHING
        else:
            said = self.answered(output, questions)
        lines = [f"{question} {words}".strip() for question, words in said if words.strip() not in self.none]
        return mask(strip_boilerplate("\n".join(lines))) if lines else NOTHING

    def refusal(self, words: str) -> Said:
        """Return a person's reason to refuse a call, as pairs of a question (empty by default) and an answer."""
        return [("", words)]

    def answered(self, output: str, questions: Questions) -> Said:
        """Return the answers in a result as pairs of a question and an answer."""
        if _NO_ANSWER.match(output):
            return []
        words = output[begun.end() :] if (begun := _SAID.match(output)) else output
        return [(questions[0][2] if len(questions) == 1 else "", words.strip().removesuffix("</answer>").strip())]


def _question(one: Mapping[str, object]) -> str:
    return text_in(one.get("question") or one.get("message") or one.get("prompt")).strip()[:_QUESTION_CHARACTERS]
