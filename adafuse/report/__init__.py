"""The report of a results folder: pages that open anywhere, without a network."""
