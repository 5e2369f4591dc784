"""Language models: shapes, from which parameters, FLOPs and KV bytes follow."""
