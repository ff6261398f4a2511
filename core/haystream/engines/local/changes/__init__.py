"""What changes with the data of edges and with the graph."""
