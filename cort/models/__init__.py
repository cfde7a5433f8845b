"""What is trained, loaded and handed on: transformers, the encoder, the cross-encoder, their tokenizers."""
