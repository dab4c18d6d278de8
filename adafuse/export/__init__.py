"""Results as a data set for others."""
