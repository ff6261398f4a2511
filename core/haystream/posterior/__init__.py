"""The posterior as a store holds it, what is read from that, and which rows of it a store has to be told of."""
