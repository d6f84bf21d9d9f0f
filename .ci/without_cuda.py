"""Read a report of `pip install --dry-run`; exit with a reason if the package needs CUDA here."""

import json
import sys

from pip._vendor.packaging.requirements import Requirement

report = sys.stdin.read()
if not report:
    sys.exit("the index has no build for this Python")
(package,) = json.loads(report)["install"]
needed = map(Requirement, package["metadata"].get("requires_dist", ()))
cuda = [
    each.name
    for each in needed
    if each.name.startswith(("nvidia-", "cuda-", "triton"))
    and (each.marker is None or each.marker.evaluate({"extra": ""}))
]
if cuda:
    sys.exit(f"the index's build needs {', '.join(cuda)}")
