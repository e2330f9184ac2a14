"""Changelog producers: what each writes into changelog files, as functions of what a merge reports."""
