"""Benchmarks: what haystream's parts cost, and what others cost at the same work. `haystream bench` runs them."""
