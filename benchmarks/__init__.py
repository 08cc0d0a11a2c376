"""Headrace side by side with its peers, on the same machine under the same load."""
