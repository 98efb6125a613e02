"""The web page of smart-fork's service: search, read and compare sessions, start forks, and watch workers."""
