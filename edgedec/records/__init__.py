"""Records shared by the rooms: places, profiles, recorded texts, plans."""
