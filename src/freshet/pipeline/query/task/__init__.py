"""What runs in the workers of a query: tasks that take rows and write the files of tables."""
