"""What a plan database knows of a plan: in words, in figures, and run again."""
