"""Arrays in memory, and how compiled loops get at them."""
