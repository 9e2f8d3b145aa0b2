//! Whatever is asked in any order.
