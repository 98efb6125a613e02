"""The code for cuts (removals of turns from transcripts) that all agents share: the transcript, the base class of
cutters, snapshots from before cuts, and marks of titles.
"""
