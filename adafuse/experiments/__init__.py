"""The tables and figures of the paper: from the workflow's results to numbers and pictures."""
