"""Hooks of agents: programs that an agent runs at its events. This package handles the events and switches hints on.

This file imports nothing, because every hook of every session begins here and must cost next to nothing.
"""

#: In the state folder: a file for each agent whose first prompts are asked about, and below ``asked`` one a session.
RECALL, ASKED = "recall", "asked"
#: Below it, a file for each session whose edits were asked about: a line for each exchange that was told.
EDITS = "edits"
#: The same for failed commands: a line for each end of an error that was told.
ERRORS = "errors"
#: What stands in that file where the answer came too late: less than the id of a session.
LATE = b"-"
#: What stands in an agent's file where its model does not get what a hook says at a prompt.
NO_PROMPTS = b"-"
