//! What `distlock` does at run time.
