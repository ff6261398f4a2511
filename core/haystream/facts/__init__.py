"""The events, what can be wrong with one, and what several of them say of one thing."""
