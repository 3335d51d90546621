//! Predictions for ext2/3/4, NTFS, FAT and exFAT against file systems made for it, to the byte.
