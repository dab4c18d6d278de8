"""Traces: Parquet tables of decoding results that say how they came about."""
