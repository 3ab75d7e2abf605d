"""Checks of the exercises, a file for each chapter, with the chapter's name."""
