"""The world outside: files, clock, ids and randomness, behind one door."""
