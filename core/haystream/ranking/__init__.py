"""From the posterior of edges to what to read next: policies, scores of item sets, and the queue of them."""
