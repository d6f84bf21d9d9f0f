"""The records that the rooms hand each other: places, profiles, recorded texts, plans."""
