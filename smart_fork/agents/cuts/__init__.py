"""The parts of cuts (turns removed from transcripts) for all agents: transcripts, the `Cutter` base, snapshots and
titles.
"""
