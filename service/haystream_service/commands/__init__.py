"""One module per `haystream` command. `cli` puts them together."""
