"""Pages of the documentation that are made from the code; `python -m adafuse.docs` writes them."""
