"""Hashed requirement files of Axolotl's environment: package data, made by scripts/lock.py."""
