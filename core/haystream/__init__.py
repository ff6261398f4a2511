"""haystream's pure core: numbers and the fold.

Nothing in this package does I/O, reads a clock, logs or draws unseeded randomness.
"""
