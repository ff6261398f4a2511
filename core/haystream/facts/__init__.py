"""What several facts say of one thing: of an item, or of a lease."""
