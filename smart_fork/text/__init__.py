"""Texts: quoting them, sentences for people, JSON in them."""
