"""What is learned from development rows: gates and advice."""
