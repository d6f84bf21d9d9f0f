"""Other runtimes on the same files, for comparison; each needs what its module names."""
