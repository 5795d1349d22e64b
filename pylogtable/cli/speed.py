"""How fast something goes at the moment."""

from __future__ import annotations

from collections import deque

#: The speed that is shown is that of so many seconds.
SPEED_SECONDS = 10.0


class Speed:
    """An amount per second, over the last `SPEED_SECONDS`: what follows may run for days."""

    def __init__(self) -> None:
        self._points = deque([(0.0, 0)])

    def at(self, seconds: float, amount: int) -> float:
        """The speed now, when so much was done in so many seconds."""
        while len(self._points) > 1 and self._points[1][0] <= seconds - SPEED_SECONDS:
            self._points.popleft()
        before, had = self._points[0]
        self._points.append((seconds, amount))
        return (amount - had) / max(seconds - before, 0.001)
