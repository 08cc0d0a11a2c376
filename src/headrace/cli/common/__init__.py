"""What several nouns of the command line share: options, connections, output, errors."""
