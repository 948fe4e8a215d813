"""Which slots hold which tokens; torch-free."""
