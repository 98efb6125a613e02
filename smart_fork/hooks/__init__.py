"""Hooks: programs that an agent runs at its events. They may give the model a hint: a line about a past session.

This file imports nothing, because every hook of every session begins here and must cost next to nothing.
"""

#: Folders in the state folder: `RECALL` has a file for each agent with hints switched on. Below it, `ASKED` has a file
#: for each session that was asked about.
RECALL, ASKED = "recall", "asked"
#: Below `RECALL`: a file for each session with edits that were asked about. It has a line for each hint that was given.
EDITS = "edits"
#: Below `RECALL`: a file for each session with failed commands that were asked about. It has a line for each hint.
ERRORS = "errors"
#: The content of such a file if the answer came too late. It is shorter than a session's id.
LATE = b"-"
#: The content of an agent's file if its model does not get a hook's output at a prompt.
NO_PROMPTS = b"-"
