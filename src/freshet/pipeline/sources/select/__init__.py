"""`select`: the columns that are more than a name, computed by Spark over the flat columns that a decoder appends."""
