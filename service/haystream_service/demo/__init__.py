"""The demo: a stage (servers and a worker), an analyst who plays, a screen to watch."""
