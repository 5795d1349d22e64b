"""What calls return, and how it is shown as text, tables and HTML. Pure."""
