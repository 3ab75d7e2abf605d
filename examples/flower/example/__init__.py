"""Copy this folder and change ``task.py``."""
