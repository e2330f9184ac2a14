"""A report of pipelines and tables: one HTML file that needs nothing else. `uPlot.*` is a library of others (MIT)."""
