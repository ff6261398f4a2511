"""The posterior as a store holds it, and which rows of it a store has to be told of."""
