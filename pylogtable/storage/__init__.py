"""Object stores: one contract (`base`), one file per kind, and the allow-list (`locate`)."""
