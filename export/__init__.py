"""From a checkpoint to a bundle: readers, quantisation, emitters, parity."""
