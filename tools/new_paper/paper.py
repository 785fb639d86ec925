"""The paper's numbered forms, in their true form: one function for each, named after its number."""

from exacthessian.spectrum import Spectrum


def theorem_1(a: float, b: float) -> Spectrum:
    """The spectrum of the Hessian of ½(ab − 1)² where ab = 1: a² + b² once, and 0 once.

    >>> theorem_1(2.0, 0.5)
    Spectrum(4.25 × 1, 0 × 1)
    """
    return Spectrum.of((a**2 + b**2, 1, "dominant"), (0.0, 1, "zero"))
