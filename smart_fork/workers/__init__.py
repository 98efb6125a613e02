"""Workers (agents that smart-fork started): start places, registry, observation, messages, comparison, termination."""
