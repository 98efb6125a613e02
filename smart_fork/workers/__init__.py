"""The workers that live, and those that have: followed, asked, waited for, closed, compared."""
