//! Turns an async function into a critical section across processes and machines.
