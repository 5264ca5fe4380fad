"""Cost model of plans on any GPU (`model`), and measured rates of one (`rates`)."""
