"""Files on disk: text, YAML, Parquet, journals, and what a trace says of how it came about."""
