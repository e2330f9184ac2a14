"""Bytes to values of the model and back; no file is opened here."""
