"""Consumer groups: positions, lag, consumers and their membership."""
