"""What one asks of fitted labelers: labelers and sequences in, small records out."""
