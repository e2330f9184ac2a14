"""What Freshet asks of Spark: sessions, jars, sources, batch reads."""
