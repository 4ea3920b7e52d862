"""What a training leaves behind: chosen, brought home, checked, described."""
