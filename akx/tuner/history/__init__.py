"""The trials of this search and of earlier ones: results, the ledger of a search, and what the plan database keeps."""
