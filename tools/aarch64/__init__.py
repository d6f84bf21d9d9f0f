"""edgedec on emulated ARM processors: texts, rows, and the instructions of passes."""
