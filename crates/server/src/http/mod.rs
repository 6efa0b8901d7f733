//! The HTTP face `/v1`.
