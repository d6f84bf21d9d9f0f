"""An HTTP server with OpenAI's API: requests of several clients take turns on one pipeline."""
