"""The HTML report of a store: measure, advise, draw."""
