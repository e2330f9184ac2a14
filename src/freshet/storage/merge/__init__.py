"""Orders rows by key and sequence, and merges the rows of each key; no file is opened here."""
