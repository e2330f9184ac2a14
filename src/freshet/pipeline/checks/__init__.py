"""What is asked of files, tables, brokers and topics before a pipeline starts."""
