"""The beginning of `smart-fork mcp`: what every client asks first is answered from a file.

The whole server goes on from there, in this process or in one that waits.
"""
