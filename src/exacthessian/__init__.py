"""Exact Hessians of neural-network losses.

The closed forms need NumPy and SciPy only. PyTorch is imported by `exacthessian.autograd` alone,
the independent oracle that checks them, and never by `import exacthessian`.
"""

from exacthessian.aligned import AlignedChain, multipliers
from exacthessian.chain import LinearChain
from exacthessian.spectrum import Density, Spectrum, spectral_density, top_eigenvalues

__all__ = [
    "AlignedChain",
    "Density",
    "LinearChain",
    "Spectrum",
    "multipliers",
    "spectral_density",
    "top_eigenvalues",
]
