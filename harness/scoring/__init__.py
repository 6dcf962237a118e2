"""How reconstructions become numbers: matching, nulls, intervals, summaries, the verdict."""
