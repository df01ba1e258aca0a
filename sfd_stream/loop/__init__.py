"""What the worker and the scorer share: jobs that a loop drives, their outside world, questions, records to rows."""
