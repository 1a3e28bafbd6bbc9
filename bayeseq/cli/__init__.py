"""The command line: `main` dispatches, `arguments` describes, and each verb has a file."""
