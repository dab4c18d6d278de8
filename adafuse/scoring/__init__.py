"""Scores with their intervals. Strict rules are what a reader should believe."""
