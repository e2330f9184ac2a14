"""What people do to the rows and the history of a table: overwrite, roll back, delete, update, merge."""
