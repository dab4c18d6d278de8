"""The trace explorer: pages without a server that show how every text came about."""
