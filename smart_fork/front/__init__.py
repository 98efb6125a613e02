"""What `smart-fork mcp` is until it is asked to do something, and then between the agent and those who do it.

Its beginning, `greeting`, answers from a file what every client asks first. The rest is imported with the first
question that takes more than that, and imports nothing that is needed to answer it.
"""
