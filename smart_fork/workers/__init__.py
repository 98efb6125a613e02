"""Workers (agents that smart-fork started): modules that start, register, observe, message, compare and end them."""
