"""Other runtimes on the same files, for comparison; each needs the programs its module names."""
