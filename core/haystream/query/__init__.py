"""A query: facts in, posterior and ranking out; what it begins as, and when it has to look at new items."""
