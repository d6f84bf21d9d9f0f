"""Field numbers of CoreML's messages, as far as a decoder's program uses them.

From Model.proto, FeatureTypes.proto and MIL.proto of coremltools.
"""

from __future__ import annotations

from edgedec.bundle.messages import Messages

MESSAGES = Messages(
    {
        "Model": {
            "specificationVersion": (1, "int"),
            "description": (2, "ModelDescription"),
            "mlProgram": (502, "Program"),
        },
        "ModelDescription": {
            "functions": (20, "*FunctionDescription"),
            "defaultFunctionName": (21, "str"),
            "metadata": (100, "Metadata"),
        },
        "Metadata": {"shortDescription": (1, "str"), "userDefined": (100, "%str")},
        "FunctionDescription": {
            "name": (1, "str"),
            "input": (2, "*FeatureDescription"),
            "output": (3, "*FeatureDescription"),
            "state": (6, "*FeatureDescription"),
        },
        "FeatureDescription": {"name": (1, "str"), "type": (3, "FeatureType")},
        "FeatureType": {"multiArrayType": (5, "ArrayType"), "stateType": (8, "StateFeatureType")},
        "ArrayType": {"shape": (1, "ints"), "dataType": (2, "int")},
        "StateFeatureType": {"arrayType": (1, "ArrayType")},
        # A function is kept as its bytes: one is read, or written, at a time.
        "Program": {"version": (1, "int"), "functions": (2, "%bytes")},
        "Function": {
            "inputs": (1, "*NamedType"),
            "opset": (2, "str"),
            "block_specializations": (3, "%Block"),
        },
        "Block": {"outputs": (2, "*str"), "operations": (3, "*Operation")},
        "Operation": {
            "type": (1, "str"),
            "inputs": (2, "%Argument"),
            "outputs": (3, "*NamedType"),
            "blocks": (4, "*bytes"),
            "attributes": (5, "%Value"),
        },
        "Argument": {"arguments": (1, "*Binding")},
        "Binding": {"name": (1, "str"), "value": (2, "Value")},
        "NamedType": {"name": (1, "str"), "type": (2, "ValueType")},
        "ValueType": {"tensorType": (1, "TensorType"), "stateType": (5, "StateType")},
        "StateType": {"wrappedType": (1, "ValueType")},
        "TensorType": {"dataType": (1, "int"), "rank": (2, "int"), "dimensions": (3, "*Dimension")},
        "Dimension": {"constant": (1, "Constant"), "unknown": (2, "bytes")},
        "Constant": {"size": (1, "int")},
        "Value": {
            "type": (2, "ValueType"),
            "immediateValue": (3, "Immediate"),
            "blobFileValue": (5, "BlobValue"),
        },
        "BlobValue": {"fileName": (1, "str"), "offset": (2, "int")},
        "Immediate": {"tensor": (1, "TensorValue")},
        "TensorValue": {
            "floats": (1, "Floats"),
            "ints": (2, "Ints"),
            "bools": (3, "Bools"),
            "strings": (4, "Strings"),
            "bytes": (7, "Bytes"),
        },
        "Floats": {"values": (1, "floats")},
        "Ints": {"values": (1, "ints")},
        "Bools": {"values": (1, "bools")},
        "Strings": {"values": (1, "*str")},
        "Bytes": {"values": (1, "bytes")},
    }
)
