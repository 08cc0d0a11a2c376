"""What speaks to a cluster over the wire, whoever built it."""
