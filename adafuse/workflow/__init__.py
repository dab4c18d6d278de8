"""What the rules of the workflow do: plan, decode, merge, choose, and tell how far it is."""
