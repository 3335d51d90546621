//! Predictions for xfs against file systems made for it, to the byte.
