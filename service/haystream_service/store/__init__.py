"""Where the live state lives: the contract (`base`), in memory (`memory`) and in Redis (`redis`)."""
