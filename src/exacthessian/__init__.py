"""Exact Hessians of neural-network losses."""
