"""Records that the other packages exchange: places, profiles, recorded texts, plans."""
