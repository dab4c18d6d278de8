"""The workflow's configuration: its sections, and what is checked before anything runs."""
