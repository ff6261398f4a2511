"""How Kafka is reached, written to and read from, by the worker, the API and the commands."""
