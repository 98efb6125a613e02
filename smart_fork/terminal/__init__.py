"""What shells and an agent's start ask every few seconds: answered from the databases as they are, importing little."""
