"""Local solves: of what right-hand sides, how exact, and who waits to be solved afresh."""
