"""What is for hire: adapters. No retry, no waiting, no matching, no ledger."""
