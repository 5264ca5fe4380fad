"""Which plan to try next: known plans (warm start), first choices of models, then a sampler's and the surrogate's."""
