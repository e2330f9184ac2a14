"""The declarations of all table options, by what they are about."""
