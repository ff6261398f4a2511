"""What several facts say of one thing: of an item, of what was said of it, or of a lease."""
