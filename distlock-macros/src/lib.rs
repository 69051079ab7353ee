//! The attribute of `distlock`.
