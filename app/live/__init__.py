"""The live path: what happened is matched with the rules, logged as owed, and delivered at once."""
