"""One text: the options that ask for it, the events while it is written, and the result."""
