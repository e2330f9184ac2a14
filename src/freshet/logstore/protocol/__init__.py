"""What is in a log, and what is asked of one: records, control records, topics, the client."""
