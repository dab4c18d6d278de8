"""Between ids and text: what new ids add, where words end, and the ids of foreign spans."""
