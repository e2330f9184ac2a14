"""Long random tests, with the counts that issues name: `make soak`; CI runs a tenth of each (`counts.py`)."""
