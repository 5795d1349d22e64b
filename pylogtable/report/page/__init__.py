"""The pages of the report, drawn from measured numbers. Pure."""
