"""The recipe that trained the demo pair, run by ``make train-demo``; it needs torch."""
