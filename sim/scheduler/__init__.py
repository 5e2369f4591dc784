"""Who runs in each engine step, with how many tokens; knows no clock."""
