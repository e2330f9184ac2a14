"""Frozen values of the table format; no file is opened here."""
