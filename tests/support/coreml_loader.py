"""coremltools' own MIL loader, which infers the type of every value anew."""

from __future__ import annotations

import warnings
from pathlib import Path

from edgedec.coreml import Package, package_files


def check_with_coremltools(folder: Path) -> int:
    """Load a package with coremltools, and compare all types; return how many were compared.

    Raises:
        AssertionError: a value is declared as another type than coremltools infers.

    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from coremltools.converters.mil.backend.mil.helper import types_to_proto_primitive
        from coremltools.converters.mil.frontend.milproto.load import load
        from coremltools.converters.mil.mil import types
        from coremltools.models.utils import load_spec

        spec = load_spec(str(folder))
        _, _, weights = package_files(folder)
        program = load(spec, spec.specificationVersion, str(weights.parent))
    package, compared = Package.open(folder), 0
    for name, function in program.functions.items():
        declared = {
            value: type
            for operation in package.function(name).operations
            for value, type in operation.outputs
        }
        for operation in function.operations:
            for output in operation.outputs:
                if output.name not in declared or not types.is_tensor(output.sym_type):
                    continue
                type, compared = declared[output.name], compared + 1
                found = (types_to_proto_primitive(output.dtype), tuple(output.shape))
                assert found == (int(type.kind), type.shape), (name, output.name, found, type)
    return compared
