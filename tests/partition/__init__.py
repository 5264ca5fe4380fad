"""Tests of akx.partition."""
