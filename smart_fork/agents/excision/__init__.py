"""The code to remove turns from transcripts (to cut them) that all agents share: the transcript, the base class of
cutters, snapshots from before cuts, and marks of titles.
"""
