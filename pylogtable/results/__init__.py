"""What operations return, and how it is shown as text, tables and HTML."""
