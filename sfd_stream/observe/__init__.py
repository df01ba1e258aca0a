"""What people and programs observe: metrics, status, logs, and the port that serves them."""
