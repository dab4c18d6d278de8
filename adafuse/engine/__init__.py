"""Engines, which run models on the token trees of examples, and the scheduler that batches these.

A further engine fills in nodes (`Engine` in node.py; `CachedEngine` in tree.py if it keeps what the
network has read), and `way_of` in choice.py takes it for networks with which it is exact.
"""
