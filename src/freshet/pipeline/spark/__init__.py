"""Spark itself: sessions, jars, the Java process, settings, columns and types that cross into Python."""
