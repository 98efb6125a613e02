"""The command line: thin over the library. It imports nothing itself: what is asked all the time starts fast."""
