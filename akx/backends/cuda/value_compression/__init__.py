"""Values stored in fewer bytes where that is exact or the error is allowed, and new values put in their places."""
