"""What is etcd's: its messages, its connections in both worlds, and how our keys are laid out."""
