"""One cell, from the release to the record: a module for each stage."""
