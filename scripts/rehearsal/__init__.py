"""Every stage at full size, with random artifacts where a GPU would have worked."""
