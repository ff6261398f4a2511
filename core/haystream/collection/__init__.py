"""The items of a collection, and the graph that they span."""
