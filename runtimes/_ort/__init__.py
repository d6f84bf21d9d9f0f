"""What the adapters over ONNX Runtime share: files, opening, passes, a session's state.

No adapter itself, as its underscore says; it imports none of them.
"""

# Other builds of ONNX Runtime, and the providers that plug into it, carry names of this form.
PACKAGES = ("onnxruntime", "onnxruntime-*")
