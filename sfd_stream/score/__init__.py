"""`sfd-stream score`: what each row of the input topic means against the live sketch, as messages on another topic."""
