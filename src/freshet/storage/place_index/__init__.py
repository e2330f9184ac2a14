"""Where each key of a table is whose rows move between partitions: full primary key → partition and bucket."""
