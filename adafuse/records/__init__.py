"""What decoding returns, and how it is shown in a notebook."""
