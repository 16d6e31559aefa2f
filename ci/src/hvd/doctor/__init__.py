"""Diagnosis: ``./hvd doctor``."""
