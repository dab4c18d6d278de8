"""The sections of the workflow's configuration, typed and explained; `Config` holds them all."""
