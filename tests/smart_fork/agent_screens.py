"""Screens of the real programs (Claude Code 2.1.197, Codex 0.169.0), as tmux gives them."""

from __future__ import annotations

RULE = "─" * 120

CLAUDE_TRUST = f"""{RULE}
 Accessing workspace:

 /home/me/other

 Quick safety check: Is this a project you created or one you trust? (Like your own code, a well-known open source project,
 or work from your team). If not, take a moment to review what's in this folder first.

 Claude Code'll be able to read, edit, and execute files here.

 Security guide

 ❯ 1. Yes, I trust this folder
   2. No, exit

 Enter to confirm · Esc to cancel



"""

#: 2.1.332
CLAUDE_TRUST_BY_ARROWS = CLAUDE_TRUST.replace(
    " ❯ 1. Yes, I trust this folder\n   2. No, exit", " ❯ No, exit\n   Yes, I trust this folder"
)
CLAUDE_FRAMED = f"""❯ please do
{RULE}
 Bash command

 Make a file
{"╌" * 60}
 touch /etc/made_by_me
{"╌" * 60}

 Do you want to proceed?
 ❯ 1. Yes
   2. Yes, and switch to auto mode
   3. No

 Esc to cancel · Tab to amend
"""
CLAUDE_AUTO = f"""❯ please do
● Making a file
  ⎿  $ touch /etc/made_by_me
{RULE}
  Auto mode can't check actions in this session

  To get the check back, ask whoever runs your gateway to pass it through

  Enter to stay in auto mode · shift+Tab to leave for accept edits mode and stop · Esc to cancel
"""

CLAUDE_PERMISSION = f"""╭─── Claude Code v2.1.197 ─────────╮
│          Welcome back!           │
╰──────────────────────────────────╯

❯ please do 1. this and 2. that

● Bash(touch /etc/made_by_me; echo hi)
  ⎿  Waiting…

{RULE}
 Bash command

   touch /etc/made_by_me; echo hi
   Make a file

 Do you want to proceed?
 ❯ 1. Yes
   2. Yes, and always allow access to etc/ from this project
   3. No

 Esc to cancel · Tab to amend · ctrl+e to explain
"""

CLAUDE_KEY = f"""{RULE}
  Detected a custom API key in your environment

  ANTHROPIC_API_KEY: sk-ant-...-loopback-0000000000

  Do you want to use this API key?

    1. Yes
  ❯ 2. No (recommended)

  Enter to confirm · Esc to cancel
"""

#: From the texts in the program: it asks so of a session that is long and old.
CLAUDE_RESUME = f"""{RULE}
 This session is 3h 2m old and 251k tokens.

 Resuming the full session will consume a substantial portion of your usage limits. We recommend resuming from a summary.

 ❯ 1. Resume from summary (recommended)
   2. Resume full session as-is
   3. Don't ask me again

 Enter to confirm · Esc to cancel
"""

CLAUDE_IDLE = f"""❯ choose
  ❯ 1. Yes
    2. No
  Enter to confirm · Esc to cancel

● Noted: choose

✻ Crunched for 0s

{RULE}
❯\u00a0
{RULE}
  ? for shortcuts · ← for agents                                                                          ● high · /effort
"""

CLAUDE_WORKING = f"""❯ say HOLD

· Befuddling…

{RULE}
❯\u00a0
{RULE}
  esc to interrupt · ← for agents                                                                         ● high · /effort
"""

CLAUDE_LOGGED_OUT = f"""❯ hello
  ⎿  Not logged in · Please run /login

✻ Brewed for 0s

{RULE}
❯\u00a0
{RULE}
  ? for shortcuts · ← for agents                                                         Not logged in · Run /login
                                                                                                          ● high · /effort
"""

CODEX_TRUST = """  Folder access
  /home/me/other

  Trust this folder? Codex can read, edit, and run files here, subject to your permission settings. Folder settings can run
  code automatically, even without a model request. Continue only if you trust these files. Your trust decision will be saved.

› 1. Trust and continue
  2. Back to Agent Command Center

  enter continue · esc back
"""

CODEX_PERMISSION = """  >_ OpenAI Codex (v0.169.0)
     ~/shop

› now PERM please

• Running touch /etc/made_by_me


  Would you like to run the following command?

  Environment: local

  Reason: May I touch a file in /etc?

  $ touch /etc/made_by_me

› 1. Yes, proceed (y)
  2. Yes, and don't ask again for commands that start with `touch /etc/made_by_me` (p)
  3. No, and tell Codex what to do differently (esc)

  Press enter to confirm or esc to cancel
"""

CODEX_IDLE = """› 1. do this
  2. and that, press enter to confirm

• Noted: do this

  Worked for <1s • 13:46

› Ask Codex to do anything

  gpt-5 default · ~/shop
  ← for agents · ? for shortcuts                                                                      ⚠ 2 warnings · f2 to view
"""
