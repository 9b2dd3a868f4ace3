"""How long to wait before trying again, as a pure function."""


def delay(attempt, first, most, chance):
    """The wait after failure number `attempt` (from 0): `first` doubled each time, up to `most`, in their unit.

    `chance`, from 0 to 1, takes away up to half of it, so that many clients don't come back all at once.
    """
    return min(most, first * 2 ** min(attempt, 30)) * (1 - chance / 2.0)
