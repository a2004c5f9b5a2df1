"""The soak of `gradus serve`: attackers, the well-behaved clients beside them, and what is measured. See ../run_attacks.py."""
