"""Copies of topics in other stores."""
