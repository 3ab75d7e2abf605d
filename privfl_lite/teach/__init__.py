"""What only notebooks need: figures, widgets, exercise checks."""
