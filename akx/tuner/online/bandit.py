"""Tuning by calls that a user makes anyway, as a bandit: what may be spent, and which of two plans is the faster.

Plans are arms, calls are pulls: all plans compute the same within rounding errors, so that an arm costs only the time
that it takes longer. Candidates meet the incumbent one after another. Two rules decide:

- The budget, as of conservative bandits (Wu, Shariff, Lattimore and Szepesvari, Conservative bandits, ICML 2016): a
  step is taken only where all that exploring has cost so far, with what the step is expected to cost, is at most what
  the calls so far allow. With T their seconds and e the largest amount by which a step was dearer than expected::

      spent <= min(EARLY T, LUMP) + SHARE T + e

  The lump is for the plans that are likely to be much better. A first call explores nothing.
- Successive elimination (Even-Dar, Mannor and Mansour, Action elimination and stopping conditions, JMLR 7 (2006)
  1079-1105): both are called in turn, A B B A, so that a drift of the machine falls on both alike. The one whose
  interval lies above that of the other is out, and so is a candidate whose median is not lower by more than noise.
  After equally many calls one that is still there has won. Times of calls have long tails, so that intervals are those
  of the median (:mod:`akx.tuner.measure`); they are looked at after 6, 12 and 24 calls of each.

So the regret against the best candidate that was measured is the budget, and what the incumbent takes longer until that
candidate has had its turn. After a minute of calls the budget is 2.7 % of them, after an hour 1 %.
"""

from __future__ import annotations

from akx.tuner.measure import Measurement

__all__ = ["EARLY", "LUMP", "SHARE", "Budget", "Duel"]

#: Of the seconds of calls that exploring may cost: in the beginning, until it has cost LUMP seconds; and all the time.
EARLY, LUMP, SHARE = 0.5, 1.0, 0.01
#: Calls of each after which the two are compared.
_LOOKS = (6, 12, 24)
#: Differences below this share count as none.
_NOISE = 0.01


class Budget:
    """Seconds of all calls (`total`), and those that exploring has cost (`spent`)."""

    def __init__(self) -> None:
        self.total = self.spent = 0.0

    @property
    def allowed(self) -> float:
        """Seconds that exploring may have cost by now."""
        return SHARE * self.total + min(EARLY * self.total, LUMP)

    @property
    def left(self) -> float:
        """Seconds that may still be spent; negative after a step that was dearer than expected."""
        return self.allowed - self.spent

    def covers(self, expected: float) -> bool:
        """Whether a step that is expected to cost so much may be taken; one that costs nothing always may."""
        return expected <= 0 or expected <= self.left

    def due(self, expected: float) -> float:
        """Seconds of calls after which it covers a step that is expected to cost so much."""
        needed = self.spent + expected
        early = needed / (SHARE + EARLY)
        return early if EARLY * early <= LUMP else (needed - LUMP) / SHARE


class Duel:
    """Calls of a candidate and of the incumbent in turn, and their seconds, until it is known which is to stay."""

    def __init__(self) -> None:
        self.incumbent: list[float] = []
        self.candidate: list[float] = []

    @property
    def is_candidates_turn(self) -> bool:
        """Whose turn it is: A B B A."""
        return (len(self.incumbent) + len(self.candidate)) % 4 in (1, 2)

    def verdict(self) -> bool | None:
        """Whether the candidate has won; None while the two go on."""
        count = len(self.candidate)
        if count not in _LOOKS or len(self.incumbent) != count:
            return None
        incumbent, candidate = Measurement.of(self.incumbent), Measurement.of(self.candidate)
        if candidate.low > incumbent.high:
            return False
        if candidate.high < incumbent.low:
            return True
        if candidate.seconds >= (1 - _NOISE) * incumbent.seconds:
            return False
        return None if count < _LOOKS[-1] else True
