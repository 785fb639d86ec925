"""Experiments of the pages, one module for each chapter: no promise of an interface."""
