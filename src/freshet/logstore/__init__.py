"""The Kafka log of a table: changes before their commit. Nothing is here yet; see README.md for what will be."""
