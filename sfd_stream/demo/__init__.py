"""The demo: a broker, workers, rows of real text, and every claim checked."""
