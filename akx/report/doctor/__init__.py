"""What is installed, what is missing and how to get it, and what akx sees of this machine."""
