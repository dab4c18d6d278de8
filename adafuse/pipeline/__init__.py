"""The steps of the workflow: all logic of the rules, importable without Snakemake."""
