"""What is kept: the arrays that kernels work on, how they follow the graph, and the moments at edges' ends."""
