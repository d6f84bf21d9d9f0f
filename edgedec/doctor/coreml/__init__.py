"""The self-check of CoreML programs, for owners of Macs: ``edgedec doctor --coreml``.

The expected numbers are not stored in a bundle: the interpreter computes them here, from the file
that is checked. So any bundle can be checked, and no stored number can belong to another file.
"""

from edgedec.doctor.coreml.check import check_bundle, check_sample, programs_of
from edgedec.doctor.coreml.plans import placed
from edgedec.doctor.coreml.report import block

__all__ = ["block", "check_bundle", "check_sample", "placed", "programs_of"]
