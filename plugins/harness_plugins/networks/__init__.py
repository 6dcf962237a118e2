"""Networks that several plugins train, and how they are trained."""
