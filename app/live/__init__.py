"""The live path: matches published events with the rules and delivers them."""
