"""Setting up: what is put into the agents' homes and this machine, in one plan, and taken out again.

`skill/SKILL.md` is the one text that teaches an agent when to ask.
"""
