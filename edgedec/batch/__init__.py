"""Many prompts from one file, their texts into another."""
