"""Appending the changes of a commit before it, or publishing them after it; as Arrow, or as JSON."""
