"""What a user asks for, and what that resolves to. Nothing runs here."""
