"""`ghost` on the GPU: blocks with their ghost zones, k steps each with no word to the others."""
