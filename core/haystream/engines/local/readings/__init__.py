"""What is read off the state, and what readers are told of it."""
