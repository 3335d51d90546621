//! Predictions for btrfs against file systems made for it, to the byte.
