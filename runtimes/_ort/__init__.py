"""Code shared by the adapters over ONNX Runtime: files, opening, passes, session state.

It is not an adapter, as its underscore says, and imports none.
"""

# Other builds of ONNX Runtime, and its provider plug-ins, have names of this form.
PACKAGES = ("onnxruntime", "onnxruntime-*")
