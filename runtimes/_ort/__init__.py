"""What the adapters over ONNX Runtime share: files, opening, passes, a session's state.

No adapter itself, as its underscore says; it imports none of them.
"""
