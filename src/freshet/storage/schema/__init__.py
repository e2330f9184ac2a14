"""Rules for new schemas and for changes of one."""
