"""Text: messages, chat templates, tokenizers and streaming."""
