"""Paired comparisons of runs on the same rows, and the paper's numbers to set beside ours."""
