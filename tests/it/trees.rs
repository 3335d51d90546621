//! Predictions for xfs and btrfs against file systems made for it, to the byte.
