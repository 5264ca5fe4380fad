"""What akx is compared with on a GPU: products by other libraries."""
