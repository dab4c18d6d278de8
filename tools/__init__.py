"""What makes the toy world and the pages of the documentation; not installed."""
