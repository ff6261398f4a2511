"""Entries of an inverse on the graph, as the matrix changes; and the precision, Q and its inverse."""
