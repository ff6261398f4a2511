"""What several test files share: histories of events, and a dense solve to compare with."""
