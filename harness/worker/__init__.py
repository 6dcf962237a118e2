"""The attack's own process: a view goes in, a reconstruction comes out."""
