"""Workers (agents that smart-fork started): where they run, registry, observation, messages, comparison, ending."""
