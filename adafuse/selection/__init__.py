"""Runs that decode nothing: they choose between what other runs wrote, by scores."""
