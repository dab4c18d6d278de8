"""Scorers, intervals and paired tests: from texts to numbers that can be believed."""
