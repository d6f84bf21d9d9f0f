"""Models grown from the shipped ones: the same function at the cost of a larger model."""
